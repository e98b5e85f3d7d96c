"""Rényi divergences that have a closed form, at integer orders, to 60 digits and rounded up.

Each takes an order α ≥ 2 and gives an upper bound on max(D_α(P‖Q), D_α(Q‖P)) in nats, exact where it is rational
and less than 2^-59 nat above the exact value where not. ``scale`` is 2 where one record is replaced, and so moves a
sum twice as far, else 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, repeat
from math import comb

from ledger.wire.exact_numbers import NAT

WIDE = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
_GRID = 1 << 60


def decimal(number: Fraction) -> Decimal:
    """A rational to 60 digits."""
    return WIDE.divide(Decimal(number.numerator), Decimal(number.denominator))


def round_up(value: Decimal) -> Fraction:
    """A multiple of 2^-60 above a value whose 60 digits may each have been rounded; never less than 0."""
    units = WIDE.multiply(value, Decimal(_GRID)).to_integral_value(ROUND_CEILING)
    return max(Fraction(0), Fraction(int(units) + 1, _GRID))


def log_sum(terms: Iterable[tuple[Fraction | Decimal, Fraction]]) -> Decimal:
    """The log of Σ w·e^x over pairs (w, x) with w > 0."""
    pairs = [(w if isinstance(w, Decimal) else decimal(w), exponent) for w, exponent in terms if w > 0]
    top = max(exponent for _, exponent in pairs)
    total = Decimal(0)
    for weight, exponent in pairs:
        total = WIDE.add(total, WIDE.multiply(weight, WIDE.exp(decimal(exponent - top))))
    return WIDE.add(decimal(top), WIDE.ln(total))


def over(value: Decimal, divisor: int) -> Decimal:
    """A value divided by an integer."""
    return WIDE.divide(value, Decimal(divisor))


def gaussian(noise: Fraction, scale: int, order: int) -> Fraction:
    """α·s²/(2σ²) (Mironov 2017, Proposition 7); the discrete Gaussian has no more (CKS 2020, Proposition 5)."""
    return Fraction(order * scale * scale) / (2 * noise * noise)


def laplace(noise: Fraction, scale: int, order: int) -> Fraction:
    """log(α/(2α-1)·e^((α-1)/b) + (α-1)/(2α-1)·e^(-α/b))/(α-1) (Mironov 2017, Proposition 6)."""
    distance, both = Fraction(scale) / noise, 2 * order - 1
    terms = ((Fraction(order, both), (order - 1) * distance), (Fraction(order - 1, both), -order * distance))
    return round_up(over(log_sum(terms), order - 1))


def pure(epsilon: Fraction, order: int) -> Fraction:
    """ε - log((1 + e^-ε)/(1 + e^-(2α-1)ε))/(α-1): randomised response, which dominates all that is ε-DP."""
    one = Fraction(1)
    below, above = log_sum(((one, Fraction(0)), (one, -epsilon))), (one, -(2 * order - 1) * epsilon)
    gain = WIDE.subtract(below, log_sum(((one, Fraction(0)), above)))
    return min(epsilon, round_up(WIDE.subtract(decimal(epsilon), over(gain, order - 1))))


def response(buckets: int, noise: Fraction, order: int, *, replaced: bool) -> Fraction:
    """k-ary randomised response, from its output laws: a record's true answer is replaced, or left out.

    With a = 1 - p + p/k and b = p/k: replaced, two buckets swap a and b; left out, every bucket has 1/k.
    """
    low, even = noise / buckets, Fraction(1, buckets)
    high = 1 - noise + low
    if replaced:
        return _divergence(((high, low, 1), (low, high, 1), (low, low, buckets - 2)), order)
    laws = ((high, even, 1), (low, even, buckets - 1))
    return max(_divergence(laws, order), _divergence(tuple((q, p, times) for p, q, times in laws), order))


def _divergence(laws: tuple[tuple[Fraction, Fraction, int], ...], order: int) -> Fraction:
    """D_α(P‖Q) of outputs with probabilities p and q, each with its count."""
    total = sum((times * p**order / q ** (order - 1) for p, q, times in laws), Fraction(0))
    return round_up(over(WIDE.ln(decimal(total)), order - 1))


def zcdp(rho: Fraction, xi: Fraction, order: int) -> Fraction:
    """ξ + ρ·α (Bun, Steinke 2016, Definition 8.1)."""
    return xi + rho * order


def without_replacement(noise: Fraction, population: int, sample: int, order: int) -> Fraction:
    """A Gaussian sum of sensitivity 2 over a subset drawn without replacement (WBK 2019, Theorem 9).

    log(1 + C(α,2)·γ²·min(4(e^ε(2) - 1), 2e^ε(2)) + Σ_{j≥3} C(α,j)·γ^j·2e^((j-1)ε(j)))/(α-1), ε(j) = 2j/σ².
    """
    inner = [2 * Fraction(j) / (noise * noise) for j in range(order + 1)]
    if sample == population:
        return inner[order]
    ratio = Fraction(sample, population)
    powers = accumulate(repeat(decimal(ratio), order), WIDE.multiply)
    # e^ε - 1 = e^ε·(1 - e^-ε), and 1 - e^-ε <= ε.
    pair = comb(order, 2) * ratio**2 * min(Fraction(2), 4 * inner[2])
    weights = [WIDE.multiply(Decimal(2 * comb(order, j)), power) for j, power in enumerate(powers, 1)]
    more = [(weights[j - 1], (j - 1) * inner[j]) for j in range(3, order + 1)]
    terms: list[tuple[Fraction | Decimal, Fraction]] = [(Fraction(1), Fraction(0)), (pair, inner[2]), *more]
    return min(round_up(over(log_sum(terms), order - 1)), inner[order])


def sampled_group(noise: Fraction, probability: Fraction, k: int, order: int) -> Fraction:
    """A Gaussian sum of which each of k records is a part with a probability of its own.

    The moment e^((α-1)·D_α) is jointly convex in both laws, so it is at most its mean over how many were drawn:
    log Σ_j C(k,j)·q^j·(1-q)^(k-j)·e^(α(α-1)j²/(2σ²))/(α-1), for both orders of the pair.
    """
    q, wide = probability, Fraction(order * (order - 1)) / (2 * noise * noise)
    terms = [(comb(k, j) * q**j * (1 - q) ** (k - j), j * j * wide) for j in range(k + 1)]
    return round_up(over(log_sum(terms), order - 1))


def delta_of_group(epsilon: Fraction, delta: Fraction, k: int) -> Fraction:
    """δ·(e^(kε) - 1)/(e^ε - 1) of a group of k, at most 1 (Vadhan 2017, Lemma 2.2)."""
    terms = WIDE.exp(log_sum([(Fraction(1), j * epsilon) for j in range(k)]))
    return min(Fraction(1), delta if k == 1 else round_up(WIDE.multiply(decimal(delta), terms)))


@lru_cache(maxsize=65_536)
def conversion(order: int, delta: Fraction) -> Fraction:
    """log(1 - 1/α) - log(δ·α)/(α - 1) negated: what B(α; ε, δ) adds to ε, rounded down by at most two units of 2^-40.

    B(α; ε, δ) = ε - log(1 - 1/α) + log(δ·α)/(α - 1) (Canonne, Kamath, Steinke 2020, Proposition 12).
    """
    keep = WIDE.ln(decimal(Fraction(order - 1, order)))
    spend = WIDE.ln(decimal(delta * order))
    exact = WIDE.subtract(over(spend, order - 1), keep)
    units = WIDE.multiply(exact, Decimal(NAT)).to_integral_value(ROUND_FLOOR)
    return Fraction(int(units) - 1, NAT)
