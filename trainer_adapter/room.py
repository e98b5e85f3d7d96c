"""A clean room before the ledger: charge first, then key, then data, and in the end the post.

Both keys of the clean room are made here and never leave the process in the clear. Any doubt leaves the charge
standing: a run that breaks posts the steps it began, and one that dies is posted in full when its deadline passes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.data_at_rest import decrypt
from client.envelope import unseal
from client.problem import Refused, Unreachable
from client.sealed_model import seal_deposit, seal_model
from client.service import Service
from client.signer import Signer, load_private
from client.tokens import CleanRoomCredentials, ClientCredentials
from ledger import canonical as c
from ledger.entries import Entry
from ledger.malformed import Malformed
from ledger.outcomes import ChargeState, Code
from trainer_adapter.assignment import Assignment
from trainer_adapter.attester import DevelopmentAttester
from trainer_adapter.durable import write_whole
from trainer_adapter.kept_model import KeptModel
from trainer_adapter.leaving import Leaving, Pause, too_soon
from trainer_adapter.recorded import check_recorded

SEALED_FILE: Final = "model.sealed"
Say = Callable[[str], None]


def consumer_service(assignment: Assignment) -> Service:
    """The service as the consumer calls it. Raises: Malformed, OSError."""
    # The address first: an assignment that names no service is refused before any file but its own is read.
    service = Service(assignment.service)
    signer = Signer.load(assignment.key)
    return service.as_caller(ClientCredentials(assignment.issuer, assignment.actor, signer, assignment.log.origin))


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a clean room the one that was charged; secret, all of it.

    Attributes:
        deadline: of the charge, Unix ms.
        release: id and body of the command that asks for the data keys; None before it is asked.
    """

    signer: Signer
    sealing: X25519PrivateKey
    deadline: int
    release: tuple[str, c.Object] | None = None

    @classmethod
    def fresh(cls, deadline: int) -> Identity:
        """New keys."""
        return cls(Signer.generate(), X25519PrivateKey.generate(), deadline)

    def to_json(self) -> c.Object:
        """For what is sealed before it is written."""
        name, body = self.release or ("", None)
        return {
            "deadline": self.deadline,
            "kind": "clean_room",
            "release": {"body": body, "id": name},
            "sealing": c.base64url(self.sealing.private_bytes_raw()),
            "signing": c.base64url(self.signer.secret()),
            "v": 1,
        }

    @classmethod
    def parse(cls, value: object) -> Identity:
        """What :meth:`to_json` made. Raises: Malformed."""
        known = c.fields(value, "room", ("deadline", "kind", "release", "sealing", "signing", "v"))
        c.one_of(known["kind"], "room.kind", ("clean_room",))
        c.integer(known["v"], "room.v", 1, 1)
        release = c.fields(known["release"], "room.release", ("body", "id"))
        return cls(
            Signer.of_secret(c.unbase64url(known["signing"], "room.signing")),
            X25519PrivateKey.from_private_bytes(c.unbase64url(known["sealing"], "room.sealing")),
            c.integer(known["deadline"], "room.deadline", 0, 2**53 - 1),
            (release["id"], release["body"]) if release["body"] is not None else None,
        )

    def public(self) -> c.Object:
        """Both public keys, as a charge names them."""
        x = c.base64url(self.sealing.public_key().public_bytes_raw())
        return {"sealing": {"crv": "X25519", "kty": "OKP", "x": x}, "signing": self.signer.jwk}


class Room:
    """One clean room, one run."""

    def __init__(
        self,
        assignment: Assignment,
        service: Service,
        say: Say,
        identity: Identity | None = None,
        keep: Callable[[Identity], None] = lambda _: None,
    ) -> None:
        """Fresh keys, or those of the run that goes on.

        Args:
            assignment: what the run is for.
            service: as the consumer calls it.
            say: is told each stage in one line.
            identity: of the same run in a process that died.
            keep: is given the identity before the service learns of it, and whenever it grows.
        """
        self._assignment, self._service, self._say, self._keep = assignment, service, say, keep
        deadline = (int(service.clock()) + assignment.deadline_s) * 1000
        self.identity = identity or Identity.fresh(deadline)
        # What can fail without the ledger fails before anything is charged.
        self._consumer = Signer.load(assignment.key)
        self._attester = DevelopmentAttester(assignment.attester_issuer, load_private(assignment.attester_key))
        self._sealed = [(ref, file.read_bytes()) for ref, file in assignment.data]
        self._pipeline = {} if assignment.pipeline is None else {"pipeline": _digest_of(assignment.pipeline)}
        # From its charge on the clean room speaks for itself: the key that the charge names is its credential.
        credentials = CleanRoomCredentials(self.identity.signer, assignment.log.origin, service.clock)
        self.own: Final = service.as_caller(credentials)
        self._once = service.as_caller(credentials, attempts=1)

    @property
    def steps(self) -> int:
        """Of the plan."""
        return self._assignment.plan.steps

    @property
    def deadline_ms(self) -> int:
        """When the whole charge is posted if nothing was, Unix ms."""
        return self.identity.deadline

    def body(self) -> c.Object:
        """Of the charge."""
        return {
            "clean_room": self.identity.public(),
            "contract": self._assignment.contract,
            "deadline": self.identity.deadline,
            "partitions": [ref for ref, _ in self._assignment.data],
            "plan": self._assignment.plan.to_json(),
            **self._assignment.stated,
            **self._pipeline,
        }

    def quote(self) -> c.Object:
        """What the charge's entry would hold; records nothing. Raises: Refused, Unreachable."""
        return self._service.quote(self._consumer, self._assignment.actor, self.body()).body

    def charge(self) -> Entry:
        """Charge the whole plan; its entry. Raises: Refused, Unreachable, Malformed."""
        known = self._assignment
        self._keep(self.identity)
        answer = self._service.submit(self._consumer, known.actor, "charge", self.body(), known.id)
        index = check_recorded(self.own, answer, known.log, "charge", Code.PENDING)
        self._say(f"charge {known.id} is {answer.outcome}, entry {index}")
        return Entry.parse(self.own.entry(index))

    def state(self) -> tuple[ChargeState, int | None]:
        """Where the charge stands, and the steps it was posted for. Raises: Refused, Unreachable, Malformed."""
        found = self.own.charge(self._assignment.id)
        states = tuple(one.value for one in ChargeState)
        return ChargeState(c.one_of(found.get("state"), "charge.state", states)), _posted(found)

    def open_data(self) -> dict[str, bytes]:
        """The records of each partition, decrypted in memory. Raises: Refused, Unreachable, Malformed."""
        keys, opened = self._release_key(), {}
        for ref, stored in self._sealed:
            if ref not in keys:
                raise Malformed("data", f"no key was released for {ref}")
            opened[ref] = decrypt(keys[ref], ref, stored)
        self._say("data decrypted in memory")
        return opened

    def _release_key(self) -> dict[str, bytes]:
        known = self._assignment
        if self.identity.release is None or self.own.charge(known.id).get("key_release") is None:
            self.identity = replace(self.identity, release=self._ask_for_keys())
            self._keep(self.identity)
        assert self.identity.release is not None
        name, body = self.identity.release
        # Sent again by the run that goes on, it is the same command, and has the same envelope for an answer.
        answer = self.own.submit(self.identity.signer, known.actor, "key_release", body, name)
        expected: c.Object = {
            "charge": known.id,
            "contract": known.contract,
            "entry": answer.index,
            "evidence": body["evidence"],
            "key_release": answer.id,
            "not_after": self.identity.deadline,
        }
        index = check_recorded(self.own, answer, known.log, "key_release", Code.PERMITTED)
        keys = unseal(answer.envelope, self.identity.sealing, expected)
        self._say(f"key released to this clean room alone, sealed with HPKE, entry {index}")
        return keys

    def _ask_for_keys(self) -> tuple[str, c.Object]:
        known = self._assignment
        self._say("a development attester signs for this clean room: it attests nothing, and is not for production")
        nonce = self.own.challenge(known.id)
        claims: c.Object = {
            "charge": known.id,
            "cnf": self.identity.public(),
            "eat_nonce": nonce,
            "plan": known.plan.digest,
            **self._pipeline,
        }
        token = self._attester.attest(claims, int(self._service.clock()))
        evidence = self.own.put_document(self.identity.signer, token).document
        return f"key_release-{secrets.token_hex(8)}", {"charge": known.id, "evidence": evidence, "nonce": nonce}

    def report(self, steps: int) -> None:
        """Tell how many steps are done, once. Raises: Refused, Unreachable."""
        self._once.report_progress(self._assignment.id, steps)

    def over(self) -> str:
        """Why no further step may be taken, or nothing, says the ledger. Raises: Refused, Unreachable, Malformed."""
        found = self._once.charge(self._assignment.id)
        state = found.get("state")
        if state != ChargeState.PENDING.value:
            return f"the charge is {state}"
        return "the contract was revoked" if self._once.contract(self._assignment.contract).get("revoked") else ""

    def post(self, steps: int) -> None:
        """Settle for what ran; the same again is the same statement. Raises: Refused, Unreachable."""
        known = self._assignment
        body: c.Object = {"charge": known.id, "steps": steps}
        name = f"post-{c.digest(c.dump(body))[:32]}"
        answer = self.own.submit(self.identity.signer, known.actor, "post", body, name)
        self._say(f"{steps} of {known.plan.steps} steps posted, entry {answer.index}")

    def release_model(self, data: bytes, pause: Pause | None = None) -> str:
        """Tell the providers, ask whether the model may leave, and write it only then; its SHA-256, or nothing.

        Args:
            data: the model as safetensors.
            pause: waits some seconds: with it the clean room stays until the providers have had their notice.

        Raises:
            Unreachable, Malformed, OSError. Whatever ``pause`` raises.
        """
        leaving = Leaving(self._assignment, self._service, self.identity.signer, data)
        try:
            leaving.announce()
            index = leaving.ask()
        except Refused as refused:
            self._say(f"the model stays in the clean room: {refused.detail}")
            # Before any waiting, so that a process that ends meanwhile loses nothing.
            self._seal_model(data)
            if pause is None or not too_soon(refused):
                return ""
            waited = self._waited(leaving, pause)
            if waited is None:
                return ""
            index = waited
        self._say(f"model released, entry {index}")
        return leaving.model

    def _waited(self, leaving: Leaving, pause: Pause) -> int | None:
        try:
            return leaving.ask_until(pause)
        except Refused as refused:
            self._say(f"the model stays in the clean room: {refused.detail}")
            return None

    def _seal_model(self, data: bytes) -> None:
        """What may not leave, or not yet, is written sealed: only an attested clean room opens it, by an entry."""
        known = self._assignment
        sealed, key = seal_model(KeptModel(data, self.identity.signer).to_bytes(), known.id)
        name = c.digest(sealed)
        try:
            deposit = self.own.deposit_key()
            sealed_key = seal_deposit(key, deposit, known.id, name)
            self.own.deposit_model_key(self.identity.signer, known.id, name, sealed_key)
        except (Refused, Unreachable) as fault:
            # A model whose key nobody keeps would be noise: then it goes with this process.
            self._say(f"the model is not kept: {fault}")
            return
        write_whole(known.output / SEALED_FILE, sealed)
        self._say(f"the model is sealed as {name}, for attested clean rooms alone")


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _posted(found: c.Object) -> int | None:
    steps = found.get("steps_posted")
    return steps if isinstance(steps, int) else None
