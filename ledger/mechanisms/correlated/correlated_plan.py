"""Correlated noise: DP-FTRL by a Toeplitz matrix; the plan of a run, and what it is charged as.

    {"bands": 8, "batch_size_expected": 64, "clipping_norm": "1", "kind": "correlated", "noise_multiplier": "4",
     "rounds": 15, "sampler": {"kind": "poisson", "probability": "1/4"}, "v": 1}

The run takes ``rounds`` times ``bands`` steps. Each unit is in one of ``bands`` groups; at step t (from 0) each unit
of group t mod bands enters on its own, with one probability. Step t releases its clipped sum plus w_t, where C w = z:
C is lower triangular with C[t, t - i] = c_i, the coefficients of the plan's strategy
(:mod:`ledger.mechanisms.correlated.strategies`), and z is independent Gaussian noise of standard deviation s = σ |c|
L, for the clipping norm L, the noise multiplier σ and |c|² = Σ c_i². What one step adds too much, the next ones take
back: a sum over steps has less noise left than of independent noise.

Why ``rounds`` sampled Gaussian sums of noise multiplier σ price it (Choquette-Choo et al. 2023, arXiv 2306.08153,
Theorem 4). Releasing the sums plus w is releasing C times the sums plus z, since C has an inverse. A unit enters at
steps of its own group only, ``bands`` apart, and a banded C, c_i = 0 from i = ``bands`` on, spreads what it adds at
one of them over the rows of that step and of the ``bands`` - 1 after it: so rows of different rounds are disjoint.
Within one round, given all released before, what the unit adds is fixed: g at its step, c_i g in the i-th row after
it, if its coin of probability q says so, else nothing. What other units add in these rows may depend on the rows
before, but the log of the likelihood ratio is Σ <o_i - μ_i, c_i g> / s² - |c|² |g|² / 2s², whose terms are, given the
rows before and under either hypothesis, those of independent Gaussians: it has the law of one Gaussian sum with |g|
|c| ≤ L |c| against s, which is noise multiplier σ, and its coin is that of Poisson sampling. The first k rounds alone
are the same of a smaller C, so a run that ends after them is charged for k: rounds are this plan's steps.

A stream is one round: as many groups as steps, so that no unit enters two. No row of another round is there to be
disjoint from, and C may fill all rows below: a buffered strategy is for these alone, and |c| is over all steps.

How a unit comes to its group is no matter, so long as it does not depend on other units.

Why k records of one user, or k rows of one person, cost what they do in DP-SGD: they are in one group, so they enter at
the same steps, and rows of different rounds are disjoint for them as for one. Within a round, given all before, those
that are drawn add v, the sum of their g, at its step, and c_i v after it. The likelihood ratio is the mean over draws
of exp(<y, v> / s² - |c|² |v|² / 2s²), where y = Σ c_i (o_i - μ_i) is, without them, Gaussian of deviation s |c|
whatever the rows before were: that of one Gaussian sum at noise multiplier σ with Binomial(k, q) of them drawn, whose
privacy loss a group of DP-SGD is priced by (Ganesh 2024, arXiv 2401.10294). In groups apart their rows of different
rounds would overlap, and nothing here bounds that: a run of such records is refused where it is not known whose they
are.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ledger.mechanisms.correlated.strategies import BANDS_MAX, AnyStrategy, Banded, Strategy, root_above, square_root
from ledger.mechanisms.mechanism import STEPS_MAX, PoissonGaussian, Steps
from ledger.mechanisms.plan import BATCH_MAX, CLIPPING_MAX, Plan, PoissonProbability
from ledger.mechanisms.run_plan import RECORD, RunPlan
from ledger.wire.field_types import Positive, between, constant, exact, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record


class CorrelatedPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="correlated"):
    """A run of DP-FTRL with correlated noise and cyclic Poisson participation.

    Attributes:
        bands: groups of units, and steps of one round; at most 64, but for a stream.
        sampling_probability: of every unit of a step's group; rounded up for the charge, down for the sampler.
        noise_multiplier: noise standard deviation over clipping norm and |c|; rounded down for the charge, up for the
            sampler.
        clipping_norm: L2 bound on one unit's contribution to one step.
        rounds: each of ``bands`` steps; charged, leased, posted and refunded one by one.
        batch_size_expected: the public constant that each noisy sum is divided by.
        unit: as of a plan of DP-SGD.
        strategy: the matrix that correlates the noise; None for the square root.
    """

    if TYPE_CHECKING:
        sampling_probability: Fraction
    else:
        sampling_probability: PoissonProbability = msgspec.field(name="sampler")
    bands: Annotated[int, between(2, STEPS_MAX)]
    noise_multiplier: Positive
    clipping_norm: Annotated[Fraction, exact(most=CLIPPING_MAX, positive=True)]
    rounds: Steps
    batch_size_expected: Annotated[int, between(1, BATCH_MAX)]
    unit: Annotated[str, words("user")] = RECORD
    strategy: AnyStrategy | None = None
    v: Literal[1] = constant(1)

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Check the plan against its bounds. Raises: Malformed."""
        super().__post_init__()
        if not 1 <= self.batch_size_expected <= BATCH_MAX:
            raise Malformed("batch_size_expected", f"must lie between 1 and {BATCH_MAX}")
        self._check_participation()
        msgspec.structs.force_setattr(self, "sampling_probability", PoissonProbability(self.sampling_probability))
        try:
            _ = self.whole
        except Malformed as error:
            renamed = {"probability": "sampler", "steps": "rounds"}
            raise Malformed(renamed.get(error.field, error.field), error.rule) from None

    def _check_participation(self) -> None:
        """A strategy is for one way to take part. Raises: Malformed."""
        if isinstance(self.matrix, Banded):
            if not 2 <= self.bands <= BANDS_MAX:
                raise Malformed("bands", f"must lie between 2 and {BANDS_MAX}")
            if len(self.matrix.coefficients) != self.bands - 1:
                raise Malformed("strategy.coefficients", f"must be one fewer than the bands: {self.bands - 1}")
        elif self.rounds != 1 or self.bands < 2:
            raise Malformed("strategy", "is for a stream, where each record enters one step: rounds must be 1")
        if self.rounds * self.bands > STEPS_MAX:
            raise Malformed("rounds", f"make more than {STEPS_MAX} steps")

    @cached_property
    def matrix(self) -> Strategy:
        """C: the plan's strategy, or the square root."""
        return square_root(min(self.bands, BANDS_MAX)) if self.strategy is None else self.strategy

    @cached_property
    def column_norm(self) -> Fraction:
        """|c|, over the rows that one contribution reaches; never less, and at most by 2^-79."""
        return root_above(self.matrix.column_square(self.bands))

    @property
    def independent_noise(self) -> Fraction:
        """The standard deviation of z, σ |c| times the clipping norm; never less."""
        return self.noise_multiplier * self.column_norm * self.clipping_norm

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
