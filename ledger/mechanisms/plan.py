"""The plan: one frozen value from which both the charge and the run are made, so they cannot drift apart.

A run of DP-SGD states all it does; any other run states its mechanism alone.

{"batch_size_expected": 64, "clipping_norm": "1", "kind": "dp_sgd", "noise_multiplier": "2.25",
 "sampler": {"kind": "poisson", "probability": "16/175"}, "steps": 120, "v": 1}
{"kind": "mechanism", "mechanism": {"kind": "laplace", "noise_multiplier": "4", "v": 1}, "v": 1}

A run that draws and clips users, with all records of each, says so: ``"unit": "user"``. A run that answers questions
states each of them, and what one changed record costs under a relation: :mod:`ledger.mechanisms.statistics`.

{"kind": "statistics", "relation": "ADD_OR_REMOVE_ONE",
 "statistics": [{"epsilon": "0.1", "kind": "count", "name": "rows"}], "v": 1}

A run that answers questions from an ensemble says how: :mod:`ledger.mechanisms.ensembles`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

import msgspec

from ledger.mechanisms.decomposition import PIECES_MAX, check_pieces, first_steps, to_steps
from ledger.mechanisms.ensembles import USERS, EnsembleTerms, ensemble_mechanism
from ledger.mechanisms.mechanism import AnyMechanism, Composed, Mechanism, PoissonGaussian, Relation, Steps
from ledger.mechanisms.statistics import AnyStatistic, mechanism_of
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Positive, between, constant, distinct, exact, register_type, rule, words
from ledger.wire.json_schema import json_schema
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert, to_json, write

BATCH_MAX: Final = 10_000_000
CLIPPING_MAX: Final = Fraction(10**9)
RECORD: Final = "record"
USER: Final = "user"
KEPT_MAX: Final = 4_096
"""Plans that are cached as read, the most recent ones."""


class PoissonSampler(Record, frozen=True):
    """True Poisson sampling: every record enters every step by itself, with one probability."""

    probability: Positive
    kind: Annotated[Literal["poisson"], rule("must be 'poisson': shuffled or fixed batches get no amplification")] = (
        constant("poisson")
    )


class PoissonProbability(Fraction):
    """A probability that is written as the sampler that draws with it."""


register_type(
    PoissonProbability,
    lambda value: PoissonProbability(convert(PoissonSampler, value).probability),
    lambda value: PoissonSampler(Fraction(value)),
    json_schema(PoissonSampler),
)


class RunPlan:
    """What a run does, of either kind."""

    if TYPE_CHECKING:

        @property
        def whole(self) -> Mechanism:
            """All its steps."""

        @property
        def steps(self) -> int:
            """How many steps there are, each settled by itself."""

        @property
        def unit(self) -> str:
            """What is drawn and clipped."""

    def mechanism(self, steps: int) -> Mechanism:
        """What the first ``steps`` steps of this plan are, for the accountant. Raises: Malformed, for none."""
        found = self.whole if steps == self.steps else first_steps(self.whole, steps)
        if found is None:
            raise Malformed("steps", "must be at least 1")
        return found

    def __hash__(self) -> int:
        """By digest: prices are cached by plan."""
        return hash(self.digest)

    def to_json(self) -> c.Object:
        """The tagged form."""
        found: c.Object = to_json(self)
        return found

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return c.digest(write(self))

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read the tagged form of a run of this kind; the exact inverse of :meth:`to_json`. Raises: Malformed."""
        return cls.of(parse_plan(value))

    @classmethod
    def of(cls, plan: RunPlan) -> Self:
        """A plan that is one of this kind. Raises: Malformed, for one of another kind."""
        if not isinstance(plan, cls):
            raise Malformed("kind", "is that of another kind of plan")
        return plan


class Plan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="dp_sgd"):
    """A DP-SGD run (Abadi et al. 2016, Algorithm 1) with true Poisson sampling and flat clipping.

    Attributes:
        sampling_probability: of every record at every step; rounded up for the charge, down for the sampler.
        noise_multiplier: noise standard deviation over clipping norm; rounded down for the charge, up for the
            sampler.
        clipping_norm: L2 bound on one record's contribution.
        steps: logical steps, each one noisy sum.
        batch_size_expected: the public constant the noisy sum is divided by; never the private batch size.
        unit: what is drawn with that probability and clipped to that norm: ``record``, or ``user`` with all records
            of the user's that train. See :func:`group_of`.
    """

    if TYPE_CHECKING:
        sampling_probability: Fraction
    else:
        sampling_probability: PoissonProbability = msgspec.field(name="sampler")
    noise_multiplier: Positive
    clipping_norm: Annotated[Fraction, exact(most=CLIPPING_MAX, positive=True)]
    steps: Steps
    batch_size_expected: Annotated[int, between(1, BATCH_MAX)]
    unit: Annotated[str, words("user")] = RECORD
    v: Literal[1] = constant(1)

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Hold the plan to its bounds. Raises: Malformed."""
        super().__post_init__()
        if not 1 <= self.batch_size_expected <= BATCH_MAX:
            raise Malformed("batch_size_expected", f"must lie between 1 and {BATCH_MAX}")
        msgspec.structs.force_setattr(self, "sampling_probability", PoissonProbability(self.sampling_probability))
        try:
            _ = self.whole
        except Malformed as error:
            raise (error.under("sampler") if error.field == "probability" else error) from None

    def mechanism(self, steps: int) -> PoissonGaussian:
        """What ``steps`` steps of this plan are, for the accountant. Raises: Malformed."""
        if steps == self.steps:
            return self.whole
        return PoissonGaussian(Fraction(self.sampling_probability), self.noise_multiplier, steps)

    @cached_property
    def whole(self) -> PoissonGaussian:
        """All its steps."""
        return PoissonGaussian(Fraction(self.sampling_probability), self.noise_multiplier, self.steps)


class MechanismPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="mechanism"):
    """A run that is no DP-SGD: what will be released, as a mechanism."""

    whole: AnyMechanism = msgspec.field(name="mechanism")
    v: Literal[1] = constant(1)
    unit: ClassVar[str] = RECORD

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Hold the mechanism to what can be charged. Raises: Malformed."""
        to_steps(self.whole)

    @cached_property
    def steps(self) -> int:
        """What is settled one by one, counted over all pieces."""
        return sum(count for count, _ in to_steps(self.whole))


class StatisticsPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="statistics"):
    """A run that answers questions, one after another: each is one step, priced and settled by itself.

    Attributes:
        relation: under which each statistic costs what it says; a partition with another takes no such charge.
    """

    relation: Relation
    statistics: Annotated[tuple[AnyStatistic, ...], distinct(PIECES_MAX)]
    v: Literal[1] = constant(1)
    unit: ClassVar[str] = RECORD

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Hold each answer to a name of its own. Raises: Malformed."""
        super().__post_init__()
        names = [one.name for one in self.statistics]
        if len(names) != len(set(names)):
            raise Malformed("statistics", "must have different names")

    @cached_property
    def whole(self) -> Mechanism:
        """All of them."""
        parts = tuple(mechanism_of(one, self.relation) for one in self.statistics)
        return parts[0] if len(parts) == 1 else Composed(parts)

    @property
    def steps(self) -> int:
        """How many there are."""
        return len(self.statistics)


class EnsemblePlan(EnsembleTerms, RunPlan, frozen=True, dict=True, tag_field="kind", tag="ensemble"):
    """A run that answers questions from teachers on disjoint chunks: see :mod:`ledger.mechanisms.ensembles`."""

    v: Literal[1] = constant(1)

    __hash__ = RunPlan.__hash__

    @cached_property
    def whole(self) -> Mechanism:
        """All questions, at their caps."""
        return ensemble_mechanism(self)

    @property
    def steps(self) -> int:
        """How many questions there are."""
        return self.questions

    @property
    def unit(self) -> str:
        """What is in one chunk as a whole."""
        return USER if self.chunks_by == USERS else RECORD


def group_of(plan: RunPlan, unit: str, records: int, joined: int | None = None) -> int:
    """How many of a plan's own units change together with one privacy unit of a partition: what it is priced for.

    A run over records is seen by a whole user as by a group. One that draws and clips users sees each once (one
    contribution of at most the clipping norm is there or not); of records it promises nothing, since a record less in
    a user's clipped sum may move it by twice the norm.

    Args:
        unit: of the partition; ``records`` of it that one unit holds at most.
        joined: the most after joins, where the charge says so.

    Raises:
        Malformed: for a plan over users on a partition whose unit is the record.
    """
    if plan.unit == RECORD:
        return max(records, joined or 1)
    if plan.unit != unit:
        raise Malformed("unit", f"is {plan.unit}: no price holds where the partition's unit is the {unit}")
    return joined or 1


def parse_plan(value: Any) -> RunPlan:  # noqa: ANN401 - what is no JSON is refused
    """Read a plan of either kind; plans are cached by their bytes. Raises: Malformed."""
    try:
        spelled = c.spelled(value)
    except TypeError:
        return _read(value)
    return _read_once(spelled)


@lru_cache(maxsize=KEPT_MAX)
def _read_once(spelled: bytes) -> RunPlan:
    return _read(msgspec.json.decode(spelled))


_KINDS: Final[Any] = Annotated[
    Plan | MechanismPlan | StatisticsPlan | EnsemblePlan,
    rule("is no kind of plan: must be 'dp_sgd', 'mechanism', 'statistics' or 'ensemble'"),
]


def _read(value: object) -> RunPlan:
    plan: RunPlan = convert(_KINDS, value)
    if isinstance(plan, MechanismPlan):
        try:
            check_pieces(plan.whole)
        except Malformed as error:
            raise error.under("mechanism") from None
    return plan


register_type(RunPlan, parse_plan, None, json_schema(_KINDS))
