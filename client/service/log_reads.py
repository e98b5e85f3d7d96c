"""Reads of the log: entries, receipts, checkpoints and proofs, held to the newest checkpoint that was seen."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

from client.http.endpoints import path_of
from client.http.problems import Refused
from client.http.transport import object_of
from client.service.checkpoint_guard import CheckpointGuard
from ledger.log.verification import verify_account
from ledger.verifier import ROTATIONS
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

CHECKPOINT: Final = "checkpoint"


class LogReads:
    """The log of one service, as one caller reads it."""

    _guard: CheckpointGuard

    def account_proof(self, partition: str, holder: str) -> str:
        """What proves an account offline, checked if the log is known.

        Raises:
            SeenCheckpointError: if an entry of it is under a checkpoint of another history than the one that was seen.
            Malformed: if it does not hold, or is of another account.
            Refused, Unreachable, OSError.
        """
        query = {"partition": partition}
        proof = self._guard.send("GET", f"/v1/accounts/{path_of(holder)}/proof", query=query).text
        if self._guard.seen is not None:
            found = verify_account(proof, self._guard.seen.keys)
            for field, given, asked in (("partition", found.partition, partition), ("holder", found.holder, holder)):
                if given != asked:
                    raise Malformed(f"proof.{field}", f"must be {asked}, which was asked for, and is {given[:200]}")
            for note in dict.fromkeys(one.partition("\n\n")[2] for one in _receipts(proof)):
                self._guard.trust(note)
        return proof

    def entry(self, index: int) -> bytes:
        """The bytes of an entry, exactly as they are hashed. Raises: Refused, Unreachable."""
        return self._guard.send("GET", f"/v1/entries/{index}").content

    def receipt(self, id: str) -> str:  # noqa: A002 - the wire's name
        """The receipt of a command's entry, under the newest checkpoint. Raises: Refused, Unreachable, Malformed."""
        return self._guard.trusted_receipt(self._guard.send("GET", f"/v1/receipts/{path_of(id)}").text)

    def trust_receipt(self, receipt: str) -> None:
        """Check that the checkpoint of a stored receipt belongs to the log that was seen, by the service's proof.

        Whether the receipt proves an entry is not checked here.

        Raises:
            SeenCheckpointError, Refused, Unreachable, Malformed, OSError.
        """
        self._guard.trusted_receipt(receipt)

    def checkpoint(self) -> str:
        """The newest checkpoint, a signed note. Raises: Refused, Unreachable, Malformed."""
        note = self._guard.send("GET", "/v1/checkpoint").text
        self._guard.trust(note)
        return note

    def log_file(self, path: str, _bytes_max: int = 0) -> bytes | None:
        """A file of the log as ``epsilon publish`` would write it, None if there is none: for ``verify_tiles``.

        Entries are for regulators and auditors.

        Raises:
            Refused, Unreachable, Malformed.
        """
        if path == CHECKPOINT:
            return self.checkpoint().encode()
        try:
            response = self._guard.send("GET", "/v1/log-key-rotations" if path == ROTATIONS else f"/{path}")
        except Refused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return None
        return response.content if path != ROTATIONS or object_of(response).get("rotations") else None

    def log(self) -> c.Object:
        """The log's origin and verifier key, to compare with a profile's. Raises: Refused, Unreachable."""
        return object_of(self._guard.send("GET", "/v1/log"))


def _receipts(proof: str) -> list[str]:
    """The receipts of every entry of an account proof, which was verified."""
    read: dict[str, Any] = json.loads(proof)
    mergers = [one["merger"] for one in read.get("merged", ())]
    origin = [read["origin"]] if read.get("origin") else []
    entries = [read["statement"], *mergers, *origin, *read.get("opened", ()), *read["charges"], *read["since"]]
    return [one["receipt"] for one in entries]
