"""Correlated noise: DP-FTRL by a banded Toeplitz matrix; the plan of a run, and what it is charged as.

    {"bands": 8, "batch_size_expected": 64, "clipping_norm": "1", "kind": "correlated", "noise_multiplier": "4",
     "rounds": 15, "sampler": {"kind": "poisson", "probability": "1/4"}, "v": 1}

The run takes ``rounds`` times ``bands`` steps. Each unit is in one of ``bands`` groups; at step t (from 0) each unit of
group t mod bands enters on its own, with one probability. Step t releases its clipped sum plus w_t, where C w = z: C is
lower triangular with C[t, t - i] = c_i for i < bands, the first coefficients of the square root of the matrix of prefix
sums (c_0 = 1, c_i = c_(i-1) (2i - 1) / (2i); Fichtenberger, Henzinger, Upadhyay 2023), and z is independent Gaussian
noise of standard deviation s = σ |c| L, for the clipping norm L, the noise multiplier σ and |c|² = Σ c_i². What one
step adds too much, the next ones take back: a sum over steps has less noise left than of independent noise.

Why ``rounds`` sampled Gaussian sums of noise multiplier σ price it (Choquette-Choo et al. 2023, arXiv 2306.08153,
Theorem 4). Releasing the sums plus w is releasing C times the sums plus z, since C has an inverse. A unit enters at
steps of its own group only, ``bands`` apart, and C spreads what it adds at one of them over the rows of that step and
of the ``bands`` - 1 after it: so rows of different rounds are disjoint. Within one round, given all released before,
what the unit adds is fixed: g at its step, c_i g in the i-th row after it, if its coin of probability q says so, else
nothing. What other units add in these rows may depend on the rows before, but the log of the likelihood ratio is Σ
<o_i - μ_i, c_i g> / s² - |c|² |g|² / 2s², whose terms are, given the rows before and under either hypothesis, those
of independent Gaussians: it has the law of one Gaussian sum with |g| |c| ≤ L |c| against s, which is noise multiplier
σ, and its coin is that of Poisson sampling. The first k rounds alone are the same of a smaller C, so a run that ends
after them is charged for k: rounds are this plan's steps.

How a unit comes to its group is no matter, so long as it does not depend on other units.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from ledger.mechanisms.mechanism import STEPS_MAX, PoissonGaussian, Steps
from ledger.mechanisms.plan import BATCH_MAX, CLIPPING_MAX, Plan, PoissonProbability
from ledger.mechanisms.run_plan import RECORD, RunPlan
from ledger.wire.field_types import Positive, between, constant, exact, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

BANDS_MAX: Final = 64
"""Steps that one step's noise is correlated with, itself counted; a room keeps so many vectors of noise."""
_ROOT_BITS: Final = 80


def coefficients(bands: int) -> tuple[Fraction, ...]:
    """c_0 to c_(bands - 1), exact: of the power series of (1 - x)^(-1/2)."""
    found = [Fraction(1)]
    for place in range(1, bands):
        found.append(found[-1] * Fraction(2 * place - 1, 2 * place))
    return tuple(found)


def column_norm(bands: int) -> Fraction:
    """|c|, rounded up by at most 2^-80."""
    square = sum((one * one for one in coefficients(bands)), Fraction(0))
    scaled = -((-square.numerator << 2 * _ROOT_BITS) // square.denominator)
    root = isqrt(scaled)
    return Fraction(root + (root * root < scaled), 1 << _ROOT_BITS)


class CorrelatedPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="correlated"):
    """A run of DP-FTRL with banded correlated noise and cyclic Poisson participation.

    Attributes:
        bands: groups of units, and steps of one round.
        sampling_probability: of every unit of a step's group; rounded up for the charge, down for the sampler.
        noise_multiplier: noise standard deviation over clipping norm and |c|; rounded down for the charge, up for the
            sampler.
        clipping_norm: L2 bound on one unit's contribution to one step.
        rounds: each of ``bands`` steps; charged, leased, posted and refunded one by one.
        batch_size_expected: the public constant that each noisy sum is divided by.
        unit: as of a plan of DP-SGD.
    """

    if TYPE_CHECKING:
        sampling_probability: Fraction
    else:
        sampling_probability: PoissonProbability = msgspec.field(name="sampler")
    bands: Annotated[int, between(2, BANDS_MAX)]
    noise_multiplier: Positive
    clipping_norm: Annotated[Fraction, exact(most=CLIPPING_MAX, positive=True)]
    rounds: Steps
    batch_size_expected: Annotated[int, between(1, BATCH_MAX)]
    unit: Annotated[str, words("user")] = RECORD
    v: Literal[1] = constant(1)

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Check the plan against its bounds. Raises: Malformed."""
        super().__post_init__()
        for name, least, most in (("bands", 2, BANDS_MAX), ("batch_size_expected", 1, BATCH_MAX)):
            if not least <= getattr(self, name) <= most:
                raise Malformed(name, f"must lie between {least} and {most}")
        if self.rounds * self.bands > STEPS_MAX:
            raise Malformed("rounds", f"make more than {STEPS_MAX} steps")
        msgspec.structs.force_setattr(self, "sampling_probability", PoissonProbability(self.sampling_probability))
        try:
            _ = self.whole
        except Malformed as error:
            renamed = {"probability": "sampler", "steps": "rounds"}
            raise Malformed(renamed.get(error.field, error.field), error.rule) from None

    @property
    def steps(self) -> int:
        """The rounds, which are settled one by one."""
        return self.rounds

    @cached_property
    def training(self) -> Plan:
        """Its logical steps as a plan of DP-SGD would take them, for what does not look at the noise."""
        return Plan(
            Fraction(self.sampling_probability),
            self.noise_multiplier,
            self.clipping_norm,
            self.rounds * self.bands,
            self.batch_size_expected,
            self.unit,
        )

    def mechanism(self, steps: int) -> PoissonGaussian:
        """The mechanism of the first ``steps`` rounds. Raises: Malformed."""
        return PoissonGaussian(Fraction(self.sampling_probability), self.noise_multiplier, steps)

    @cached_property
    def whole(self) -> PoissonGaussian:
        """All rounds."""
        return self.mechanism(self.rounds)
