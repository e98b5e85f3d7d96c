"""The kinds of steps that a catalogue lists, and the potential that follows from their prices in ticks."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

from ledger.accounting.gaussian_certificates import exact_square
from ledger.accounting.pld import GridTooLarge
from ledger.accounting.pld_mechanisms import compose
from ledger.mechanisms.loss import Segment
from ledger.mechanisms.mechanism import NOISE_MAX, NOISE_MIN, STEPS_MAX, Gaussian, Mechanism, PoissonGaussian, Pure
from ledger.mechanisms.price_proofs import ZERO_OUT, NotPriced
from ledger.wire.exact_numbers import NAT
from ledger.wire.field_types import Positive, between
from ledger.wire.records import Record

if TYPE_CHECKING:
    from ledger.accounting.loss_potential import Laws, Potential

TYPES_MAX: Final = 8
PRICE_MAX: Final = 64
"""Ticks of one block."""
_PLACES: Final = 10**6
INTERVAL: Final = 1e-4
"""The grid on which the steps of a block are composed, in nats."""


class StepType(Record, frozen=True):
    """A kind of step that a partition is for: a Poisson-sampled Gaussian, charged in blocks.

    Attributes:
        steps: of one block; a block that has begun is charged whole.
        ticks: the price of one block.
    """

    noise_multiplier: Fraction
    probability: Positive
    steps: Annotated[int, between(1, STEPS_MAX)]
    ticks: Annotated[int, between(1, PRICE_MAX)]

    def __post_init__(self) -> None:
        """Check the step against the bounds of a mechanism. Raises: Malformed."""
        super().__post_init__()
        _ = self.block

    @property
    def block(self) -> PoissonGaussian:
        """All steps of one block."""
        return PoissonGaussian(self.probability, self.noise_multiplier, self.steps)

    def dominates(self, step: PoissonGaussian) -> bool:
        """Whether a step is at most one of this type: sampled as rarely, with as much noise."""
        return step.probability <= self.probability and step.noise_multiplier >= self.noise_multiplier

    def segment(self, count: int) -> Segment:
        """The price of ``count`` steps."""
        return Segment(count, (self.ticks, 0), min(count, self.steps))


def as_sampled(step: Mechanism) -> PoissonGaussian | None:
    """A step as a sampled Gaussian step; None if it is another mechanism."""
    if isinstance(step, Gaussian):
        return PoissonGaussian(Fraction(1), step.noise_multiplier, 1)
    return step if isinstance(step, PoissonGaussian) else None


def dominating(step: Mechanism) -> PoissonGaussian | None:
    """The sampled Gaussian step that a step is, or is a post-processing of; None if none is known.

    An ε-DP step is a post-processing of randomised response (Kairouz, Oh, Viswanath 2015, Theorem 2.1), and that of the
    Gaussian of the same total variation: on which side of the middle its output lies (Dong, Roth, Su 2022).
    """
    if not isinstance(step, Pure):
        return as_sampled(step)
    square = exact_square(step, step.relation)
    assert square
    # Rounded down: less noise dominates.
    noise = Fraction(math.isqrt(_PLACES**2 * NAT // square), _PLACES)
    return PoissonGaussian(Fraction(1), min(noise, NOISE_MAX), 1) if noise >= NOISE_MIN else None


@lru_cache(maxsize=4)
def potential(epsilon: Fraction, delta: Fraction, types: tuple[StepType, ...], coarser: int = 1) -> Potential:
    """The potential of a catalogue, computed as far as needed; ``coarser`` ones are for searches. Raises: NotPriced."""
    from ledger.accounting.loss_potential import Potential

    blocks = [(laws_of(step_type.block, ZERO_OUT, epsilon, coarser), step_type.ticks) for step_type in types]
    return Potential(epsilon, delta, blocks, coarser)


@lru_cache(maxsize=32)
def laws_of(mechanism: Mechanism, relation: str, epsilon: Fraction, coarser: int = 1) -> Laws:
    """Its laws of loss, on the lattice of a budget. Raises: NotPriced."""
    from ledger.accounting.loss_lattice import lattice_laws
    from ledger.accounting.loss_potential import lattice_step

    try:
        return lattice_laws(compose(mechanism, relation, INTERVAL), lattice_step(epsilon, coarser))
    except GridTooLarge as error:
        raise NotPriced(f"{mechanism.kind}: {error}") from None
