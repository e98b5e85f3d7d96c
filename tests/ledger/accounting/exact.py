"""Independent arithmetic at 60 digits, with which the ledger's integers are compared."""

from fractions import Fraction

import mpmath

_WIDE = mpmath.mp.clone()
_WIDE.dps = 60


def _out(value: object) -> Fraction:
    return Fraction(mpmath.nstr(value, 52))


def sampled_gaussian(probability: Fraction, noise: Fraction, order: int) -> Fraction:
    """Rényi divergence of one Poisson-sampled Gaussian step (Mironov, Talwar, Zhang 2019, Section 3.3)."""
    if probability == 1:
        return Fraction(order) / (2 * noise * noise)
    q = _WIDE.mpf(probability.numerator) / probability.denominator
    variance = (_WIDE.mpf(noise.numerator) / noise.denominator) ** 2
    terms = (
        _WIDE.binomial(order, k) * (1 - q) ** (order - k) * q**k * _WIDE.exp(k * (k - 1) / (2 * variance))
        for k in range(order + 1)
    )
    return _out(_WIDE.log(_WIDE.fsum(terms)) / (order - 1))


def capacity(order: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """B(α; ε, δ) = ε - log(1 - 1/α) + log(δ·α)/(α - 1) (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    share = _WIDE.mpf(delta.numerator) / delta.denominator * order
    keep = _WIDE.log(1 - _WIDE.mpf(1) / order)
    return epsilon + _out(_WIDE.log(share) / (order - 1) - keep)


def divergence(order: int, pairs: tuple[tuple[Fraction, Fraction], ...]) -> Fraction | None:
    """D_α(P‖Q) of two finite distributions; None where it is infinite."""
    if any(p > 0 and q == 0 for p, q in pairs):
        return None
    terms = (
        (_WIDE.mpf(p.numerator) / p.denominator) ** order * (_WIDE.mpf(q.numerator) / q.denominator) ** (1 - order)
        for p, q in pairs
        if q
    )
    return max(Fraction(0), _out(_WIDE.log(_WIDE.fsum(terms)) / (order - 1)))
