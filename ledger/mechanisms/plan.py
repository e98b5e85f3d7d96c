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

A run of stages takes statistics of its training records, trains by them, and measures its model on the records that it
held out: one plan, so one price and one post.

{"held_out": "0.3", "kind": "staged", "metrics": [{"buckets": 16, "epsilon": "0.2", "kind": "roc_curve", "name": "roc",
 "score": "outputs[1]", "truth": "targets"}], "relation": "REPLACE_SPECIAL", "statistics": [...],
 "training": {"kind": "dp_sgd", ...}, "v": 1}
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

import msgspec

from ledger.mechanisms.decomposition import PIECES_MAX, check_pieces, first_steps, to_steps
from ledger.mechanisms.ensembles import USERS, EnsembleTerms, ensemble_mechanism
from ledger.mechanisms.mechanism import AnyMechanism, Composed, Mechanism, PoissonGaussian, Relation, Steps
from ledger.mechanisms.poisson_sampler import PoissonProbability
from ledger.mechanisms.statistics import AnyStatistic, Statistic, mechanism_of, require_own_columns
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
            of the user's that train. See :mod:`ledger.mechanisms.unit_groups`.
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
        require_own_columns(self.statistics)
        _require_names(self.statistics, "statistics")

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


class StagedPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="staged"):
    """A run of stages: statistics of the records that train, training, and metrics of its model on those held out.

    Each statistic and each metric is one step, in this order, the steps of the training between them. All are composed
    as if each read every record: a record trains or is held out, so what this overstates is the smaller part.

    Attributes:
        relation: under which each statistic and metric costs what it says, as in :class:`StatisticsPlan`.
        training: over records; its sampling probability is of all places, those held out among them.
        statistics: from which the run standardises, before it trains.
        metrics: statistics of the trained model's ``outputs`` and ``predictions`` beside the records' own columns.
        held_out: the share of the records that do not train; there is one where there are metrics, and only there.
    """

    relation: Relation
    training: Plan
    statistics: Annotated[tuple[AnyStatistic, ...], distinct(PIECES_MAX, 0)] = ()
    metrics: Annotated[tuple[AnyStatistic, ...], distinct(PIECES_MAX, 0)] = ()
    held_out: Annotated[Fraction, exact(below=Fraction(1), positive=True)] | None = None
    v: Literal[1] = constant(1)
    unit: ClassVar[str] = RECORD

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Hold the stages to each other. Raises: Malformed."""
        super().__post_init__()
        asked = (*self.statistics, *self.metrics)
        if not 1 <= len(asked) < PIECES_MAX:
            raise Malformed("statistics", f"and metrics must be 1 to {PIECES_MAX - 1} together")
        if self.training.unit != RECORD:
            raise Malformed("training.unit", f"is {self.training.unit}: stages are over records")
        if bool(self.metrics) != (self.held_out is not None):
            raise Malformed("held_out", "is the share of the records that metrics are of: where there are metrics")
        require_own_columns(self.statistics)
        _require_names(asked, "statistics and metrics")
        to_steps(self.whole)

    @cached_property
    def whole(self) -> Mechanism:
        """All stages, composed once."""
        before, after = (
            tuple(mechanism_of(one, self.relation) for one in part) for part in (self.statistics, self.metrics)
        )
        return Composed((*before, self.training.whole, *after))

    @property
    def steps(self) -> int:
        """Those of all stages."""
        return len(self.statistics) + self.training.steps + len(self.metrics)


def _require_names(statistics: tuple[Statistic, ...], where: str) -> None:
    names = [one.name for one in statistics]
    if len(names) != len(set(names)):
        raise Malformed(where, "must have different names")


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
    Plan | MechanismPlan | StatisticsPlan | EnsemblePlan | StagedPlan,
    rule("is no kind of plan: must be 'dp_sgd', 'mechanism', 'statistics', 'ensemble' or 'staged'"),
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
