"""Chunks: a record's is its own affair, whatever other records there are."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.chunks import Chunks, chunks_of

KEY, REF, TEACHERS = bytes(range(32)), "did:web:h.example/d/p", 7
Pair = tuple[Tensor, Tensor]


def _records(count: int = 200) -> Pair:
    source = torch.Generator().manual_seed(3)
    return torch.rand((count, 5), generator=source), torch.randint(0, 3, (count,), generator=source)


def _chunks(records: Pair, by: str, users: Chunks | None = None) -> list[int]:
    return [int(one) for one in chunks_of(KEY, REF, by, TEACHERS, records, users)]


def _without(records: Pair, place: int) -> Pair:
    kept = torch.arange(len(records[0])) != place
    return records[0][kept], records[1][kept]


def test_a_record_that_is_replaced_keeps_its_place_and_its_chunk() -> None:
    """By position all stay; by content all others do."""
    records, changed = _records(), _records()
    changed[0][50] = 9.0
    assert _chunks(records, "position") == _chunks(changed, "position")
    before, after = _chunks(records, "content"), _chunks(changed, "content")
    assert [one for place, one in enumerate(before) if place != 50] == [
        one for place, one in enumerate(after) if place != 50
    ]


def test_a_record_less_moves_no_other_by_content_or_user() -> None:
    """By position it would: a plan under that relation is refused."""
    records, users = _records(), np.arange(200) // 3
    for by, held in (("content", None), ("user", users)):
        whole = _chunks(records, by, held)
        left = _chunks(_without(records, 50), by, None if held is None else np.delete(held, 50))
        assert left == whole[:50] + whole[51:]
    moved = _chunks(_without(records, 50), "position")
    assert moved != _chunks(records, "position")[:50] + _chunks(records, "position")[51:]


def test_a_user_is_in_one_chunk_whoever_else_is_there() -> None:
    """Even where all other users go, and so their numbers are no longer 0, 1, 2."""
    records, users = _records(), np.arange(200) % 40 - 7
    whole = dict(zip(users.tolist(), _chunks(records, "user", users), strict=True))
    assert _chunks(records, "user", users) == [whole[one] for one in users.tolist()]
    alone = users == 12
    kept = torch.from_numpy(alone)
    assert set(_chunks((records[0][kept], records[1][kept]), "user", users[alone])) == {whole[12]}
    with pytest.raises(Malformed, match="one integer for each of 200 records"):
        _chunks(records, "user", users[1:])


def test_chunks_depend_on_key_and_partition_and_are_about_even() -> None:
    """Of 7,000 records each chunk has 1,000 within 7 deviations."""
    records = _records(7_000)
    one = chunks_of(KEY, REF, "position", TEACHERS, records, None)
    for key, ref in ((bytes(32), REF), (KEY, f"{REF}2")):
        other = chunks_of(key, ref, "position", TEACHERS, records, None)
        assert 0.75 < float((one != other).mean()) < 0.95
    assert np.abs(np.bincount(one, minlength=TEACHERS) - 1_000).max() < 7 * 30
