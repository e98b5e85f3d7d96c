"""The rule ``reference``: count steps that one named step dominates.

The partition names a Poisson-sampled Gaussian step (q₀, σ₀). Its capacity under (ε, δ) is the greatest number N of
such steps whose privacy loss distribution keeps (ε, δ) in both directions; each step that runs counts as one.

Why counting is sound although each request may depend on every answer: a step with q <= q₀ and σ >= σ₀ is a
post-processing of the reference's pair of output laws, the same for both neighbours (add Gaussian noise up to σ, then
replace the output by fresh noise with probability 1 - q/q₀). Draw N samples of the reference once; every executed
step, whichever run it belongs to, takes the next sample through its own post-processing, and a step that did not run
has taken none. So any interaction of at most N steps, with its stops and refunds, is one randomised map of N draws,
and no better than they are. Compared are exact rationals: curves that cross, whole runs converted to counts, or two
references with a region of counts would each break it (the tests show how).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal

from ledger.accounting.pld_counting import COUNT_MAX, count_capacity, count_epsilon, count_keeps
from ledger.filters.capacity import Cap, NoRoom
from ledger.filters.odometer_checkpoints import checkpoint_epsilon
from ledger.filters.rule import Coordinate, Opening, Rule
from ledger.filters.step_types import as_sampled
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.loss import Loss, Segment
from ledger.mechanisms.mechanism import Mechanism, PoissonGaussian
from ledger.mechanisms.price_proofs import REPLACE, NotPriced, require_priced
from ledger.wire.field_types import Positive, between, constant
from ledger.wire.malformed import Malformed

DELTA_LEAST: Final = Fraction(1, 10**9)
"""The least δ: below it the error of the PLD computation would decide."""


class Reference(Rule, frozen=True, tag="reference", dict=True):
    """The terms of one partition.

    Attributes:
        delta: of the partition's budget; ``epsilon`` likewise, which the odometer's checkpoints divide.
        noise_multiplier: of the reference step; ``probability`` is its sampling probability.
        capacity: steps that keep the budget, computed at opening: the checkpoints of the odometer divide it.
        odometers: 2 where the rule's own and the PLD of the first run share δ, half each; see :class:`Rule`.
    """

    takes_slack: ClassVar[bool] = False
    per_unit: ClassVar[bool] = True
    searched: ClassVar[bool] = True
    delta: Positive
    epsilon: Positive
    noise_multiplier: Fraction
    probability: Positive
    capacity: Annotated[int, between(1, COUNT_MAX)] | None = None
    odometers: Literal[2] | None = None
    v: Literal[1] = constant(1)

    def __post_init__(self) -> None:
        """Check the reference step against the bounds of a mechanism. Raises: Malformed."""
        super().__post_init__()
        _ = self.step

    @cached_property
    def step(self) -> PoissonGaussian:
        """The reference step."""
        return PoissonGaussian(self.probability, self.noise_multiplier, 1)

    @classmethod
    def choose(cls, opening: Opening) -> Reference:
        """The declared load's step is the reference.

        Raises:
            Malformed: if the load is not one kind of sampled Gaussian step, the relation replaces records, or δ is
                below 1e-9.
        """
        delta, caps, load, relation, *_ = opening
        if not DELTA_LEAST <= delta < 1:
            raise Malformed("delta", "must be at least 1e-9 and less than 1 for the rule reference")
        if relation == REPLACE:
            raise Malformed("relation", f"{relation} has no proven dominating pair for the rule reference")
        runs = to_steps(load) if load else ()
        step = as_sampled(runs[0][1]) if len(runs) == 1 else None
        if step is None:
            raise Malformed("load", "must be one plan of Poisson-sampled Gaussian steps: its step is the reference")
        capacity = count_capacity(PoissonGaussian(step.probability, step.noise_multiplier, 1), caps[0], delta)
        return cls(delta, caps[0], step.noise_multiplier, step.probability, capacity or None, 2)

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """One, in steps."""
        return (Coordinate("reference steps", 1, ""),)

    def segments(self, mechanism: Mechanism, relation: str) -> tuple[Segment, ...]:
        """One for each step that the reference dominates. Raises: NotPriced, for any other."""
        require_priced(mechanism, relation, self.kind())
        for _, step in to_steps(mechanism):
            sampled = as_sampled(step)
            if sampled is None or not self.dominates(sampled):
                raise NotPriced(f"a step of {step.kind} is not dominated by the partition's reference step")
        return tuple(Segment(count, (1,)) for count, _ in to_steps(mechanism))

    def dominates(self, step: PoissonGaussian) -> bool:
        """Whether a step is at most the reference: sampled as rarely, with as much noise."""
        rarer = step.probability <= self.step.probability
        return rarer and step.noise_multiplier >= self.step.noise_multiplier

    def cap(self, epsilon: Fraction) -> Cap:
        """The number of steps that keep (ε, δ). Slow at first, cached afterwards.

        Raises:
            NoRoom: if not even one does, with the least ε for which one would. Malformed: if there is no such ε.
        """
        count = count_capacity(self.step, epsilon, self.delta)
        if count == 0:
            least = count_epsilon(self.step, 1, self.delta)
            if least is None:
                raise Malformed("load", "not even one of its steps keeps any ε at this δ")
            raise NoRoom(epsilon, least)
        return Cap(epsilon, (count,))

    def keeps(self, cap: Cap) -> bool:
        """Whether a cap's steps keep (ε, δ), evaluated at that very number. Raises: ValueError."""
        (count,) = cap.capacity
        return not count or count_keeps(self.step, cap.epsilon, self.delta, count)

    def odometer(self, loss: Loss) -> Fraction:
        """The ε of the least checkpoint at or above the count, at its share of δ.

        See :mod:`ledger.filters.odometer_checkpoints`.

        Raises:
            ArithmeticError: if a charge is infinite, or no ε is proven.
        """
        return checkpoint_epsilon(
            loss,
            0,
            lambda: self.capacity or count_capacity(self.step, self.epsilon, self.delta),
            lambda count, share: count_epsilon(self.step, count, self.odometer_delta * share),
        )
