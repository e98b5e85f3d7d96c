"""The split of a staged run: by the record alone, so that one record more or less moves no other."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.wire.malformed import Malformed
from trainer_adapter.statistics.held_out import held_out

SHARE = Fraction(3, 10)
A, B = "did:web:h.example/d/a", "did:web:h.example/d/b"


def _archive(**held: Any) -> bytes:  # noqa: ANN401 - arrays
    file = io.BytesIO()
    np.savez(file, **held)
    return file.getvalue()


def _rows(count: int, seed: int = 0) -> dict[str, Any]:
    drawn = np.random.default_rng(seed)
    return {"inputs": drawn.normal(size=(count, 3)).astype(np.float32), "targets": drawn.integers(0, 2, count)}


def test_a_user_with_several_tokens_is_on_one_side() -> None:
    """Of a table that could be joined and is not."""
    tokens = np.random.default_rng(2).integers(0, 256, (300, 32), dtype=np.uint8)
    users = np.arange(300) // 3
    sides = held_out({A: _archive(**_rows(300), join=tokens, users=users)}, SHARE).numpy()
    assert all(len(set(sides[users == user])) == 1 for user in range(100))
    assert 0 < sides.sum() < 300


def _without(held: dict[str, Any], place: int) -> dict[str, Any]:
    return {name: np.delete(one, place, axis=0) for name, one in held.items()}


@given(st.integers(1, 40), st.data(), st.sampled_from(["bytes", "users", "join"]))
def test_a_record_that_is_not_there_moves_no_other(count: int, data: st.DataObject, by: str) -> None:
    """Whatever a record is known by."""
    held = _rows(count)
    if by == "users":
        held["users"] = np.arange(count) // 3
    if by == "join":
        held["join"] = np.random.default_rng(1).integers(0, 256, (count, 32), dtype=np.uint8)
    place = data.draw(st.integers(0, count - 1))
    whole = held_out({A: _archive(**held)}, SHARE)
    fewer = held_out({A: _archive(**_without(held, place))}, SHARE)
    assert fewer.tolist() == [*whole[:place].tolist(), *whole[place + 1 :].tolist()]


def test_a_user_is_on_one_side_and_the_share_is_kept() -> None:
    """Of 20,000 records a share of 0.3 is off by less than seven deviations of 0.0033; two partitions share no user."""
    held = _rows(20_000)
    sides = held_out({A: _archive(**held)}, SHARE).double()
    assert abs(float(sides.mean()) - 0.3) < 7 * 0.0033
    users = held_out({A: _archive(**held, users=np.arange(20_000) // 4)}, SHARE).reshape(-1, 4)
    assert bool((users == users[:, :1]).all())
    both = held_out({ref: _archive(**held, users=np.arange(20_000)) for ref in (A, B)}, SHARE).reshape(2, -1)
    assert 0.3 < float((both[0] != both[1]).double().mean()) < 0.54
    assert not held_out({A: _archive(**held)}, None).any()


def test_what_is_no_table_of_records_is_named() -> None:
    """By what no single record changes."""
    with pytest.raises(Malformed, match="one target for each row"):
        held_out({A: _archive(inputs=np.zeros((3, 1)), targets=np.zeros(2))}, SHARE)
