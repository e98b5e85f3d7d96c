"""Commitments beyond what memory holds: the same documents as of one sorted set, and each record once."""

from __future__ import annotations

import hashlib
import hmac
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.dataset_files import record_commitments
from client.dataset_files.record_commitments import MAGIC, RecordCommitments
from ledger.wire.malformed import Malformed

KEY = bytes(range(32))


def _expected(names: list[bytes], per_document: int) -> list[bytes]:
    """By a set and a sort, in memory."""
    head = MAGIC + hashlib.sha256(hmac.digest(KEY, b"", "sha256")).digest()
    ordered = sorted({hmac.digest(KEY, name, "sha256") for name in names})
    starts = range(0, len(ordered), per_document)
    return [head + b"".join(ordered[start : start + per_document]) for start in starts]


@given(
    batches=st.lists(st.lists(st.integers(0, 60).map(lambda one: b"%d" % one), max_size=9), max_size=12),
    run=st.integers(1, 9),
    per_document=st.integers(1, 30),
)
def test_runs_on_disk_make_the_same_documents(batches: list[list[bytes]], run: int, per_document: int) -> None:
    """Whatever came twice, in one run or in several, and however often runs were merged on the way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_commitments, "RUN_RECORDS", run)
        patch.setattr(record_commitments, "PER_DOCUMENT", per_document)
        patch.setattr(record_commitments, "COMMITTED_MAX", 61)
        with closing(RecordCommitments(KEY)) as made:
            for batch in batches:
                made.add(batch)
            names = [name for batch in batches for name in batch]
            assert [*made.documents()] == _expected(names, per_document)
            assert made.count == len(set(names))


def test_too_many_are_refused_and_repeated_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Early where they cannot fit; by their number, not by how often they came. No file is left."""
    monkeypatch.setattr(record_commitments, "RUN_RECORDS", 4)
    monkeypatch.setattr(record_commitments, "COMMITTED_MAX", 8)
    with closing(RecordCommitments(KEY, folder=tmp_path)) as made:
        for _ in range(20):
            made.add(b"%d" % one for one in range(8))
        assert len([*made.documents()]) == 1
        made.add([b"8"])
        with pytest.raises(Malformed, match="are more than 8, which one partition can name"):
            [*made.documents()]
    with closing(RecordCommitments(KEY, folder=tmp_path)) as made:
        for start in range(0, 16, 4):
            made.add(b"%d" % one for one in range(start, start + 4))
        with pytest.raises(Malformed, match="are more than 8"):
            made.add(b"%d" % one for one in range(16, 20))
    assert not [*tmp_path.iterdir()]
