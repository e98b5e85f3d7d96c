"""Where the snapshot of a state lies, and which state has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.book.state import snapshot_file
from ledger.book.state.snapshot_file import SnapshotFile, snapshot_path
from ledger.book.state.state_statements import StatedTree
from ledger.state_tree.sparse_tree import SparseTree
from tests.factories.people import LOG


def test_where_a_snapshot_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside an SQLite book; else in the user's state folder, one file a log."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert snapshot_path("sqlite:///folder/book.sqlite", LOG) == Path("folder/book.sqlite.snapshot")
    found = snapshot_path("postgresql://writer@host/book", LOG)
    assert (found.parent, len(found.name)) == (tmp_path / "epsilon-ledger" / "snapshots", 64)


def test_a_state_that_is_too_large_has_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The old file stays."""
    file = tmp_path / "book.snapshot"
    monkeypatch.setattr(snapshot_file, "EVERY_CLOSING", 1)
    monkeypatch.setattr(snapshot_file, "SNAPSHOT_BYTES_MAX", 500)
    writer = SnapshotFile(file, LOG)
    writer.close(StatedTree(2, 1, SparseTree(), (b"17 bytes of names" * 40,)))
    assert not file.exists()
    assert "more than 500 bytes" in caplog.text
