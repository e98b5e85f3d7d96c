"""The Rényi divergence that a group sees (Mironov 2017, Proposition 2): 3^c of that at 2^c times the order."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ledger.accounting.renyi import divergence
from ledger.mechanisms.mechanism import Mechanism, SampledWithoutReplacement, Zcdp

RELATION = {"sampled": "REPLACE_ONE", "zcdp": "REPLACE_SPECIAL"}


@pytest.mark.parametrize(("k", "doublings"), [(2, 1), (3, 2), (4, 2), (5, 3)])
@pytest.mark.parametrize("kind", ["sampled", "zcdp"])
def test_a_group_is_reached_by_doublings(kind: str, k: int, doublings: int) -> None:
    """Per step, times the number of steps."""
    one: Mechanism
    if kind == "sampled":
        one = SampledWithoutReplacement(Fraction(4), 1_000, 10, 1)
        whole: Mechanism = SampledWithoutReplacement(Fraction(4), 1_000, 10, 7)
        steps = 7
    else:
        one = whole = Zcdp(RELATION[kind], rho=Fraction(1, 50), xi=Fraction(1, 100))
        steps = 1
    alone = divergence(one, RELATION[kind], 2 << doublings)
    assert alone is not None
    assert divergence(whole, RELATION[kind], 2, k) == steps * 3**doublings * alone
