"""A clean room before the ledger: charge first, then key, then data, and in the end the post.

Both keys of the clean room are made here and never leave the process in the clear. Any doubt leaves the charge
standing: a run that breaks posts the steps it began, and one that dies is posted in full when its deadline passes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from client.http.access_tokens import CleanRoomCredentials, ClientCredentials
from client.http.problems import Refused, Unreachable
from client.http.retry_policy import RetryPolicy
from client.keys.data_encryption import decrypt
from client.keys.hpke_envelope import unseal
from client.keys.sealed_model import seal_deposit, seal_model
from client.keys.signer import Signer, load_private
from client.service.service import ATTEMPTS, Answer, Service
from ledger.domain.entries import Entry
from ledger.domain.outcomes import ChargeState, Code
from ledger.host.atomic_file import replace_file
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.job.signals import listening
from trainer_adapter.session.clean_room_keys import Identity
from trainer_adapter.session.dev_attester import DevelopmentAttester
from trainer_adapter.session.key_grants import Grants
from trainer_adapter.session.model_release import Leaving, Pause, too_soon
from trainer_adapter.session.receipt_check import check_recorded
from trainer_adapter.session.sealed_model import KeptModel

CHALLENGES_MAX: Final = 8
SEALED_FILE: Final = "model.sealed"
Say = Callable[[str], None]


def consumer_service(assignment: Assignment) -> Service:
    """The service as the consumer calls it. Raises: Malformed, OSError."""
    # The address first: an assignment that names no service is refused before any file but its own is read.
    service = Service(assignment.service)
    signer = Signer.load(assignment.key)
    return service.as_caller(ClientCredentials(assignment.issuer, assignment.actor, signer, assignment.log.origin))


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
        # What it has to be answered before its deadline it asks for until then: nobody else has its keys.
        self.own: Final = service.as_caller(
            credentials, RetryPolicy(ATTEMPTS, until=self.identity.deadline / 1000, report=say)
        )
        self._hasty = service.as_caller(credentials)
        self._once = service.as_caller(credentials, RetryPolicy(1))

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

    def check_keys_come(self) -> None:
        """That every data key can reach this clean room, before anything is charged.

        Raises:
            Malformed: for a key that nobody would give. OSError: for a folder of grants that cannot be made. Refused,
            Unreachable.
        """
        if self._assignment.grants is not None:
            self._assignment.grants.mkdir(parents=True, exist_ok=True)
            return
        for ref, _ in self._assignment.data:
            if self._service.partition(ref).get("data_key_from") == "provider":
                rule = f"must name a folder: the service gives no data key for {ref}, its provider grants it"
                raise Malformed("grants", rule)

    def open_data(self, ended: Callable[[], str]) -> dict[str, bytes]:
        """The records of each partition, decrypted in memory.

        Args:
            ended: asked while a provider's grant is waited for: why nothing more is waited for, or nothing. A signal
                ends it too.

        Raises:
            NotGranted: when that was so. Refused, Unreachable, Malformed, OSError.
        """
        answer, expected = self._release_key()
        # A store that only authorises sends no envelope; one that keeps some providers' keys, an envelope of these.
        keys = {} if answer.envelope is None else unseal(answer.envelope, self.identity.sealing, expected)
        if keys:
            self._say(f"key released to this clean room alone, sealed with HPKE, entry {answer.index}")
        opened = {ref: decrypt(keys[ref], ref, stored) for ref, stored in self._sealed if ref in keys}
        closed = {ref: stored for ref, stored in self._sealed if ref not in keys}
        if closed:
            opened |= self._granted(answer, expected, closed, ended)
        self._say("data decrypted in memory")
        # As the assignment orders them, whichever key came first.
        return {ref: opened[ref] for ref, _ in self._sealed}

    def _granted(
        self, answer: Answer, expected: c.Object, closed: dict[str, bytes], ended: Callable[[], str]
    ) -> dict[str, bytes]:
        folder = self._assignment.grants
        if folder is None:
            raise Malformed("grants", f"names no folder, and no key was released for {', '.join(closed)}")
        grants = Grants(folder, answer.id, self.identity.sealing, expected, closed, self._say)
        self._say(
            f"key release {answer.id} is permitted, entry {answer.index}; the keys are their providers' to grant:"
        )
        for command in grants.commands():
            self._say(f"  {command}")
        with listening() as asked:
            return grants.wait(lambda: asked() or ended())

    def _release_key(self) -> tuple[Answer, c.Object]:
        """The answer to the key release, and what every envelope for it says."""
        known = self._assignment
        fresh = self.identity.release is None or self.own.charge(known.id).get("key_release") is None
        answer = self._sent_until_answered(fresh=fresh)
        check_recorded(self.own, answer, known.log, "key_release", Code.PERMITTED)
        assert self.identity.release is not None
        return answer, {
            "charge": known.id,
            "contract": known.contract,
            "entry": answer.index,
            "evidence": self.identity.release[1]["evidence"],
            "key_release": answer.id,
            "not_after": self.identity.deadline,
        }

    def _sent_until_answered(self, *, fresh: bool) -> Answer:
        for left in reversed(range(CHALLENGES_MAX)):
            if fresh:
                self.identity = replace(self.identity, release=self._ask_for_keys())
                self._keep(self.identity)
            assert self.identity.release is not None
            name, body = self.identity.release
            try:
                # Sent again by the run that goes on, it is the same command, and has the same envelope for an answer.
                return self.own.submit(self.identity.signer, self._assignment.actor, "key_release", body, name)
            except Refused as refused:
                # A service that was away for minutes, or began anew, has forgotten its challenge: nothing is recorded.
                if refused.field != "body.nonce" or not left:
                    raise
                fresh = True
        raise AssertionError

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

    def post(self, steps: int, *, hasty: bool = False) -> None:
        """Settle for what ran; the same again is the same statement. Raises: Refused, Unreachable.

        Without ``hasty`` it is sent until the deadline.
        """
        known = self._assignment
        body: c.Object = {"charge": known.id, "steps": steps}
        name = f"post-{c.digest(c.dump(body))[:32]}"
        service = self._hasty if hasty else self.own
        answer = service.submit(self.identity.signer, known.actor, "post", body, name)
        self._say(f"{steps} of {known.plan.steps} steps posted, entry {answer.index}")

    def release_model(self, data: bytes, pause: Pause | None = None) -> str:
        """Tell the providers, ask whether the model may leave, and write it only then; its SHA-256, or nothing.

        Args:
            data: the model as safetensors.
            pause: waits some seconds: with it the clean room stays until the providers have had their notice.

        Raises:
            Unreachable, Malformed, OSError. Whatever ``pause`` raises.
        """
        leaving = Leaving(self._assignment, self.own, self.identity.signer, data)
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
        replace_file(known.output / SEALED_FILE, sealed)
        self._say(f"the model is sealed as {name}, for attested clean rooms alone")


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _posted(found: c.Object) -> int | None:
    steps = found.get("steps_posted")
    return steps if isinstance(steps, int) else None
