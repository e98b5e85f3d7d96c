"""A world whose book lies behind a real loopback service: a book on disk, the real gate, and callers with tokens."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import migrations
from api.app import create_app
from api.auth.caller_quotas import CallerQuotas
from api.dev_issuer.issuer import Person
from api.dev_issuer.routes import create_issuer_app
from api.keys.data_key_store import FileKeyStore, KeyStore
from api.server.http_server import LOOPBACK, base_url, listen, serving
from client.http.endpoints import JSON_TYPE, SIGNATURE_HEADER
from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.answers import Answer
from client.service.service import Service
from ledger.book.book import Book, Outcome, Submission
from ledger.book.wall_clock import unix_ms
from ledger.commands.registry import PATHS
from ledger.crypto.detached_jws import Call
from ledger.domain.command import Command
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate
from ledger.domain.outcomes import Code
from ledger.mechanisms.loss import Loss
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.api.wire.conforming import conforms
from tests.factories.callers import Everybody, OfTheWorld
from tests.factories.documents import NONCE, PARTITION, attestation, contract, partition, plan, policy
from tests.factories.people import (
    BANK_A,
    HOSPITAL,
    LOG_KEY,
    ORIGIN,
    SRO,
    CleanRoom,
    Clock,
    MachineClock,
    private_key,
    registration,
    short_name,
)
from tests.factories.state_agreement import check_agreement
from tests.factories.world import ChargeRead, World

NOW: Final = unix_ms() // 1000 * 1000
"""When these tests began. Commands of a process of its own are signed by the machine's clock, so worlds begin by it."""
PLAN: Final = plan(noise="4")
PLAN_DIGEST: Final = c.digest(c.dump(PLAN))
OPENED: Final = partition(data_key="digits-key")
_TLS: Final = ssl.create_default_context()
"""One for all clients: to read the authorities' certificates takes longer than most requests of a test."""


def contract_document(now: int = NOW, runs_max: int = 10) -> dict[str, Any]:
    """What the hospital and the bank agree on."""
    audit = {"canaries_max": 1_000, "partitions": [PARTITION]}
    return contract(BANK_A, starts=now, audit=audit, run={"epsilon_max": "1"}, runs_max=runs_max)


def machine_clock() -> Clock:
    """A clock that begins where the machine's stands."""
    return Clock(unix_ms() // 1000 * 1000)


class ServedWorld(World):
    """One service and those who use it: commands go over HTTP, and what is read too.

    Attributes:
        is_checked: whether memory, rows and replay of its book are compared when a test leaves it.
    """

    listener: socket.socket
    is_checked = False

    def __init__(  # noqa: PLR0913 - what a world is made of
        self, book: Book, url: str, *, clock: Clock, keys: FileKeyStore, log: LogKey, everybody: Everybody
    ) -> None:
        """Before anybody is registered."""
        super().__init__(clock)
        self.book = book
        self.contract = ""
        self.keys = keys
        self.log = log
        self.everybody = everybody
        self.call(url)
        self.sro, self.hospital, self.bank = (self.signers[did] for did in (SRO, HOSPITAL, BANK_A))
        self.attester = private_key("attester")
        for did, signer in ((SRO, self.sro), (HOSPITAL, self.hospital), (BANK_A, self.bank)):
            everybody.organisations[signer.key_id] = did

    def read(self) -> AbstractContextManager[Facts]:
        """A snapshot of the book behind the service."""
        return self.book.read()

    def put(self, data: bytes, signer: Signer) -> str:
        """Store bytes beside the log; their digest."""
        return self.service.put_document(signer, data).document

    def store(self, signer: Signer, data: bytes) -> tuple[str, str]:
        """Store a document and the signature over it at once; the digests of both."""
        stored = self.service.put_document(signer, data)
        return stored.document, stored.signature

    def nonce(self, charge: str) -> str:
        """The service's own, where it gives one."""
        try:
            return self.service.challenge(charge)
        except Refused:
            return NONCE

    def signed(self, signer: Signer, kind: str, name: str, raw: bytes) -> str:
        """The signature over a command's bytes, for a request of now."""
        return self.sign(signer, PATHS[kind], raw, name)

    def submit(self, *submissions: Submission) -> list[Outcome]:
        """Send one command after the other; whoever signs shows its own token."""
        return [self._submit(one) for one in submissions]

    def _submit(self, submission: Submission) -> Outcome:
        command = submission.command
        if command.kind == "organisation":
            did = str(command.body["organisation"])
            self.everybody.organisations[self.signers[did].key_id] = did
        if command.kind == "charge":
            room = CleanRoom(command.id).signer
            self.everybody.rooms.setdefault(room.key_id, room)
        response = self.post(PATHS[command.kind], submission.raw, submission.signature)
        found = response.json()
        if response.is_error:
            code, field, detail = Code.of(found["code"]), found.get("field", ""), found["detail"]
            return Outcome(code, command.id, None, {}, None, field, detail, repeated=False)
        code, receipt = Code.of(found["outcome"]), found["receipt"]
        return Outcome(
            code, command.id, found["index"], found["body"], lambda: str(receipt), "", "", repeated=found["repeated"]
        )

    def found(self, *submissions: Submission) -> None:
        """Send each as soon as it is made: a service stores documents of members alone."""
        for one in submissions or self.founding_with():
            super().found(one)

    def recorded(self, name: str) -> bool:
        """Whether a command of this id is an entry."""
        return self.http.get(f"/v1/decisions/{name}").status_code == httpx.codes.OK

    def charge_read(self, name: str) -> ChargeRead | None:
        """One charge."""
        answer = self.http.get(f"/v1/charges/{name}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found = answer.raise_for_status().json()
        return ChargeRead(found["state"], found["steps_posted"])

    def accounts(self, ref: str) -> dict[str, tuple[Loss, Loss]]:
        """By holder, what is posted and what is pending on each account of a partition."""
        known: Any = self.service.accounts(ref)["accounts"]
        return {one["holder"]: (_loss(one["posted"]), _loss(one["pending"])) for one in known}

    def terms(self, ref: str) -> str:
        """The terms of a partition's rule, as JSON."""
        return c.dump(self.service.partition(ref)["terms"]).decode()

    def runs(self, contract: str) -> int:
        """The runs that count against a contract."""
        return int(str(self.service.contract(contract)["runs"]))

    def call(self, url: str) -> None:
        """Speak to the service at ``url`` from now on."""
        self.url = url
        self.service = Service(url, attempts=1, clock=lambda: self.clock.now / 1000)
        self.service._http.auth = self.everybody  # noqa: SLF001 - the tests' own callers
        self.http = httpx.Client(base_url=url, trust_env=False, auth=self.everybody, timeout=60, verify=_TLS)
        for client in (self.http, self.service._http):  # noqa: SLF001 - every answer of every test is held to the document
            client.event_hooks["response"].append(conforms)

    @contextmanager
    def issuing(self, people: Mapping[str, Person] | None = None, clock: Callable[[], int] = unix_ms) -> Iterator[str]:
        """The issuer that everybody's tokens are of, for commands that ask one by this clock; its URL."""
        known = {
            did: signer.public for did, signer in ((SRO, self.sro), (HOSPITAL, self.hospital), (BANK_A, self.bank))
        }
        issuer = OfTheWorld(self.everybody.url, self.log.origin, self.everybody.signer, known, people or {}, clock)
        issuer.world = self.clock
        with serving(create_issuer_app(issuer), self.listener) as url:
            yield url

    def policy(self) -> dict[str, Any]:
        """The first version of the SRO's."""
        return policy(self.begun, self.attester, lineage={"epsilon_max": "8"})

    @property
    def size(self) -> int:
        """How many entries the log has."""
        with self.book.read() as facts:
            return facts.size

    def post(self, path: str, raw: bytes, signature: str | None, **headers: str) -> httpx.Response:
        """Send bytes as they are."""
        sent = {"content-type": JSON_TYPE, **headers}
        if signature is not None:
            sent[SIGNATURE_HEADER] = signature
        return self.http.post(path, content=raw, headers=sent)

    def sign(self, signer: Signer, path: str, raw: bytes, id: str, method: str = "POST") -> str:  # noqa: A002
        """A signature over bytes for a request of now."""
        return signer.sign(raw, Call(method, f"{self.url}{path}", self.clock.now // 1000, id))

    def register(self, did: str, role: str, signer: Signer, *more: str) -> Answer:
        """Enter an organisation by the SRO's word."""
        body = registration(did, signer, role, *more)
        self.everybody.organisations[signer.key_id] = did
        self.everybody.roles[did] = role
        return self.service.submit(self.sro, SRO, "organisation", body, f"organisation-{short_name(did)}")

    def enter(self, kind: str, document: dict[str, Any], actor: str, *signers: Signer) -> tuple[str, Answer]:
        """Store a document with its signatures and enter it."""
        data = c.dump(document)
        stored = [self.service.put_document(signer, data) for signer in signers]
        first = stored[0]
        body: c.Object = {"document": first.document, "signatures": [one.signature for one in stored]}
        return first.document, self.service.submit(signers[0], actor, kind, body, replaces=first.replaces)

    def open_partition(self, name: str, **changes: c.Json) -> str:
        """Another partition like the first but for ``changes``, under its own data key; its reference."""
        body = {**OPENED, "data_key": f"digits-{name}", "partition": name, **changes}
        self.service.submit(self.hospital, HOSPITAL, "partition", body, f"partition-{name}")
        return f"{HOSPITAL}/digits/{name}"

    def found_service(self, runs_max: int = 10) -> str:
        """Everything that a charge needs; the digest of the contract."""
        roles, agreed = {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC"}, contract_document(self.begun, runs_max)
        self.everybody.roles |= roles
        opened: dict[str, c.Object] = {"2026-q4": {"data_key": "digits-key"}}
        for one in self.founding_with(roles=roles, governing=self.policy(), partitions=opened, contracts=[agreed]):
            self.found(one)
        self.keys.create(HOSPITAL, "digits-key")
        return c.digest(c.dump(agreed))

    def charge_body(self, contract: str, room: CleanRoom) -> c.Object:
        """One run under the contract."""
        self.everybody.rooms[room.signer.key_id] = room.signer
        return {
            "clean_room": room.to_json(),
            "contract": contract,
            "deadline": self.begun + 3_600_000,
            "partitions": [PARTITION],
            "plan": PLAN,
        }

    def attest(
        self,
        room: CleanRoom,
        charge: str,
        nonce: str,
        plan: str = PLAN_DIGEST,
        signer: Signer | None = None,
        **more: c.Json,
    ) -> str:
        """Store an attestation token as the clean room's evidence, by itself or by ``signer``; its digest."""
        token = attestation(room, charge, plan, self.clock.now, nonce=nonce, attester=self.attester, **more)
        return self.service.put_document(signer or room.signer, token).document

    def command_bytes(self, signer: Signer, actor: str, kind: str, body: c.Object, id: str) -> bytes:  # noqa: A002
        """The canonical bytes of a command."""
        return Command(kind, id, actor, signer.key_id, body).to_bytes()


def _loss(reported: dict[str, Any]) -> Loss:
    return Loss(tuple(int(one) for one in reported["finite"]), tuple(reported["infinite"]))


@contextmanager
def open_world(  # noqa: PLR0913 - the parts of a service
    folder: Path,
    store: KeyStore | None = None,
    clock: Clock | None = None,
    log_key: Ed25519PrivateKey | None = None,
    *,
    database: str | None = None,
    quotas: CallerQuotas | None = None,
    origin: str = ORIGIN,
    volatile: bool = False,
    statements: bool = False,
    decides: Gate = gate,
) -> Iterator[ServedWorld]:
    """A world whose service runs while the block does; its time and its log's key are made up unless given.

    Its book is made in SQLite, unless ``database`` is the URL of one that is there, of the log ``origin``. Afterwards
    memory, rows and replay are compared, where that is asked.
    """
    if database is None:
        database = f"sqlite:///{folder / 'book.sqlite'}"
        migrations.upgrade(database)
    clock, log_key = clock or machine_clock(), log_key or Ed25519PrivateKey.generate()
    log = LogKey(origin, log_key.public_key().public_bytes_raw())
    keys = FileKeyStore(folder / "keys")
    watch = clock.watch() if isinstance(clock, MachineClock) else None
    book = Book.open(
        database,
        gate=decides,
        log_key=log_key,
        origin=origin,
        clock=clock,
        watch=watch,
        statements=statements,
        volatile=volatile,
    )
    try:
        listener = listen(LOOPBACK, 0)
        everybody = Everybody(base_url(listener), origin, clock)
        door = listen(LOOPBACK, 0)
        issuers = [everybody.issuer()]
        url = base_url(door)
        app = create_app(book, store or keys, url=url, log=log, clock=clock, issuers=issuers, quotas=quotas)
        with serving(app, door) as url:
            world = ServedWorld(book, url, clock=clock, keys=keys, log=log, everybody=everybody)
            world.listener = listener
            try:
                yield world
                checked = world.is_checked
            finally:
                world.service.close()
                world.http.close()
                listener.close()
        if checked:
            check_agreement(book, database)
    finally:
        book.close()


@cache
def _founded() -> tuple[TemporaryDirectory[str], str, int]:
    """A folder with a founded book and its data keys, its contract, and when it began; made once in a process."""
    folder = TemporaryDirectory()
    with open_world(Path(folder.name), log_key=LOG_KEY) as world:
        return folder, world.found_service(), world.begun


@contextmanager
def founded_world(folder: Path, quotas: CallerQuotas | None = None, decides: Gate = gate) -> Iterator[ServedWorld]:
    """A world with everything that a charge needs: to copy its book is quicker than to found it anew."""
    template, contract, begun = _founded()
    shutil.copytree(template.name, folder, dirs_exist_ok=True)
    with open_world(folder, log_key=LOG_KEY, quotas=quotas, decides=decides) as world:
        world.contract, world.begun = contract, begun
        world.contracts[BANK_A] = contract
        world.everybody.roles |= {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC"}
        yield world
