"""Requests to a service that is held to its log as it was seen: checked before the first, and with each receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

import httpx

from client.http.access_tokens import Credentials
from client.http.problems import Refused
from client.http.retry_policy import RetryPolicy
from client.http.transport import Sender, object_of
from client.service.seen_checkpoint import SeenCheckpoint
from ledger.verifier import PROOF_HASHES_MAX
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed


@dataclass(slots=True)
class CheckpointGuard:
    """The sender of one caller.

    Attributes:
        sender: sends the requests.
        seen: the newest checkpoint that was seen of the log; None where the log's key is not known.
        checked: whether the service has shown its newest checkpoint to this object.
    """

    sender: Sender
    seen: SeenCheckpoint | None = None
    checked: bool = False

    def as_caller(self, credentials: Credentials, retry_policy: RetryPolicy | None) -> CheckpointGuard:
        """The same connections for another caller."""
        policy = retry_policy or self.sender.retry_policy
        return replace(self, sender=replace(self.sender, credentials=credentials, retry_policy=policy))

    def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Callable[[], Mapping[str, str]] = dict,
        query: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request, the first one only to a service whose newest checkpoint is trusted.

        Raises:
            SeenCheckpointError: if the service does not show the log that was seen before.
            Refused, Unreachable, Malformed, OSError.
        """
        if self.seen is not None and not self.checked:
            self._check_newest(self.seen)
            self.checked = True
        return self.sender.send(method, path, content, headers, query)

    def trusted_receipt(self, receipt: str) -> str:
        """A receipt, if the checkpoint that it is under is trusted; whether it proves an entry is not checked here.

        Raises:
            SeenCheckpointError, Refused, Unreachable, Malformed, OSError.
        """
        self.trust(receipt.partition("\n\n")[2])
        return receipt

    def trust(self, note: str) -> None:
        """Hold a checkpoint that the service sent to the one that was seen. Raises: as :meth:`trusted_receipt`."""
        if self.seen is None:
            return
        rotations = None if self.seen.knows_signer(note) else self._rotations()
        if rotations is None:
            self.seen.trust(note, self._prove)
        else:
            self.seen.trust_rotated(note, self._prove, rotations)

    def _check_newest(self, seen: SeenCheckpoint) -> None:
        try:
            note = self._send("/v1/checkpoint").text
        except Refused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            seen.trust_empty()
        else:
            self.trust(note)

    def _rotations(self) -> str | None:
        """How the log replaced its key, by the service; None where it never did."""
        try:
            response = self._send("/v1/log-key-rotations")
        except Refused as refused:
            # A service of before the route.
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return None
        return response.text if object_of(response).get("rotations") else None

    def _prove(self, old: int, new: int) -> list[bytes]:
        proof = object_of(self._send(f"/v1/consistency/{old}", {"new": str(new)})).get("proof")
        if not isinstance(proof, list) or len(proof) > PROOF_HASHES_MAX:
            raise Malformed("answer.proof", f"must be a list of at most {PROOF_HASHES_MAX} hashes")
        return [c.unbase64url(node, "answer.proof") for node in proof]

    def _send(self, path: str, query: Mapping[str, str] | None = None) -> httpx.Response:
        """Fetch what is public."""
        return replace(self.sender, credentials=None).send("GET", path, query=query)
