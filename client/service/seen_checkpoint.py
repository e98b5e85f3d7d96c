"""The newest checkpoint that this user's programs have seen of a log: a service may not go behind it.

    {XDG_STATE_HOME}/epsilon-ledger/seen-checkpoints/SHA-256 of the log's verifier key

A receipt proves an entry under a checkpoint that the log's key signed. A service that was set back to an older book, or
that shows two histories, holds that key too. So a newer checkpoint is trusted only with a proof that it extends the one
that was seen before (RFC 9162, section 2.1.4), and an older one only with a proof that the seen one extends it. The
first checkpoint of a log is taken as it comes (trust on first use).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from client.http.problems import Refused
from ledger.domain.exit_codes import ExitCode
from ledger.files.atomic_file import replace_file
from ledger.files.file_update import locked
from ledger.files.state_folder import state_folder
from ledger.log.verification import check_extends, open_checkpoint
from ledger.verifier import NOTE_BYTES_MAX, Checkpoint, LogKey
from ledger.wire.malformed import Malformed

ATTEMPTS: Final = 8
"""How often another process may store a checkpoint while this one proves its own."""
Prove = Callable[[int, int], Sequence[bytes]]
"""The consistency proof from one size to another. Raises: Refused, with status 404 where there is none."""


class SeenCheckpointError(Malformed):
    """The log is not the one that was seen before, or does not prove it: nothing that it shows is trusted."""

    exit_code: Final = ExitCode.VERIFICATION_FAILED

    def __init__(self, rule: str) -> None:
        """Say what does not hold, and what to do."""
        super().__init__("checkpoint", rule)


class SeenCheckpoint:
    """The file of one log. Processes and threads may share it: it is replaced whole, and only by what extends it."""

    def __init__(self, log: LogKey, service: str) -> None:
        """Of this log, as ``service`` (a URL, for messages) shows it."""
        self.log, self._service = log, service
        self.path = state_folder() / "seen-checkpoints" / sha256(log.vkey.encode()).hexdigest()

    def trust_empty(self) -> None:
        """Trust that the log is empty. Raises: SeenCheckpointError, if it was seen with entries; OSError."""
        stored = self._read()
        if stored is not None:
            raise self._refusal(self._opened(stored).size)

    def trust(self, note: str, prove: Prove) -> Checkpoint:
        """The checkpoint in a signed note, if it is one of the log that was seen; the newer of the two is kept.

        Args:
            note: as the service sent it.
            prove: asks the service for a consistency proof.

        Raises:
            SeenCheckpointError: if the note is not the log's, the service does not prove it, or what was seen cannot be
                read.
            Refused, Unreachable: as ``prove`` does. OSError: if the file cannot be written.
        """
        try:
            shown = open_checkpoint(note, self.log)
        except Malformed as error:
            raise SeenCheckpointError(
                f"{self._service} shows a checkpoint that {error.rule}: check that the log's key and the service's URL "
                "belong together"
            ) from None
        for _ in range(ATTEMPTS):
            stored = self._read()
            if stored is not None:
                seen = self._opened(stored)
                old, new = sorted((seen, shown), key=lambda one: one.size)
                self._check(old, new, prove, seen)
                if shown.size <= seen.size:
                    return shown
            if self._replace(stored, note):
                return shown
        raise SeenCheckpointError(f"{self.path} is changed by other programs all the time: retry")

    def _check(self, old: Checkpoint, new: Checkpoint, prove: Prove, seen: Checkpoint) -> None:
        try:
            proof = prove(old.size, new.size) if 0 < old.size < new.size else ()
            check_extends(old, new, proof)
        except (Malformed, Refused) as error:
            if isinstance(error, Refused) and error.status != HTTPStatus.NOT_FOUND:
                raise
            raise self._refusal(seen.size) from None

    def _refusal(self, seen: int) -> SeenCheckpointError:
        return SeenCheckpointError(
            f"{self._service} does not prove that its log goes on from the {seen} entries seen before, as after a "
            f"restored backup or with two histories: trust nothing it answers, give {self.path} to its operator and to "
            "an auditor, and retry once the newest book is served"
        )

    def _opened(self, note: str) -> Checkpoint:
        try:
            return open_checkpoint(note, self.log)
        except Malformed as error:
            raise SeenCheckpointError(
                f"the checkpoint that was seen before cannot be read ({error}): restore {self.path}, or delete it to "
                "trust the next one that the service shows"
            ) from None

    def _read(self) -> str | None:
        try:
            with self.path.open("rb") as file:
                return file.read(NOTE_BYTES_MAX).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def _replace(self, expected: str | None, note: str) -> bool:
        """Store a note in place of the expected one; whether it was still there."""
        with locked(self.path):
            if self._read() != expected:
                return False
            if note != expected:
                replace_file(self.path, note.encode())
            return True
