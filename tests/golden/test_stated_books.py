"""A book with statements of its state, its snapshot and its account proofs, as an earlier program wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.book.book import Book
from ledger.book.state.account_proof import account_proof
from ledger.state_tree.snapshot_format import read_snapshot, write_snapshot
from ledger.verifier import Balance, LogKey, verify_account
from ledger.wire.records import write
from tests.golden.golden_books import CURRENT, ENGINES, GoldenBook, epsilon, golden_book, open_book, run_alone

NAME: Final = "statements"


@pytest.fixture(params=ENGINES)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GoldenBook]:
    """The book on each engine, upgraded."""
    with golden_book(NAME, request.param, tmp_path) as found:
        epsilon("db", "upgrade", found.book, *found.log)
        yield found


def _last_time(book: GoldenBook) -> int:
    return int(json.loads(book.entries()[-1])["time"])


def _proofs(book: GoldenBook, opened: Book) -> dict[str, bytes]:
    """The proofs of the accounts that were proven, as the opened book makes them."""
    made = {}
    with opened.read() as facts:
        while (stated := opened.stated_tree(facts.size)) is None:
            opened._writer.send(()).result()  # noqa: SLF001 - it looks by itself, a while later
        for name, proof in _kept_proofs(book).items():
            reported: dict[str, Any] = json.loads(proof)
            made[name] = write(account_proof(facts, stated, reported["partition"], reported["holder"], lambda _: True))
    return made


def _kept_proofs(book: GoldenBook) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted((book.folder / "proofs").iterdir())}


@pytest.mark.parametrize("by", ["snapshot", "log"])
def test_it_opens_and_proves_its_accounts_as_before(
    book: GoldenBook, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By its snapshot and by its whole log: nothing is recorded, and each proof has the same bytes."""
    caplog.set_level("INFO", "ledger.book")
    file = book.folder / "book.sqlite.snapshot"
    before = file.read_bytes()
    with closing(open_book(book, _last_time(book), file if by == "snapshot" else None)) as opened:
        assert _proofs(book, opened) == _kept_proofs(book)
        assert opened.compare_rows() is None
    reported = [one for one in caplog.messages if "snapshot" in one]
    assert [one.partition(" of ")[0] for one in reported] == ["opened by the snapshot"] * (by == "snapshot")
    assert len(book.entries()) == len(book.digests)
    assert file.read_bytes() == before


def test_its_snapshot_is_written_as_before(book: GoldenBook) -> None:
    """What is read of it is written with the same bytes."""
    data, log = (book.folder / "book.sqlite.snapshot").read_bytes(), (book.folder / "log.vkey").read_text().strip()
    found = read_snapshot(data, log)
    assert b"".join(write_snapshot(found.log, found.size, found.tree, (found.names,))) == data


def test_its_account_proofs_hold(book: GoldenBook) -> None:
    """For today's verifier, alone; each shows the balance that the rows have, or that there is none."""
    proofs = sorted((book.folder / "proofs").iterdir())
    run_alone(CURRENT, *(("account", one, *book.log) for one in proofs))
    rows: dict[Any, list[Any]] = {}
    for holder, *sums in book.select(
        "SELECT holder, posted, posted_infinite, pending, pending_infinite FROM account ORDER BY coordinate"
    ):
        rows.setdefault(holder, []).append(tuple(sums))
    key = LogKey.parse((book.folder / "log.vkey").read_text().strip())
    found = [verify_account(one.read_text(), key) for one in proofs]
    shown = {one.holder: one.balance for one in found if one.balance is not None}
    assert (len(shown), len(found)) == (2, 3)
    assert shown == {holder: Balance(*zip(*rows[holder], strict=True)) for holder in shown}
