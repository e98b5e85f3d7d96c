"""A small world around a book on disk: the real gate, keys that are the same in every process, no service."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from joserfc import jws
from joserfc.jwk import OKPKey
from sqlalchemy import select

import migrations
from client.keys.signer import Signer
from ledger.book.book import Book, Outcome, Submission
from ledger.crypto import detached_jws
from ledger.domain.commands import Command
from ledger.store.engine import engine_of, url_of
from ledger.store.tables import metadata
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from tests.postgres import new_book

ORIGIN: Final = "epsilon.example/ledger"
SRO: Final = "did:web:sro.example"
HOSPITAL: Final = "did:web:hospital.example"
BANK_A: Final = "did:web:bank-a.example"
BANK_B: Final = "did:web:bank-b.example"
MERGED: Final = "did:web:bank-ab.example"
ATTESTER: Final = "https://attester.example"
PARTITION: Final = f"{HOSPITAL}/digits/2026-q4"
NOW: Final = 1_795_000_000_000
DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
NONCE: Final = c.base64url(bytes(32))


def plan(steps: int = 100, noise: str = "2") -> c.Object:
    """A run; of the default one, twelve fit into the partition's budget."""
    return {
        "batch_size_expected": 64,
        "clipping_norm": "1",
        "kind": "dp_sgd",
        "noise_multiplier": noise,
        "sampler": {"kind": "poisson", "probability": "0.0625"},
        "steps": steps,
        "v": 1,
    }


SMALL: Final = plan(1, "8")
"""A run of which hundreds fit."""


def private(name: str) -> Ed25519PrivateKey:
    """The key of this name, the same in every process."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


LOG_KEY: Final = private("log")
LOG: Final = LogKey(ORIGIN, LOG_KEY.public_key().public_bytes_raw())


class Clock:
    """Time that a test moves by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        """Unix milliseconds."""
        return self.now


class Room:
    """The clean room of one charge."""

    def __init__(self, charge: str) -> None:
        self.charge = charge
        self.signer = Signer(private(f"room {charge}"))

    def to_json(self) -> c.Object:
        """As a charge names it."""
        sealing = X25519PrivateKey.from_private_bytes(hashlib.sha256(self.charge.encode()).digest())
        x = c.base64url(sealing.public_key().public_bytes_raw())
        return {"sealing": {"crv": "X25519", "kty": "OKP", "x": x}, "signing": self.signer.jwk}


class World:
    """A book and those who use it; in SQLite in this folder, unless ``url`` says where."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.path = folder / "book.sqlite"
        self.url = url or url_of(self.path)
        self.clock = Clock()
        self.signers = {did: Signer(private(did)) for did in (SRO, HOSPITAL, BANK_A, BANK_B, MERGED)}
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
        claim: c.Object = {"key": self.signers[did].jwk, "name": did[8:], "organisation": did, "roles": [role]}
        body = {**claim, "possession": self.signers[did].sign(c.dump(claim))}
        return self.command(SRO, "organisation", body, f"organisation-{did[8:]}")

    def document(self, kind: str, content: dict[str, Any], name: str, actor: str, *signed_by: str) -> Submission:
        """A document, stored with these signatures, to be entered."""
        data = c.dump(content)
        stored = [self.book.put_document(self.signers[did].sign(data).encode()) for did in signed_by]
        body: c.Object = {"document": self.book.put_document(data), "signatures": [*stored]}
        return self.command(actor, kind, body, name)

    def partition(self, name: str = "2026-q4", **changes: c.Json) -> Submission:
        """A partition of the hospital's to be opened."""
        body = {**_PARTITION, "data_key": f"digits-{name}", "partition": name, **changes}
        return self.command(HOSPITAL, "partition", body, f"partition-{name}")

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
            "clean_room": Room(name).to_json(),
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
        return self.command(bank, "post", body, f"post-{charge}", Room(charge).signer)

    def void(self, charge: str, bank: str = BANK_A) -> Submission:
        """The bank gives a run up."""
        return self.command(bank, "void", {"charge": charge}, f"void-{charge}")

    def release(self, charge: str, run: c.Object | None = None, bank: str = BANK_A) -> Submission:
        """The clean room asks for the data keys, with its attester's token stored as evidence."""
        room = Room(charge)
        body: c.Object = {"charge": charge, "evidence": self.evidence(charge, room, run), "nonce": NONCE}
        return self.command(bank, "key_release", body, f"release-{charge}", room.signer)

    def evidence(self, charge: str, room: Room, run: c.Object | None = None) -> str:
        """An attester's token for a clean room and a charge's plan, stored."""
        attester = private("attester")
        claims: c.Object = {
            "charge": charge,
            "cnf": room.to_json(),
            "dbgstat": "disabled-since-boot",
            "eat_nonce": NONCE,
            "exp": self.clock.now // 1000 + 300,
            "iat": self.clock.now // 1000,
            "iss": ATTESTER,
            "plan": c.digest(c.dump(run or plan())),
            "swname": "trainer",
        }
        jwk = detached_jws.public_key(attester).to_json()
        secret = c.base64url(attester.private_bytes_raw())
        key = OKPKey.import_key({"crv": "Ed25519", "d": secret, "kty": "OKP", "x": str(jwk["x"])})
        header = {"alg": "Ed25519", "typ": "eat+jwt"}
        token = jws.serialize_compact(header, c.dump(claims), key, algorithms=["Ed25519"])
        return self.book.put_document(token.encode())

    def merger(self) -> Submission:
        """The two banks become a third body, registered before."""
        body: c.Object = {"organisation": MERGED, "parents": [BANK_A, BANK_B]}
        return self.command(SRO, "merger", body, "merger")

    def founding(self) -> list[Submission]:
        """Everything that a charge needs, as one batch."""
        return [
            *(self.registration(did, role) for did, role in ROLES),
            self.document("policy", policy(), "policy", SRO, SRO),
            self.document("dataset", DATASET, "dataset", HOSPITAL, HOSPITAL),
            self.partition(),
            *(
                self.document("contract", contract(bank), f"contract-{bank[8:]}", bank, bank, HOSPITAL)
                for bank in (BANK_A, BANK_B)
            ),
        ]


ROLES: Final = ((SRO, "SRO"), (HOSPITAL, "TDP"), (BANK_A, "TDC"), (BANK_B, "TDC"), (MERGED, "TDC"))
DATASET: Final = {
    "deidentification": "no names",
    "domain": "health",
    "id": "digits",
    "kind": "dataset",
    "provider": HOSPITAL,
    "schema": "8 by 8 pixels and a digit",
    "unit": "record",
    "v": 1,
}
_PARTITION: Final[c.Object] = {
    "dataset": "digits",
    "delta": "0.00001",
    "epsilon": "6",
    "provider": HOSPITAL,
    "records": 1000,
    "relation": "REPLACE_SPECIAL",
    "rule": "renyi",
    "unit": "record",
}


def policy() -> dict[str, Any]:
    """Level 1; a lineage may know less than everyone together."""
    return {
        "attestation": {
            "attesters": [{"issuer": ATTESTER, "key": detached_jws.public_key(private("attester")).to_json()}],
            "claims": {"swname": "trainer"},
        },
        "budget": {"delta_max": "0.00001", "epsilon_max": "8"},
        "domain": "health",
        "effective": format_time(NOW),
        "id": "health-policy",
        "issuer": SRO,
        "kind": "policy",
        "level": 1,
        "lineage": {"epsilon_max": "5"},
        "mechanisms": ["poisson_gaussian"],
        "model_release": True,
        "partition_age_days_max": 90,
        "records_min": 100,
        "relation": "REPLACE_SPECIAL",
        "rules": ["renyi"],
        "run": {"epsilon_max": "4"},
        "unit": "record",
        "v": 1,
        "version": 1,
    }


def contract(bank: str) -> dict[str, Any]:
    """Between a bank and the hospital."""
    return {
        "datasets": [{"dataset": "digits", "provider": HOSPITAL}],
        "ends": format_time(NOW + 90 * DAY_MS),
        "id": f"digits-{bank[8:]}",
        "kind": "contract",
        "purpose": "reading digits",
        "run": {"epsilon_max": "2"},
        "runs_max": 100_000,
        "starts": format_time(NOW),
        "tdc": bank,
        "tdps": [HOSPITAL],
        "v": 1,
        "version": 1,
    }


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


@contextmanager
def open_world(
    folder: Path, engine: str = "sqlite", *, founded: bool = True, make: type[World] = World
) -> Iterator[World]:
    """A world whose book is open while the block runs."""
    with fresh_book(folder, engine) as url:
        world = make(folder, url)
        try:
            if founded:
                outcomes = world.submit(*world.founding())
                assert [one.code.word for one in outcomes] == ["permitted"] * len(outcomes), outcomes
            yield world
        finally:
            world.book.close()


def rows(book: str | Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table but the documents, which anyone may store."""
    engine = engine_of(url_of(book), writes=False)
    try:
        with engine.begin() as connection:
            return {
                name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
                for name, table in metadata.tables.items()
                if name != "document"
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
