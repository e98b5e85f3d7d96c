"""A small world around a book on disk: the real gate, keys that are the same in every process, no service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sqlalchemy import select

import migrations
from client.keys.signer import Signer
from ledger.book.book import Book, Outcome, Submission
from ledger.domain.command import Command
from ledger.domain.facts import Facts
from ledger.store.engine import engine_of, url_of
from ledger.store.tables import metadata
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import NONCE, NOW, PARTITION, attestation, contract, dataset, partition, plan, policy
from tests.factories.driver import FactsDriver
from tests.factories.driver import Outcome as Driven
from tests.factories.people import (
    BANK_A,
    BANK_B,
    HOSPITAL,
    HOUR_MS,
    LOG_KEY,
    MERGED,
    ORIGIN,
    SRO,
    CleanRoom,
    Clock,
    private_key,
    registration,
    short_name,
)
from tests.postgres import Database, databases, new_book


class World:
    """A book and those who use it; in SQLite in this folder, unless ``url`` says where."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.path = folder / "book.sqlite"
        self.url = url or url_of(self.path)
        self.clock = Clock(NOW)
        self.signers = {did: Signer(private_key(did)) for did in (SRO, HOSPITAL, BANK_A, BANK_B, MERGED)}
        self.contracts = {bank: c.digest(c.dump(contract(bank))) for bank in (BANK_A, BANK_B)}
        self.book = self.open()

    def open(self, **changes: Any) -> Book:  # noqa: ANN401 - any argument of Book.open
        """Another opening of the same book."""
        usual = {"clock": self.clock, "gate": gate, "log_key": LOG_KEY, "origin": ORIGIN, "volatile": True}
        return Book.open(self.url, **{**usual, **changes})

    def reopen(self) -> None:
        """Close the book and open it anew."""
        self.book.close()
        self.book = self.open()

    @property
    def size(self) -> int:
        """How many entries the log has."""
        with self.book.read() as facts:
            return facts.size

    def command(self, actor: str, kind: str, body: c.Object, name: str, signer: Signer | None = None) -> Submission:
        """A signed command."""
        by = signer or self.signers[actor]
        raw = Command(kind, name, actor, by.key_id, body).to_bytes()
        return Submission(raw, by.sign(raw))

    def submit(self, *submissions: Submission) -> list[Outcome]:
        """Send several at once."""
        return self.book.submit(submissions)

    def send(self, actor: str, kind: str, body: c.Object, name: str, signer: Signer | None = None) -> Outcome:
        """Send one command."""
        (outcome,) = self.submit(self.command(actor, kind, body, name, signer))
        return outcome

    def registration(self, did: str, role: str) -> Submission:
        """The SRO's word for an organisation."""
        body = registration(did, self.signers[did], role)
        return self.command(SRO, "organisation", body, f"organisation-{short_name(did)}")

    def document(self, kind: str, content: dict[str, Any], name: str, actor: str, *signed_by: str) -> Submission:
        """A document, stored with these signatures, to be entered."""
        data = c.dump(content)
        stored = [self.book.put_document(self.signers[did].sign(data).encode()) for did in signed_by]
        body: c.Object = {"document": self.book.put_document(data), "signatures": [*stored]}
        return self.command(actor, kind, body, name)

    def partition(self, name: str = "2026-q4", **changes: c.Json) -> Submission:
        """A partition of the hospital's to be opened."""
        return self.command(HOSPITAL, "partition", partition(name, **changes), f"partition-{name}")

    def charge(
        self,
        name: str,
        bank: str = BANK_A,
        run: c.Object | None = None,
        *,
        deadline: int | None = None,
        partitions: tuple[str, ...] = (PARTITION,),
        **changes: c.Json,
    ) -> Submission:
        """A run to be charged under the bank's contract, or under another bank's by ``contract``."""
        body: c.Object = {
            "clean_room": CleanRoom(name).to_json(),
            "contract": self.contracts.get(bank, ""),
            "deadline": deadline or self.clock.now + HOUR_MS,
            "partitions": [*partitions],
            "plan": run or plan(),
            **changes,
        }
        return self.command(bank, "charge", body, name)

    def settle(self, charge: str, steps: int, bank: str = BANK_A) -> Submission:
        """The clean room's word on the steps that ran."""
        body: c.Object = {"charge": charge, "steps": steps}
        return self.command(bank, "post", body, f"post-{charge}", CleanRoom(charge).signer)

    def void(self, charge: str, bank: str = BANK_A) -> Submission:
        """The bank gives a run up."""
        return self.command(bank, "void", {"charge": charge}, f"void-{charge}")

    def release(self, charge: str, run: c.Object | None = None, bank: str = BANK_A) -> Submission:
        """The clean room asks for the data keys, with its attester's token stored as evidence."""
        room = CleanRoom(charge)
        body: c.Object = {"charge": charge, "evidence": self.evidence(charge, room, run), "nonce": NONCE}
        return self.command(bank, "key_release", body, f"release-{charge}", room.signer)

    def evidence(self, charge: str, room: CleanRoom, run: c.Object | None = None) -> str:
        """An attester's token for a clean room and a charge's plan, stored."""
        digest = c.digest(c.dump(run or plan()))
        return self.book.put_document(attestation(room, charge, digest, self.clock.now))

    def merger(self) -> Submission:
        """The two banks become a third body, registered before."""
        body: c.Object = {"organisation": MERGED, "parents": [BANK_A, BANK_B]}
        return self.command(SRO, "merger", body, "merger")

    def founding(self) -> list[Submission]:
        """Everything that a charge needs, as one batch."""
        return [
            *(self.registration(did, role) for did, role in ROLES),
            self.document("policy", policy(), "policy", SRO, SRO),
            self.document("dataset", dataset(), "dataset", HOSPITAL, HOSPITAL),
            self.partition(),
            *(
                self.document("contract", contract(bank), f"contract-{short_name(bank)}", bank, bank, HOSPITAL)
                for bank in (BANK_A, BANK_B)
            ),
        ]


ROLES: Final = ((SRO, "SRO"), (HOSPITAL, "TDP"), (BANK_A, "TDC"), (BANK_B, "TDC"), (MERGED, "TDC"))
ENGINES: Final = ("sqlite", "postgresql")


@contextmanager
def fresh_book(folder: Path, engine: str = "sqlite") -> Iterator[str]:
    """The URL of a book without an entry, while the block runs."""
    if engine == "sqlite":
        url = url_of(folder / "book.sqlite")
        migrations.upgrade(url)
        yield url
    else:
        with new_book() as database:
            yield database.url


def _found(world: World) -> None:
    outcomes = world.submit(*world.founding())
    assert [one.code.word for one in outcomes] == ["permitted"] * len(outcomes), outcomes
    world.book.close()


_FILES: Final[dict[type[World], bytes]] = {}
_DATABASES: Final[dict[type[World], Database]] = {}


def _founded_file(make: type[World]) -> bytes:
    """A founded book's SQLite file, made once in a process: to copy it is quicker than to found anew."""
    if make not in _FILES:
        with TemporaryDirectory() as name, fresh_book(Path(name)) as url:
            world = make(Path(name), url)
            _found(world)
            _FILES[make] = world.path.read_bytes()
    return _FILES[make]


def _founded_database(make: type[World]) -> Database:
    """The same in PostgreSQL, to be a template."""
    if make not in _DATABASES:
        database = databases().lasting()
        with TemporaryDirectory() as name:
            _found(make(Path(name), database.url))
        _DATABASES[make] = database
    return _DATABASES[make]


@contextmanager
def founded_book(folder: Path, engine: str = "sqlite", make: type[World] = World) -> Iterator[str]:
    """The URL of a book that holds everything a charge needs, while the block runs."""
    if engine == "sqlite":
        (folder / "book.sqlite").write_bytes(_founded_file(make))
        yield url_of(folder / "book.sqlite")
    else:
        database = databases().copy(_founded_database(make))
        try:
            yield database.url
        finally:
            databases().drop(database)


@contextmanager
def open_world(
    folder: Path, engine: str = "sqlite", *, founded: bool = True, make: type[World] = World
) -> Iterator[World]:
    """A world whose book is open while the block runs."""
    with founded_book(folder, engine, make) if founded else fresh_book(folder, engine) as url:
        world = make(folder, url)
        try:
            yield world
        finally:
            world.book.close()


def rows(book: str | Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table but the documents, which anyone may store, and the epoch, which each opening changes."""
    engine = engine_of(url_of(book), writes=False)
    try:
        with engine.begin() as connection:
            return {
                name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
                for name, table in metadata.tables.items()
                if name not in {"document", "epoch"}
            }
    finally:
        engine.dispose()


def copy(source: Path, target: Path) -> Path:
    """A copy of a book that is not being written."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    return target


def no_step(done: int, total: int) -> None:
    """Progress that nobody watches."""
    assert 0 < done <= total


class BookDriver(FactsDriver):
    """Drives a book on a database."""

    def __init__(self, world: World) -> None:
        """Begin with the empty book of this world."""
        super().__init__(world.clock)
        self._book = world.book

    def facts(self) -> AbstractContextManager[Facts]:
        """The current facts."""
        return self._book.read()

    def send(self, signer: Signer, actor: str, kind: str, body: c.Object, name: str) -> Driven:
        """Sign a command and submit it."""
        raw = Command(kind, name, actor, signer.key_id, body).to_bytes()
        (outcome,) = self._book.submit([Submission(raw, signer.sign(raw))])
        return Driven(outcome.code.word, outcome.field, outcome.detail)

    def store(self, signer: Signer, data: bytes) -> tuple[str, str]:
        """Store both beside the log."""
        return self._book.put_document(data), self._book.put_document(signer.sign(data).encode())

    def recorded(self, name: str) -> bool:
        """Whether a command of this id is an entry."""
        with self._book.read() as facts:
            return facts.entry_index(name) is not None
