"""The budget of one slice of a stream whose persons may each be in several slices.

A run over several slices draws one noise for all of them. So the loss of a person in m slices is not the sum of m
separate losses: it is that of m neighbouring steps, D0, D1, ..., Dm, of which the i-th changes the person's records in
the i-th slice alone. The rule of that slice bounds each step: whatever all runs together show, and however each run
was chosen after the others, the two sides are (e, d)-indistinguishable with the budget (e, d) of one slice. So, for
every event S,

    P[D0 in S] <= exp(e) P[D1 in S] + d <= ... <= exp(m e) P[Dm in S] + d (1 + exp(e) + ... + exp((m - 1) e))

which is group privacy (Dwork and Roth 2014, theorem 2.2; Vadhan 2017, lemma 2.2) with its sum unchanged. With
``e = ε/m`` and ``d = δ / (1 + exp(e) + ... + exp((m - 1) e))`` the person's loss is within (ε, δ). Parts of ``δ/m`` do
not suffice: a test has the run over two slices that shows more. The only requirement on the rule is that it keeps its
own budget, and it does not matter which slices a run covers.

All of this concerns the unit that a slice's rule protects. Where the privacy unit is a record, a step changes one
record of the person in a slice, and (ε, δ) is of a person with at most one record in each; of one with several, more
may be shown.

A person may be in slices of versions of a stream whose budgets differ, all of the same m. Its loss is within the
greatest ε and the greatest δ of these versions. The steps may come in any order: take the least ε first. The epsilons
add up to at most the greatest. If δ is the greatest, step i has at most δ h(e_i) with h(x) = 1 / (1 + exp(x) + ... +
exp((m - 1) x)), and the sum is at most δ times

    F = h(e_1) + exp(e_1) h(e_2) + ... + exp(e_1 + ... + e_(m-1)) h(e_m)

Lower the last k of the e_i, which are equal to y, to the one before them: F does not fall, since h(y) (1 + exp(y) +
... + exp((k - 1) y)) falls with rising y. At the end all are equal, and F = 1.

A cap on what one person may lose to a lineage, a coalition or one run is kept in the same way: an account of each slice
is within a part ``p = C/m`` of the cap C, and within the slice's own ε if that is less, at the slice's own δ. So the
person's loss is within C, at the δ of the stream's budget, since no step is above the slice's own ε. A document that
also states the greatest δ of that loss, D, is kept by slices whose δ is at most ``D / (1 + exp(p) + ... + exp((m - 1)
p))``, with the lesser of the part and the slice's ε for p.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ledger.wire.exact_numbers import PART_DIGITS, equal_part, floor_digits

_EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)


def slice_budget(epsilon: Fraction, delta: Fraction, slices: int) -> tuple[Fraction, Fraction]:
    """ε and δ of each slice, so that a person in ``slices`` slices is within (ε, δ); rounded down, six digits."""
    if slices == 1:
        return epsilon, delta
    part = equal_part(epsilon, slices)
    return part, slice_delta(part, delta, slices)


def slice_delta(part: Fraction, delta: Fraction, slices: int) -> Fraction:
    """δ of each of ``slices`` slices of this ε, so that together they are within δ; rounded down, six digits."""
    return delta if slices == 1 else floor_digits(delta / _growth(part, slices), PART_DIGITS)


@lru_cache(maxsize=256)
def _growth(part: Fraction, slices: int) -> Fraction:
    """A number above 1 + exp(part) + ... + exp((slices - 1) part)."""
    return sum((_exp_above(part * place) for place in range(slices)), Fraction(0))


def _exp_above(exponent: Fraction) -> Fraction:
    """A number above the exponential of a fraction that is a decimal of few digits."""
    power = _EXACT.exp(_EXACT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator)))
    # The exponent has fewer digits than the context and is exact; the power is the nearest one, so the next is above.
    return Fraction(_EXACT.next_plus(power))
