"""The session of one clean room with the ledger: charge first, then key, then data, and in the end the post.

Both keys of the clean room are made here and never leave the process in the clear. Any doubt leaves the charge as it
is: a run that breaks posts the steps it began, and one that dies is posted in full when its deadline passes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from client.dataset_files.stored_partition import NotOpened, PartitionData, StoredPartition, stored_partitions
from client.http.access_tokens import CleanRoomCredentials, ClientCredentials
from client.http.problems import Refused
from client.http.retry_policy import RetryPolicy
from client.keys.hpke_envelope import unseal
from client.keys.signer import Signer, load_private
from client.service.answers import Answer
from client.service.service import ATTEMPTS, Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.job.signals import stop_signals
from trainer_adapter.session.charge_requests import ChargeStatus, Posts
from trainer_adapter.session.clean_room_identity import CleanRoomIdentity, DevelopmentAttester
from trainer_adapter.session.epsilon_advice import advise
from trainer_adapter.session.key_grants import ProviderGrants
from trainer_adapter.session.lease_requests import CHALLENGES_MAX, LeaseRequests
from trainer_adapter.session.quote_report import QuoteReport, quote_report
from trainer_adapter.session.receipt_check import check_recorded
from trainer_adapter.session.slice_files import with_slices
from trainer_adapter.session.watermark_key import Watermark, read_watermark, refuse_undeclared, undeclared_bases

MARGIN_S: Final = 30.0
"""A run ends so long before its deadline, or a twentieth of its time if that is less: a later post is refused."""
Say = Callable[[str], None]


def consumer_service(assignment: Assignment) -> Service:
    """The service as the consumer calls it. Raises: Malformed, OSError."""
    # The address first: an assignment that names no service is refused before any file but its own is read.
    service = Service(assignment.service).held_to(assignment.log)
    signer = Signer.load(assignment.key)
    return service.as_caller(ClientCredentials(assignment.issuer, assignment.actor, signer, assignment.log.origin))


def clean_room_service(assignment: Assignment, service: Service, identity: CleanRoomIdentity, say: Say) -> Service:
    """The service as the clean room calls it, which retries until the charge's deadline: no one else has its keys."""
    credentials = CleanRoomCredentials(identity.signer, assignment.log.origin, service.clock)
    return service.as_caller(credentials, RetryPolicy(ATTEMPTS, until=identity.deadline / 1000, report=say))


class Session:
    """The protocol of one run.

    Attributes:
        identity: the clean room's keys; secret.
        charge_status: of the run's charge, as the service has it.
        posts: settle the charge.
        privacy: what the run reveals, as the service answers it, from :meth:`load_privacy` on.
    """

    privacy: ChargeEpsilon

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        assignment: Assignment,
        service: Service,
        say: Say,
        identity: CleanRoomIdentity | None = None,
        save: Callable[[CleanRoomIdentity], None] = lambda _: None,
        *,
        leases: bool = False,
    ) -> None:
        """Fresh keys, or those of the run that is resumed. Nothing is sent yet.

        Args:
            assignment: what the run is for.
            service: as the consumer calls it.
            say: receives one line for each stage.
            identity: of the same run in a process that died.
            save: receives the identity before the service learns of it, and whenever it changes.
            leases: whether a fresh run leases its steps, where the service knows how.

        Raises:
            Malformed, OSError: for a file that the run needs, before anything is charged.
        """
        assignment = with_slices(assignment, service)
        self._assignment, self._service, self._say, self._save = assignment, service, say, save
        deadline = (int(service.clock()) + assignment.deadline_s) * 1000
        self.identity = identity or CleanRoomIdentity.fresh(deadline, leases=leases)
        self._consumer = Signer.load(assignment.key)
        self._attester = DevelopmentAttester(assignment.attester.issuer, load_private(assignment.attester.key))
        self._sealed = stored_partitions(assignment.data)
        self._pipeline = {} if assignment.pipeline is None else {"pipeline": _digest_of(assignment.pipeline)}
        # From its charge on the clean room speaks for itself: the key that the charge names is its credential.
        self._own = clean_room_service(assignment, service, self.identity, say)
        credentials = CleanRoomCredentials(self.identity.signer, assignment.log.origin, service.clock)
        self.charge_status = ChargeStatus(assignment, self._own, service.as_caller(credentials, RetryPolicy(1)))
        self.posts = Posts(
            assignment, self.identity.signer, self._own, service.as_caller(credentials), self._attest, say
        )

    def charge_body(self) -> c.Object:
        """The body of the charge."""
        return {
            "clean_room": self.identity.public(),
            "contract": self._assignment.contract,
            "deadline": self.identity.deadline,
            "plan": self._assignment.plan.to_json(),
            **self._assignment.stated,
            **self._pipeline,
            **({"step_leases": True} if self.identity.leases else {}),
        }

    def quote(self) -> QuoteReport:
        """What the charge would get now; nothing is recorded. Raises: Refused, Unreachable, Malformed.

        A refusal that a budget, a policy or a rule would give is a report; any other is raised.
        """
        try:
            actor = self._assignment.actor
            quoted = self._send_charge(lambda charge: self._service.quote(self._consumer, actor, charge))
        except Refused as refused:
            advise(refused, self._service, self._assignment, self.charge_body())
            return QuoteReport.of_refusal(refused)
        return quote_report(quoted, self._service.plan_report(self.charge_body(), search=False))

    def charge(self) -> Answer:
        """Charge the whole plan. Raises: Refused, Unreachable, Malformed."""
        assignment = self._assignment

        def send(charge: c.Object) -> Answer:
            self._save(self.identity)
            return self._service.submit(self._consumer, assignment.actor, "charge", charge, assignment.id)

        try:
            return self._send_charge(send)
        except Refused as refused:
            advise(refused, self._service, assignment, self.charge_body())
            raise

    def _send_charge(self, send: Callable[[c.Object], Answer]) -> Answer:
        """Send the charge; once more without leases to a service that does not know them, unless the job wants them."""
        try:
            return send(self.charge_body())
        except Refused as refused:
            if refused.field != "body.step_leases" or refused.index is not None or self._assignment.step_leases:
                raise
        self.identity = replace(self.identity, leases=False)
        return send(self.charge_body())

    def load_privacy(self, charge: Answer) -> None:
        """Check that the charge is recorded, and read what the run reveals. Raises: Refused, Unreachable, Malformed."""
        assignment = self._assignment
        index, _ = check_recorded(self._own, charge, assignment.log, "charge", Code.PENDING)
        self._say(f"charge {assignment.id} is {charge.outcome}, entry {index}")
        self.privacy = convert(ChargeEpsilon, self._own.run_epsilon(assignment.id), "epsilon")

    def check_key_sources(self) -> None:
        """Check that every data key can reach this clean room, before anything is charged.

        Raises:
            Malformed: for a key that no one would give. OSError: for a folder of grants that cannot be made. Refused,
            Unreachable.
        """
        if self._assignment.grants is not None:
            self._assignment.grants.mkdir(parents=True, exist_ok=True)
            return
        for ref in self._assignment.data:
            if self._service.partition(ref).get("data_key_from") == "provider":
                rule = f"must name a folder: the service gives no data key for {ref}, its provider grants it"
                raise Malformed("grants", rule)

    def near_deadline(self) -> str:
        """Why the run ends, if it is too near its deadline for another step; else nothing."""
        margin_s = min(MARGIN_S, self._assignment.deadline_s / 20)
        late = self._service.clock() >= self.identity.deadline / 1000 - margin_s
        return "the deadline of the charge is near" if late else ""

    def open_data(self) -> dict[str, PartitionData]:
        """The records of each partition, decrypted in memory, in the assignment's order.

        Where a provider grants the key itself, the session waits for it until the deadline is near or a signal comes.

        Raises:
            NotGranted: when the wait ended without the key. NotOpened: for a file that the key does not open. Refused,
            Unreachable, Malformed, OSError.
        """
        answer, expected = self._release_key()
        # A store that only authorises sends no envelope; one that keeps some providers' keys, an envelope of these.
        keys = {} if answer.envelope is None else unseal(answer.envelope, self.identity.sealing, expected)
        if keys:
            self._say(f"key released to this clean room alone, sealed with HPKE, entry {answer.index}")
        opened = {ref: self._opened(ref, stored, keys[ref]) for ref, stored in self._sealed if ref in keys}
        closed = {ref: stored for ref, stored in self._sealed if ref not in keys}
        if closed:
            opened |= self._granted(answer, expected, closed)
        self._say("data decrypted in memory")
        return {ref: opened[ref] for ref, _ in self._sealed}

    def _opened(self, ref: str, stored: StoredPartition, key: bytes) -> PartitionData:
        try:
            return stored.open(key, ref)
        except Malformed:
            rule = (
                f"{self._assignment.data[ref]} does not open with its data key: it was changed, or sealed for another"
            )
            raise NotOpened(f"train.data.{ref}", rule) from None

    def _granted(
        self, answer: Answer, expected: c.Object, closed: dict[str, StoredPartition]
    ) -> dict[str, PartitionData]:
        folder = self._assignment.grants
        if folder is None:
            raise Malformed("grants", f"names no folder, and no key was released for {', '.join(closed)}")
        grants = ProviderGrants(folder, answer.id, self.identity.sealing, expected, closed, self._say)
        self._say(
            f"key release {answer.id} is permitted, entry {answer.index}; the keys are their providers' to grant:"
        )
        for command in grants.commands():
            self._say(f"  {command}")
        with stop_signals() as stopped:
            return grants.wait(lambda: stopped() or self.near_deadline())

    def _release_key(self) -> tuple[Answer, c.Object]:
        """The answer to the key release, and what every envelope for it says."""
        assignment, release = self._assignment, self.identity.release
        # Sent again by the run that is resumed, it is the same command, and has the same envelope as answer.
        if release is None or self._own.charge(assignment.id).get("key_release") is None:
            release = self._new_key_release()
        for left in reversed(range(CHALLENGES_MAX)):
            try:
                answer = self._own.submit(self.identity.signer, assignment.actor, "key_release", release[1], release[0])
                break
            except Refused as refused:
                # A service that was away for minutes, or began anew, has forgotten its challenge: nothing is recorded.
                if refused.field != "body.nonce" or not left:
                    raise
                release = self._new_key_release()
        check_recorded(self._own, answer, assignment.log, "key_release", Code.PERMITTED)
        return answer, {
            "charge": assignment.id,
            "contract": assignment.contract,
            "entry": answer.index,
            "evidence": release[1]["evidence"],
            "key_release": answer.id,
            "not_after": self.identity.deadline,
        }

    def _new_key_release(self) -> tuple[str, c.Object]:
        """Id and body of a key release, on fresh evidence; saved before it is sent."""
        nonce, evidence = self._attest()
        body: c.Object = {"charge": self._assignment.id, "evidence": evidence, "nonce": nonce}
        release = f"key_release-{secrets.token_hex(8)}", body
        self.identity = replace(self.identity, release=release)
        self._save(self.identity)
        return release

    def _attest(self) -> tuple[str, str]:
        """Deposit fresh evidence of this clean room: its nonce, and its digest."""
        assignment, keys = self._assignment, self.identity.public()
        claims: c.Object = {"charge": assignment.id, "cnf": keys, "plan": assignment.plan.digest, **self._pipeline}
        return self._attester.deposit_evidence(self._own, self.identity.signer, claims, self._say)

    def watermark(self) -> Watermark:
        """The mark of this run's model. Raises: Refused, Unreachable, Malformed."""
        return read_watermark(self._own, self.identity, self._assignment.id)

    def check_bases(self, fingerprint: bytes) -> None:
        """See that the weights carry no mark of a run that the charge does not name as its base.

        Raises:
            Malformed: naming the runs. Refused, Unreachable.
        """
        declared = [str(charge) for charge in self._assignment.base or ()]
        refuse_undeclared(undeclared_bases(self._own, fingerprint, declared))

    def lease_requests(self) -> LeaseRequests | None:
        """Sends the run's requests for leases; None for a run that leases no steps."""
        if not self.identity.leases:
            return None
        return LeaseRequests(self._own, self.identity.signer, self._assignment, self._attest)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
