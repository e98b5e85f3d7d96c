"""The plan of one run: one frozen value from which both the charge and the run are made, so they cannot drift apart.

A run of DP-SGD states all it does; any other run states its mechanism alone.

{"batch_size_expected": 64, "clipping_norm": "1", "kind": "dp_sgd", "noise_multiplier": "2.25",
 "sampler": {"kind": "poisson", "probability": "16/175"}, "steps": 120, "v": 1}
{"kind": "mechanism", "mechanism": {"kind": "laplace", "noise_multiplier": "4", "v": 1}, "v": 1}

A run that draws and clips users, with all records of each, has ``"unit": "user"``. The other kinds of plan are
:mod:`ledger.mechanisms.statistics_plans` and the ensemble's, :mod:`ledger.mechanisms.ensembles`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import msgspec

from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.mechanism import AnyMechanism, PoissonGaussian, Steps
from ledger.mechanisms.run_plan import RECORD, RunPlan
from ledger.wire.field_types import Positive, between, constant, exact, register_type, rule, words
from ledger.wire.json_schema import json_schema
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert

BATCH_MAX: Final = 10_000_000
CLIPPING_MAX: Final = Fraction(10**9)


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
            of the user's that train. See :mod:`ledger.mechanisms.run_plan`.
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
        """Check the plan against its bounds. Raises: Malformed."""
        super().__post_init__()
        if not 1 <= self.batch_size_expected <= BATCH_MAX:
            raise Malformed("batch_size_expected", f"must lie between 1 and {BATCH_MAX}")
        msgspec.structs.force_setattr(self, "sampling_probability", PoissonProbability(self.sampling_probability))
        try:
            _ = self.whole
        except Malformed as error:
            raise (error.under("sampler") if error.field == "probability" else error) from None

    def mechanism(self, steps: int) -> PoissonGaussian:
        """The mechanism of ``steps`` steps of this plan, for the accountant. Raises: Malformed."""
        if steps == self.steps:
            return self.whole
        return PoissonGaussian(Fraction(self.sampling_probability), self.noise_multiplier, steps)

    @cached_property
    def whole(self) -> PoissonGaussian:
        """All its steps."""
        return PoissonGaussian(Fraction(self.sampling_probability), self.noise_multiplier, self.steps)


class MechanismPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="mechanism"):
    """A run other than DP-SGD, stated as the mechanism of what will be released."""

    whole: AnyMechanism = msgspec.field(name="mechanism")
    v: Literal[1] = constant(1)
    unit: ClassVar[str] = RECORD

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Check that the mechanism can be charged. Raises: Malformed."""
        to_steps(self.whole)

    @cached_property
    def steps(self) -> int:
        """The steps that are settled one by one, counted over all pieces."""
        return sum(count for count, _ in to_steps(self.whole))
