"""The plan: one frozen value from which both the charge and the run are made, so they cannot drift apart.

A run of DP-SGD states all it does; any other run states its mechanism alone.

{"batch_size_expected": 64, "clipping_norm": "1", "kind": "dp_sgd", "noise_multiplier": "2.25",
 "sampler": {"kind": "poisson", "probability": "16/175"}, "steps": 120, "v": 1}
{"kind": "mechanism", "mechanism": {"kind": "laplace", "noise_multiplier": "4", "v": 1}, "v": 1}

A run that draws and clips users, with all records of each, says so: ``"unit": "user"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final, Self

from ledger.mechanisms.decomposition import first_steps, to_steps
from ledger.mechanisms.mechanism import STEPS_MAX, Mechanism, PoissonGaussian
from ledger.mechanisms.mechanism_json import parse_mechanism
from ledger.wire.canonical_json import Json, digest, dump, fields, integer, one_of
from ledger.wire.exact_numbers import format_number, parse_positive
from ledger.wire.malformed import Malformed

BATCH_MAX: Final = 10_000_000
CLIPPING_MAX: Final = Fraction(10**9)
RECORD: Final = "record"
USER: Final = "user"
KEPT_MAX: Final = 4_096
"""Plans that are remembered as read; all are forgotten when there are more."""


@dataclass(frozen=True)
class Plan:
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

    sampling_probability: Fraction
    noise_multiplier: Fraction
    clipping_norm: Fraction
    steps: int
    batch_size_expected: int
    unit: str = RECORD

    def __post_init__(self) -> None:
        """Hold the plan to its bounds. Raises: Malformed."""
        if not 0 < self.clipping_norm <= CLIPPING_MAX:
            raise Malformed("clipping_norm", f"must be greater than 0 and at most {CLIPPING_MAX}")
        if not 1 <= self.batch_size_expected <= BATCH_MAX:
            raise Malformed("batch_size_expected", f"must lie between 1 and {BATCH_MAX}")
        _ = self.whole

    def __hash__(self) -> int:
        """By digest: what was priced is found by its plan."""
        return hash(self.digest)

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read the tagged form; the exact inverse of :meth:`to_json`. Raises: Malformed."""
        names = ("batch_size_expected", "clipping_norm", "kind", "noise_multiplier", "sampler", "steps", "v")
        known = fields(value, "", required=names, optional=("unit",))
        if known["kind"] != "dp_sgd":
            raise Malformed("kind", "must be 'dp_sgd' or 'mechanism'")
        integer(known["v"], "v", 1, 1)
        sampler = fields(known["sampler"], "sampler", required=("kind", "probability"))
        if sampler["kind"] != "poisson":
            raise Malformed("sampler.kind", "must be 'poisson': shuffled or fixed batches get no amplification")
        return cls(
            sampling_probability=parse_positive(sampler["probability"], "sampler.probability"),
            noise_multiplier=parse_positive(known["noise_multiplier"], "noise_multiplier"),
            clipping_norm=parse_positive(known["clipping_norm"], "clipping_norm"),
            steps=integer(known["steps"], "steps", 1, STEPS_MAX),
            batch_size_expected=integer(known["batch_size_expected"], "batch_size_expected", 1, BATCH_MAX),
            unit=one_of(known["unit"], "unit", (USER,)) if "unit" in known else RECORD,
        )

    def to_json(self) -> dict[str, Json]:
        """The tagged form."""
        return {
            "batch_size_expected": self.batch_size_expected,
            "clipping_norm": format_number(self.clipping_norm),
            "kind": "dp_sgd",
            "noise_multiplier": format_number(self.noise_multiplier),
            "sampler": {"kind": "poisson", "probability": format_number(self.sampling_probability)},
            "steps": self.steps,
            **({} if self.unit == RECORD else {"unit": self.unit}),
            "v": 1,
        }

    def mechanism(self, steps: int) -> PoissonGaussian:
        """What ``steps`` steps of this plan are, for the accountant. Raises: Malformed."""
        if steps == self.steps:
            return self.whole
        return PoissonGaussian(self.sampling_probability, self.noise_multiplier, steps)

    @cached_property
    def whole(self) -> PoissonGaussian:
        """All its steps."""
        return PoissonGaussian(self.sampling_probability, self.noise_multiplier, self.steps)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return digest(dump(self.to_json()))


@dataclass(frozen=True)
class MechanismPlan:
    """A run that is no DP-SGD: what will be released, as a mechanism."""

    whole: Mechanism
    unit: ClassVar[str] = RECORD

    def __post_init__(self) -> None:
        """Hold the mechanism to what can be charged. Raises: Malformed."""
        to_steps(self.whole)

    def __hash__(self) -> int:
        """By digest: what was priced is found by its plan."""
        return hash(self.digest)

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read the tagged form; the exact inverse of :meth:`to_json`. Raises: Malformed."""
        known = fields(value, "", required=("kind", "mechanism", "v"))
        if known["kind"] != "mechanism":
            raise Malformed("kind", "must be 'mechanism'")
        integer(known["v"], "v", 1, 1)
        try:
            return cls(parse_mechanism(known["mechanism"]))
        except Malformed as fault:
            raise fault.under("mechanism") from None

    def to_json(self) -> dict[str, Json]:
        """The tagged form."""
        return {"kind": "mechanism", "mechanism": self.whole.to_json(), "v": 1}

    @cached_property
    def steps(self) -> int:
        """What is settled one by one, counted over all pieces."""
        return sum(count for count, _ in to_steps(self.whole))

    def mechanism(self, steps: int) -> Mechanism:
        """What the first ``steps`` steps of this plan are, for the accountant. Raises: Malformed, for none."""
        found = self.whole if steps == self.steps else first_steps(self.whole, steps)
        if found is None:
            raise Malformed("steps", "must be at least 1")
        return found

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return digest(dump(self.to_json()))


AnyPlan = Plan | MechanismPlan


def group_of(plan: AnyPlan, unit: str, records: int, joined: int | None = None) -> int:
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


def parse_plan(value: object) -> AnyPlan:
    """Read a plan of either kind; one that was read before is the same value again. Raises: Malformed."""
    spelled = dump(value)  # type: ignore[arg-type] # what is no JSON is refused below, or here
    if (known := _KEPT.get(spelled)) is not None:
        return known
    if len(_KEPT) >= KEPT_MAX:
        _KEPT.clear()
    found = _KEPT[spelled] = _read(value)
    return found


_KEPT: Final[dict[bytes, AnyPlan]] = {}


def _read(value: object) -> AnyPlan:
    kind = value.get("kind") if isinstance(value, dict) else None
    return MechanismPlan.parse(value) if kind == "mechanism" else Plan.parse(value)
