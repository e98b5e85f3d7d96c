"""The types of a catalogue: what may be one, and which of them covers another mechanism."""

from fractions import Fraction

import pytest

from ledger.filters.step_types import StepType, dominating
from ledger.mechanisms.mechanism import NOISE_MIN, PoissonGaussian, Pure
from ledger.wire.malformed import Malformed

RELATION = "REPLACE_SPECIAL"


@pytest.mark.parametrize(("noise", "probability"), [(NOISE_MIN / 2, Fraction(1, 2)), (Fraction(1), Fraction(3, 2))])
def test_a_type_is_a_mechanism(noise: Fraction, probability: Fraction) -> None:
    """With the least noise of one, and no probability above 1."""
    with pytest.raises(Malformed):
        StepType(noise, probability, 1, 1)
    assert StepType(max(noise, NOISE_MIN), min(probability, Fraction(1)), 1, 1).block.steps == 1


def test_a_pure_loss_is_covered_by_a_gaussian_step_with_no_more_noise() -> None:
    """Of the same total variation; a sampled step by itself."""
    found = dominating(Pure(Fraction(1), RELATION))
    assert found is not None
    assert found.probability == found.steps == 1
    # Φ(1/(2σ)) - Φ(-1/(2σ)) = (e - 1)/(e + 1) = 0.46212 at σ = 0.8115
    assert found.noise_multiplier == pytest.approx(0.8115, abs=5e-4)
    assert dominating(PoissonGaussian(Fraction(1, 2), Fraction(1), 3)) == PoissonGaussian(
        Fraction(1, 2), Fraction(1), 3
    )
