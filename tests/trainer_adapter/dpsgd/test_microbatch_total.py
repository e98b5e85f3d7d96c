"""The sum over microbatches, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.microbatch_total import COMPENSATED_ROUNDINGS, MicrobatchTotal, is_compensated

UNIT = Fraction(1, 1 << 53)
NUMBERS = st.floats(min_value=-1e6, max_value=1e6, allow_subnormal=False)


def error_of(parts: list[float], *, compensated: bool) -> Fraction:
    """How far a sum is off, in roundings of the sum of magnitudes."""
    total = MicrobatchTotal(compensated=compensated)
    for one in parts:
        total.add(torch.tensor([one], dtype=torch.float64))
    assert total.value is not None
    off = abs(Fraction(total.value.item()) - sum(map(Fraction, parts)))
    return off / (sum(abs(Fraction(one)) for one in parts) * UNIT)


@given(st.lists(NUMBERS, min_size=2, max_size=60).filter(any))
def test_a_compensated_sum_stays_below_its_bound(parts: list[float]) -> None:
    """Of any numbers, those that cancel included."""
    assert error_of(parts, compensated=True) <= COMPENSATED_ROUNDINGS


def test_small_terms_are_not_lost() -> None:
    """Thousands that are each below half a rounding of the first: a plain sum drops every one."""
    parts = [1.0] + [float(UNIT)] * 4_000
    assert error_of(parts, compensated=False) > 1_000
    assert error_of(parts, compensated=True) <= COMPENSATED_ROUNDINGS


@pytest.mark.parametrize("compensated", [False, True])
def test_one_vector_stays_as_it_is_and_more_are_summed_in_float64(*, compensated: bool) -> None:
    """In float32 no bit would be gained by widening one vector; of two, the wider sum is exact."""
    total = MicrobatchTotal(compensated=compensated)
    assert total.value is None
    total.add(torch.tensor([1.0]))
    assert total.value is not None
    assert total.value.dtype == torch.float32
    total.add(torch.tensor([2.0**-40]))
    assert total.value.dtype == torch.float64
    assert total.value.item() == 1 + 2.0**-40


def engine_of(records: int, microbatch: int) -> Engine:
    """Of so many records, all of them one place in memory."""
    places = torch.ones(1, 2).expand(records, 2), torch.zeros(1, dtype=torch.long).expand(records)
    plan = Plan(Fraction(1, records), Fraction(1), Fraction(1), 10, 1)
    return Engine(plan, nn.Linear(2, 2), cross_entropy, places, microbatch, precision="float64")


@pytest.mark.parametrize(("records", "compensated"), [(1_000_000, False), (10_000_000, True)])
def test_a_plain_sum_is_taken_where_it_rounds_seldom(records: int, *, compensated: bool) -> None:
    """Of ten million records a plain sum would round too often at any microbatch."""
    assert is_compensated(records, 64) is compensated
    assert not any(is_compensated(100_000, places) for places in (1, 64, 1_000))
    assert all(is_compensated(10_000_000, places) for places in (16, 64, 512, 1_024))


def test_ten_million_records_are_summed() -> None:
    """Of a draw of several microbatches: as many times the clipped gradient of one."""
    engine = engine_of(10_000_000, 64)
    one = engine.clipped_sum(engine.microbatches(np.arange(1)))
    many = engine.clipped_sum(engine.microbatches(np.arange(1_000)))
    assert torch.allclose(many, 1_000 * one, rtol=1e-15)
    assert float(one.norm()) > 0


def test_a_microbatch_that_rounds_too_often_by_itself_is_refused() -> None:
    """Of so many records, with the field and the rule."""
    with pytest.raises(Malformed, match=r"^microbatch: is too large for 10000000 records: sums would round too often$"):
        engine_of(10_000_000, 2_048)
