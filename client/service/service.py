"""The service, seen from a party or a clean room: signed commands out, answers in, all over HTTP."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Final, Self

import httpx

from client.http.access_tokens import Credentials
from client.http.base_url import base_of, is_loopback
from client.http.endpoints import (
    BYTES_TYPE,
    DOCUMENTS,
    JSON_TYPE,
    MODEL_KEYS,
    PROPOSALS,
    QUOTES,
    SIGNATURE_HEADER,
    WATERMARK_SEARCHES,
    path_of,
)
from client.http.retry_policy import RetryPolicy
from client.http.tls_context import tls_context
from client.http.transport import Sender, object_of
from client.keys.signer import Signer
from client.service.answers import Answer, Stored
from client.service.checkpoint_guard import CheckpointGuard
from client.service.log_reads import LogReads
from client.service.registry_reads import RegistryReads
from client.service.seen_checkpoint import SeenCheckpoint
from ledger.crypto.detached_jws import Call
from ledger.crypto.public_keys import PublicKey
from ledger.domain.command import Command
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c

ATTEMPTS: Final = 4
TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)


class Service(RegistryReads, LogReads):
    """One service. Sending is safe to repeat: the id makes a command the same command again."""

    def __init__(
        self,
        base_url: str,
        credentials: Credentials | None = None,
        *,
        attempts: int = ATTEMPTS,
        backoff_s: float = 0.2,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Talk to ``base_url``; send at most ``attempts`` times, waiting ``backoff_s``, then twice that.

        Without credentials only what is public is answered. ``clock`` gives Unix seconds; signatures name ``base_url``
        and the time, so both have to be the service's own, give or take five minutes.
        """
        url = httpx.URL(base_of(base_url))
        # A proxy named in the environment has no business between this process and its own machine.
        trust_env = not is_loopback(url.host)
        verify = tls_context(trust_env=trust_env)
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT, trust_env=trust_env, verify=verify)
        self._base_url = str(url)
        self._guard = CheckpointGuard(Sender(self._http, credentials, RetryPolicy(attempts, backoff_s), clock))
        self._clock = clock

    @property
    def recorded(self) -> tuple[int, ...]:
        """The entries of the commands that were sent, refusals among them, in order and for all callers."""
        return tuple(self._guard.sender.recorded)

    @property
    def clock(self) -> Callable[[], float]:
        """The clock, in Unix seconds."""
        return self._clock

    def as_caller(self, credentials: Credentials, retry_policy: RetryPolicy | None = None) -> Service:
        """The same service and connections for another caller; with another retry policy, if given."""
        other = copy(self)
        other._guard = self._guard.as_caller(credentials, retry_policy)  # noqa: SLF001 - its own class
        return other

    def held_to(self, log: LogKey) -> Service:
        """The same service and caller, held to the newest checkpoint that was seen of ``log``."""
        other = copy(self)
        other._guard = replace(self._guard, seen=SeenCheckpoint(log, self._base_url), checked=False)  # noqa: SLF001 - its own class
        return other

    def __enter__(self) -> Self:
        """Close with the block."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(  # noqa: PLR0913 - the members of a command, and what it replaces
        self,
        signer: Signer,
        actor: str,
        kind: str,
        body: c.Object,
        id: str | None = None,  # noqa: A002 - the wire's name
        *,
        replaces: str | None = None,
        dry_run: bool = False,
    ) -> Answer:
        """Sign a command and send it. Raises: Refused, Unreachable.

        Args:
            signer: of the command.
            actor: the organisation that sends the command.
            kind: one of :data:`ledger.commands.registry.PATHS`.
            body: the command's body.
            id: the client-made id; a fresh one where none is given. Give it again to repeat the command.
            replaces: of a next version of a policy or a contract, the tag of what it replaces.
            dry_run: get the decision, and record nothing.
        """
        # A client that only reads need not wait for every kind of command to load.
        from ledger.commands.registry import PATHS

        command = Command(kind, id or f"{kind}-{secrets.token_hex(8)}", actor, signer.key_id, body)
        return self._send_command(f"{PATHS[kind]}?dry_run=true" if dry_run else PATHS[kind], signer, command, replaces)

    def quote(self, signer: Signer, actor: str, body: c.Object, id: str | None = None) -> Answer:  # noqa: A002 - the wire's name
        """The decision that a charge would get now; records nothing. Raises: Refused, Unreachable."""
        command = Command("charge", id or f"quote-{secrets.token_hex(8)}", actor, signer.key_id, body)
        return self._send_command(QUOTES, signer, command)

    def decision(self, id: str) -> c.Object:  # noqa: A002 - the wire's name
        """What was decided on a command, with every recorded check. Raises: Refused, Unreachable."""
        return self._get(f"/v1/decisions/{path_of(id)}")

    def put_document(self, signer: Signer, data: bytes) -> Stored:
        """Store a document and the signature over it. Raises: Refused, Unreachable."""
        digest = c.digest(data)
        response = self._send("PUT", f"{DOCUMENTS}/{digest}", data, signer, digest, content_type=BYTES_TYPE)
        return Stored.of(object_of(response))

    def propose_contract(self, signer: Signer, data: bytes) -> c.Object:
        """Sign a contract for its other parties to see and sign; nothing is decided. Raises: Refused, Unreachable."""
        digest = c.digest(data)
        return object_of(self._send("PUT", f"{PROPOSALS}/{digest}", data, signer, digest, content_type=BYTES_TYPE))

    def contract_proposals(self) -> c.Object:
        """The contracts that are proposed to the caller or by it, not entered. Raises: Refused, Unreachable."""
        return self._get(PROPOSALS)

    def challenge(self, charge: str) -> str:
        """A one-time nonce for the key release of a charge. Raises: Refused, Unreachable."""
        answer = object_of(self._send("POST", "/v1/challenges", c.dump({"charge": charge})))
        return c.key_bytes(answer.get("nonce"), "nonce")

    def deposit_key(self) -> str:
        """The X25519 key that keys of sealed models are deposited under. Raises: Refused, Unreachable."""
        return PublicKey.parse(self._get("/v1/deposit-key"), "deposit", "X25519").x

    def deposit_model_key(self, signer: Signer, charge: str, model: str, sealed: str) -> None:
        """Leave a sealed model's key with the key store, by the charge's clean room. Raises: Refused, Unreachable."""
        raw = c.dump({"charge": charge, "model": model, "sealed": sealed})
        self._send("POST", MODEL_KEYS, raw, signer, model)

    def watermark_key(self, charge: str) -> c.Object:
        """The sealed key of a charge's mark and its commitment, for the clean room. Raises: Refused, Unreachable."""
        return self._get(f"/v1/charges/{path_of(charge)}/watermark")

    def search_watermarks(self, fingerprint: bytes) -> c.Object:
        """The runs whose marks are in the weights of a fingerprint. Raises: Refused, Unreachable."""
        return object_of(self._send("POST", WATERMARK_SEARCHES, fingerprint, content_type=BYTES_TYPE))

    def report_progress(self, charge: str, steps: int) -> None:
        """Report how many steps of a run are done, as its clean room. Raises: Refused, Unreachable."""
        self._send("POST", f"/v1/charges/{path_of(charge)}/progress", c.dump({"steps": steps}))

    def _send(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        path: str,
        content: bytes,
        signer: Signer | None = None,
        id: str = "",  # noqa: A002 - the wire's name
        *,
        replaces: str | None = None,
        content_type: str = JSON_TYPE,
    ) -> httpx.Response:
        """Send a body, signed for this request if there is a signer: anew at each attempt, as a signature ages."""

        def headers() -> dict[str, str]:
            made = {"content-type": content_type}
            if replaces is not None:
                made["if-match"] = replaces
            if signer is not None:
                call = Call(method, f"{self._base_url}{path}", int(self._clock()), id)
                made[SIGNATURE_HEADER] = signer.sign(content, call)
            return made

        return self._guard.send(method, path, content, headers)

    def _send_command(self, path: str, signer: Signer, command: Command, replaces: str | None = None) -> Answer:
        response = self._send("POST", path, command.to_bytes(), signer, command.id, replaces=replaces)
        answer = Answer.of(object_of(response))
        if answer.index is not None:
            self._guard.sender.recorded.append(answer.index)
        if answer.receipt is not None:
            self._guard.trusted_receipt(answer.receipt)
        return answer
