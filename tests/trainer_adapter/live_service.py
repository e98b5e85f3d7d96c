"""A hospital, a bank and a data set behind a real service, and jobs for a clean room of the bank's."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

import migrations
from api.demo import digits, participants
from api.demo.participants import Enrol, Organisation
from api.demo.sealed_archive import sealed_archive
from api.demo.stage import open_stage
from api.demo.trainer import Address, Task, write_job
from api.keys.data_key_store import FileKeyStore, KeyStore
from client.keys.data_encryption import encrypt
from client.keys.signer import Signer, load_private
from client.service.service import Service
from ledger.book.book import Book
from ledger.book.wall_clock import unix_ms
from ledger.commands.entry import Entry
from ledger.domain.charge_record import Charge
from ledger.mechanisms.plan import Plan
from ledger.store.snapshot import Snapshot
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from trainer_adapter.cli.train import Report, train_job
from trainer_adapter.job.job_spec import Assignment, Job
from trainer_adapter.session.protocol import Say

FOLDERS: Final = ("data", "jobs", "keys", "runs")
"""Of a clean room's machine."""
ORIGIN: Final = "rooms.example/ledger"
PLAN: Final = Plan(Fraction(1, 2), Fraction(8), Fraction(1), 20, digits.RECORDS // 2)
"""Within the contract's and the policy's ε for one run, and done in a moment."""


class Clock:
    """The service's time and everybody's: the machine's, and what a test adds to it."""

    def __init__(self) -> None:
        """The machine's."""
        self.ahead_ms = 0

    def __call__(self) -> int:
        """Unix milliseconds."""
        return unix_ms() + self.ahead_ms


class Readable(Protocol):
    """A book that can be read."""

    def read(self) -> AbstractContextManager[Snapshot]:
        """Its current state."""


@dataclass
class Place:
    """A service, its book and a folder as a clean room finds it."""

    folder: Path
    book: Readable
    service: Service
    address: Address
    bank: Organisation
    contract: str
    ref: str
    data_key: bytes
    clock: Clock
    sro: Organisation
    tdp: Organisation
    policy: c.Object
    enrol: Enrol

    def republish(self, **changes: c.Json) -> None:
        """The policy's second version, with these changes, in force at once."""
        self.policy = {**self.policy, "effective": format_time(self.clock() // 1000 * 1000), "version": 2, **changes}
        self.sro.enter("policy", self.policy)

    def job(self, name: str, plan: Plan = PLAN, accuracy_target: str = "") -> Path:
        """A job file of the bank's."""
        task = Task(name, self.bank, self.contract, self.ref, "2026-q3.sealed", accuracy_target)
        return write_job(self.folder, self.address, plan, task)

    def assignment_file(self, name: str, plan: Plan = PLAN, extra: str = "") -> Path:
        """An assignment file of the bank's: a job's without what only ``epsilon train`` reads."""
        path = self.job(name, plan)
        own = ("model =", "learning_rate =", "momentum =", "test =")
        lines = [line for line in path.read_text().splitlines() if not line.startswith(own)]
        path.write_text("\n".join(lines) + f"\n{extra}")
        return path

    def assignment(self, name: str, plan: Plan = PLAN, extra: str = "") -> Assignment:
        """The assignment in that file."""
        return Assignment.load(self.assignment_file(name, plan, extra))

    def run(self, job: Path, say: Say = lambda _: None) -> Report:
        """In this process."""
        return train_job(Job.load(job), self.service, say)

    def profile(self, of: Organisation) -> Path:
        """An organisation's profile, for its own commands."""
        slug = of.did.split(":")[2].split(".")[0]
        known = {"service": self.address.service, "issuer": self.address.issuer, "log": self.address.log.vkey}
        lines = [f'{name} = "{value}"' for name, value in {**known, "actor": of.did, "key": f"{slug}.pem"}.items()]
        path = self.folder / "keys" / f"{slug}.toml"
        path.write_text("\n".join(("v = 1", "[client]", *lines)))
        return path

    def charge(self, name: str) -> Charge | None:
        """As it stands."""
        with self.book.read() as facts:
            return facts.charges.get(name)

    def put(self, **held: NDArray[Any]) -> None:
        """Seal an archive of these as the partition's data, in one piece: nothing is declared of it."""
        file = io.BytesIO()
        np.savez(file, **held)  # type: ignore[arg-type] # names of arrays
        self.sealed.write_bytes(encrypt(self.data_key, self.ref, file.getvalue()))

    def kinds(self) -> list[tuple[str, str]]:
        """Kind and outcome of every entry."""
        with self.book.read() as facts:
            entries = [Entry.parse(facts.entry(index)) for index in range(facts.size)]
        return [(one.kind, one.code.word) for one in entries]

    @property
    def sealed(self) -> Path:
        """The partition's data at rest."""
        return self.folder / "data" / "2026-q3.sealed"


@contextmanager
def open_place(folder: Path, *, authorise_only: bool = False, **policy: c.Json) -> Iterator[Place]:
    """A policy with these changes, a data set with one partition, and a contract; no run yet.

    Where the service authorises only, the hospital's key lies in a store that is the hospital's own.
    """
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    url, clock = f"sqlite:///{folder / 'book.sqlite'}", Clock()
    migrations.upgrade(url)
    Signer.generate().save(folder / "log.pem")
    log_key = load_private(folder / "log.pem")
    log = LogKey(ORIGIN, log_key.public_key().public_bytes_raw())
    store = FileKeyStore(folder / "data-keys")
    book = Book.open(url, gate=gate, log_key=log_key, origin=ORIGIN, clock=clock, statements=False)
    try:
        with open_stage(book, KeyStore() if authorise_only else store, log, clock) as (address, enrol):
            yield furnished(folder, book, store, address, enrol, policy, clock)
    finally:
        book.close()


def furnished(  # noqa: PLR0913, PLR0917 - what a place is made of
    folder: Path, book: Readable, store: FileKeyStore, address: Address, enrol: Enrol, changes: c.Object, clock: Clock
) -> Place:
    """A place with all that a run needs, made by its parties over HTTP."""
    now = clock() // 1000 * 1000
    attester = Signer.generate()
    attester.save(folder / "keys" / "attester.pem")
    sro, tdp, bank = (
        Organisation.create(folder / "keys", slug, slug, role, enrol)
        for slug, role in (("council", "SRO"), ("hospital", "TDP"), ("bank", "TDC"))
    )
    for one in (sro, tdp, bank):
        one.register(sro)
    shipped = participants.policy(sro, attester.jwk, now)
    # A run here may be without leases, and a partition without commitments, unless a test says otherwise.
    policy = {
        name: one for name, one in shipped.items() if name not in {"commitments", "refund", "step_leases"}
    } | changes
    sro.enter("policy", policy)
    unit: c.Object = {"unit": policy["unit"]}
    tdp.enter("dataset", {**participants.dataset(tdp), **unit})
    several: c.Object = {} if policy["unit"] == "record" else {"unit_records_max": 2}
    tdp.submit("partition", {**participants.partition(tdp, "2026-q3", digits.RECORDS), **unit, **several})
    contract, _ = bank.enter("contract", {**participants.contract(tdp, bank, now), "runs_max": 1_000}, tdp)
    ref = f"{tdp.did}/{participants.DATASET}/2026-q3"
    data_key = store.create(tdp.did, f"{participants.DATASET}-2026-q3").reveal()
    place = Place(folder, book, bank.service, address, bank, contract, ref, data_key, clock, sro, tdp, policy, enrol)
    place.sealed.write_bytes(sealed_archive(digits.archive(digits.FIRST), data_key, ref, digits.CLASSES))
    (folder / "data" / "test.npz").write_bytes(digits.archive(digits.TEST))
    return place
