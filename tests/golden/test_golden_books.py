"""Books that an earlier program made: today's program reads, verifies, exports, restores and continues them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from client.keys.signer import Signer
from ledger.book.book import Submission
from tests.golden.golden_books import (
    BOOKS,
    COMPLETE,
    CURRENT,
    ENGINES,
    FIRST,
    ON_ENGINES,
    GoldenBook,
    empty_postgresql,
    epsilon,
    golden_book,
    open_book,
    private_key,
    run_alone,
    sha256,
    unpack,
)

BANKS: Final = ("did:web:bank-a.example", *(f"golden {number}" for number in range(20)))
"""The names that the keys of organisations who charge are derived from."""
PLAN: Final = {
    "batch_size_expected": 64,
    "clipping_norm": "1",
    "kind": "dp_sgd",
    "noise_multiplier": "32",
    "sampler": {"kind": "poisson", "probability": "0.0625"},
    "steps": 2,
    "v": 1,
}


def _by_turns(name: str, engine: str) -> Any:  # noqa: ANN401 - pytest's parameter
    """One engine of each complete book in every run of the tests, by turns, and the other one in the soak."""
    first = ENGINES[COMPLETE.index(name) % 2] if name in COMPLETE else engine
    marks = () if engine == first else (pytest.mark.soak,)
    return pytest.param((name, engine), id=f"{name}-{engine}", marks=marks)


BY_TURNS: Final = [_by_turns(*one) for one in ON_ENGINES]


@pytest.fixture(params=ON_ENGINES, ids="-".join)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GoldenBook]:
    """Each golden book on each engine that it is there for."""
    name, engine = request.param
    with golden_book(name, engine, tmp_path) as found:
        yield found


def verify(book: GoldenBook, *options: object) -> dict[str, Any]:
    """What ``epsilon verify`` reports."""
    report: dict[str, Any] = json.loads(epsilon("verify", book.book, *book.log, *options, "--json"))
    return report


def test_a_golden_book_verifies(book: GoldenBook) -> None:
    """Every entry is decided again with the same outcome, every row is what the entries make of it."""
    kept = [part for name in ("checkpoint", "checkpoint-early") for part in ("--kept", book.folder / name)]
    report = verify(book, *kept)
    not_run = report.pop("integrity_check_not_run", "")
    assert report == json.loads((book.folder / "verified.json").read_text())
    assert bool(not_run) == ("sqlite" not in book.url)


def test_entries_are_the_same_bytes(book: GoldenBook) -> None:
    """As they are stored, and as the program writes what it has read."""
    assert [sha256(data) for data in book.entries()] == book.digests
    printed = epsilon("log", book.book, "--json").splitlines()
    assert [sha256(line.encode()) for line in printed] == book.digests


@pytest.mark.parametrize("book", BY_TURNS, indirect=True)
def test_a_golden_book_continues(book: GoldenBook, tmp_path: Path) -> None:
    """Upgraded, it records one more charge; the earlier verifier checks its receipt, today's program the whole book."""
    epsilon("db", "upgrade", book.book, *book.log)
    entries = [json.loads(data) for data in book.entries()]
    size, now = len(entries), int(entries[-1]["time"])
    raw, signature = _charge(entries, now)
    with closing(open_book(book, now + 1)) as opened:
        (outcome,) = opened.submit([Submission(raw, signature)])
        with opened.read() as facts:
            grown = facts.size
    assert outcome.index is not None
    assert size <= outcome.index < grown
    assert outcome.code.word in {"pending", "budget_exhausted", "not_priced", "policy_denied"}
    assert verify(book, "--kept", book.folder / "checkpoint")["entries"] == grown
    epsilon("receipt", book.book, "golden-1", tmp_path / "new")
    name = tmp_path / "new" / str(outcome.index)
    epsilon("publish", book.book, tmp_path / "published", *book.log)
    receipt = ("receipt", f"{name}.tlog-proof", f"{name}.entry", *book.log)
    run_alone(FIRST, receipt, ("tiles", tmp_path / "published", *book.log, "--kept", book.folder / "checkpoint"))


@pytest.mark.parametrize("name", BOOKS)
def test_receipts_hold_for_both_verifiers(name: str, tmp_path: Path) -> None:
    """What the earlier program gave out proves its entry to today's verifier and to its own."""
    folder = unpack(name, tmp_path)
    receipts = sorted((folder / "receipts").glob("*.receipt"))
    assert receipts
    for verifier in (CURRENT, FIRST):
        log = "--log", folder / "log.vkey"
        run_alone(verifier, *(("receipt", one, one.with_suffix(".entry"), *log) for one in receipts))


@pytest.mark.parametrize("complete", [_by_turns(name, engine) for name in COMPLETE for engine in ENGINES])
def test_a_golden_backup_is_restored(complete: tuple[str, str], tmp_path: Path) -> None:
    """On either engine; backed up again, the archive holds the same bytes, documents included."""
    name, engine = complete
    folder = unpack(name, tmp_path)
    log, kept = ("--log", folder / "log.vkey"), ("--kept", folder / "checkpoint")
    if engine == "sqlite":
        target = str(tmp_path / "restored.sqlite")
        epsilon("db", "restore", folder / "backup.zip", target, *log, *kept)
        epsilon("db", "backup", target, tmp_path / "again.zip", *log)
    else:
        with empty_postgresql() as (target, _, _):
            epsilon("db", "restore", folder / "backup.zip", target, *log, *kept)
            epsilon("db", "backup", target, tmp_path / "again.zip", *log)
    assert _members(tmp_path / "again.zip") == _members(folder / "backup.zip")


@pytest.mark.parametrize(("name", "engine"), [one for one in ON_ENGINES if one[0] in COMPLETE], ids="-".join)
def test_a_golden_book_is_published_and_backed_up_as_before(name: str, engine: str, tmp_path: Path) -> None:
    """The same files with the same bytes, in a new folder and over the earlier one; the same archive."""
    with golden_book(name, engine, tmp_path / "golden") as book:
        before = _files(book.folder / "tiles")
        assert len(before) > 1
        epsilon("publish", book.book, tmp_path / "tiles", *book.log)
        assert _files(tmp_path / "tiles") == before
        epsilon("publish", book.book, book.folder / "tiles", *book.log)
        assert _files(book.folder / "tiles") == before
        epsilon("db", "backup", book.book, tmp_path / "again.zip", *book.log)
        assert _members(tmp_path / "again.zip") == _members(book.folder / "backup.zip")
    run_alone(CURRENT, ("tiles", tmp_path / "tiles", *book.log))


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _charge(entries: list[dict[str, Any]], now: int) -> tuple[bytes, str]:
    """The bytes of a small charge under a contract of a bank whose key the tests have, and the bank's signature."""
    signers = {signer.key_id: signer for signer in (Signer(private_key(name)) for name in BANKS)}
    permitted = [one for one in entries if one["body"]["outcome"] == "permitted"]
    contract = next(one for one in permitted if one["kind"] == "contract" and one["key_id"] in signers)
    opened = next(one["body"]["request"] for one in permitted if one["kind"] == "partition")
    signer, sealing = signers[contract["key_id"]], {"crv": "X25519", "kty": "OKP", "x": f"{'C' * 42}A"}
    body = {
        "clean_room": {"sealing": sealing, "signing": Signer(private_key("golden clean room")).jwk},
        "contract": contract["body"]["request"]["document"],
        "deadline": now + 3_600_000,
        "partitions": [f"{opened['provider']}/{opened['dataset']}/{opened['partition']}"],
        "plan": PLAN,
    }
    command = {"actor": contract["actor"], "body": body, "id": "golden-1", "key_id": signer.key_id, "kind": "charge"}
    raw = json.dumps({**command, "v": 1}, separators=(",", ":"), sort_keys=True).encode()
    return raw, signer.sign(raw)
