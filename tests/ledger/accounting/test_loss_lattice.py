"""A law on the lattice has the curve that it was made from, at every point and in both orders of the pair."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ledger.accounting.loss_lattice import SPAN_NAT, LatticeLaw, lattice_laws
from ledger.accounting.pld_mechanisms import repeated
from ledger.mechanisms import mechanism as m

ZERO_OUT = "REPLACE_SPECIAL"
STEP = 1 / 32


def curve_of(law: LatticeLaw, epsilons: np.ndarray) -> np.ndarray:
    """The δ at each ε, loss by loss."""
    losses = STEP * (np.arange(len(law.probabilities)) - law.span)
    paid = -np.expm1(np.minimum(0.0, epsilons[:, None] - losses[None, :]))
    found: np.ndarray = paid @ law.probabilities + law.infinite
    return found


@pytest.mark.parametrize(
    "mechanism",
    [
        m.PoissonGaussian(Fraction(1, 4), Fraction(2), 1),
        m.Laplace(Fraction(2)),
        m.BlackBox(Fraction(1, 100), Fraction(1, 2), ZERO_OUT),
        m.PoissonGaussian(Fraction(1, 2), Fraction(1, 3), 1),
    ],
    ids=lambda one: one.kind,
)
def test_a_law_joins_the_dots_of_its_curve(mechanism: m.Mechanism) -> None:
    """The same δ at each point, of each order; below 0 by that of the other order."""
    distribution = repeated(mechanism, ZERO_OUT, 1, 1e-2)
    points = STEP * np.arange(int(SPAN_NAT / STEP) + 1)
    curves = distribution.curves(points)
    laws = lattice_laws(distribution, STEP)
    assert len(laws) == 2
    for law, above, swapped in zip(laws, (curves[0], curves[-1]), (curves[-1], curves[0]), strict=True):
        assert len(law.probabilities) == 2 * law.span + 1 == 2 * len(points) - 1
        assert law.probabilities.min() >= 0
        assert law.probabilities.sum() + law.infinite == pytest.approx(1, abs=1e-9)
        assert np.abs(curve_of(law, points) - above).max() < 1e-9
        below = 1 - np.exp(-points) * (1 - swapped)
        assert np.abs(curve_of(law, -points) - below).max() < 1e-9


def test_a_loss_beyond_the_lattice_is_infinite() -> None:
    """A probability of it that noise raised above one is one."""
    sure = lattice_laws(repeated(m.Pure(Fraction(60), ZERO_OUT), ZERO_OUT, 1, 1e-2), STEP)
    for law in sure:
        assert 1 - 1e-9 < law.infinite <= 1
        assert law.probabilities.sum() == pytest.approx(0, abs=1e-9)
