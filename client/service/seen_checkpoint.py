"""The newest checkpoint that this user's programs have seen of a log: a service may not go behind it.

    {XDG_STATE_HOME}/epsilon-ledger/seen-checkpoints/SHA-256 of the log's verifier key

A receipt proves an entry under a checkpoint that the log's key signed. A service that was set back to an older book, or
that shows two histories, holds that key too. So a newer checkpoint is trusted only with a proof that it extends the one
that was seen before (RFC 9162, section 2.1.4), and an older one only with a proof that the seen one extends it. The
first checkpoint of a log is taken as it comes (trust on first use).

A log may replace its key. Its rotations, which the service proves, are kept beside the checkpoint once one under a
later key is trusted: from then on no checkpoint of an earlier key is, of a size that it did not sign.

    {XDG_STATE_HOME}/epsilon-ledger/seen-checkpoints/SHA-256 of the log's verifier key.rotations
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final

from client.http.problems import Refused
from ledger.domain.exit_codes import ExitCode
from ledger.files.atomic_file import replace_file
from ledger.files.file_update import locked
from ledger.files.named_file import followed
from ledger.files.state_folder import state_folder
from ledger.log.verification import check_extends, open_checkpoint, with_rotations
from ledger.verifier import NOTE_BYTES_MAX, ROTATIONS_BYTES_MAX, Checkpoint, LogKey, Policy
from ledger.wire.malformed import Malformed

_ROTATIONS: Final = ".rotations"
ATTEMPTS: Final = 8
"""How often another process may store a checkpoint while this one proves its own."""
Prove = Callable[[int, int], Sequence[bytes]]
"""The consistency proof from one size to another. Raises: Refused, with status 404 where there is none."""


def known_keys(log: LogKey) -> LogKey | Policy:
    """The log's key, with all that followed or preceded it as far as this user's programs have seen them proven.

    Raises:
        Malformed: if what was kept of them cannot be read.
    """
    text = _read_text(_path_of(log, _ROTATIONS), ROTATIONS_BYTES_MAX)
    return log if text is None else with_rotations(log, text)


def _followed(before: LogKey | Policy, now: Policy) -> Policy:
    """The keys that are known now. Raises: Malformed, if one that was known before is not among them."""
    if isinstance(before, Policy) and not before.sizes.keys() <= now.sizes.keys():
        raise Malformed("rotations", "are other ones than those that were seen before")
    return now


def _path_of(log: LogKey, suffix: str = "") -> Path:
    # A new file takes the place of the one that a symbolic link leads to: at its end no old checkpoint may stay.
    return followed(state_folder() / "seen-checkpoints" / f"{sha256(log.vkey.encode()).hexdigest()}{suffix}")


def _read_text(path: Path, bytes_max: int) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(bytes_max).decode("utf-8", "replace")
    except FileNotFoundError:
        return None


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
        self.path = _path_of(log)
        self._rotations = _path_of(log, _ROTATIONS)
        self._keys: LogKey | Policy | None = None

    @property
    def keys(self) -> LogKey | Policy:
        """All keys of the log that are known."""
        if self._keys is None:
            self._keys = known_keys(self.log)
        return self._keys

    def knows_signer(self, note: str) -> bool:
        """Whether a known key signed a note; false for an unsigned note, or one that is no checkpoint."""
        try:
            open_checkpoint(note, self.keys)
        except Malformed:
            return False
        return True

    def trust_empty(self) -> None:
        """Trust that the log is empty. Raises: SeenCheckpointError, if it was seen with entries; OSError."""
        stored = self._read()
        if stored is not None:
            raise self._refusal(self._opened(stored).size)

    def trust_rotated(self, note: str, prove: Prove, rotations: str) -> Checkpoint:
        """As :meth:`trust`, of a note that may be under another key of the log; the rotations are kept if it holds.

        Args:
            rotations: as the service sent them.

        Raises:
            SeenCheckpointError: if they are not proven, or do not go on from those that were kept. As :meth:`trust`.
        """
        before = self.keys
        try:
            self._keys = _followed(before, with_rotations(self.log, rotations))
            checkpoint = self.trust(note, prove)
        except Malformed as error:
            self._keys = before
            if isinstance(error, SeenCheckpointError):
                raise
            raise SeenCheckpointError(
                f"{self._service} shows that the log replaced its key, and does not prove it ({error}): give "
                f"{self._rotations} and its answers to an auditor"
            ) from None
        replace_file(self._rotations, rotations.encode())
        return checkpoint

    def trust(self, note: str, prove: Prove) -> Checkpoint:
        """The checkpoint in a signed note, if it is one of the log that was seen; the newer of the two is kept.

        Args:
            note: as the service sent it.
            prove: fetches a consistency proof from the service.

        Raises:
            SeenCheckpointError: if the note is not the log's, the service does not prove it, or what was seen cannot be
                read.
            Refused, Unreachable: as ``prove`` does. OSError: if the file cannot be written.
        """
        try:
            shown = open_checkpoint(note, self.keys)
        except Malformed as error:
            raise SeenCheckpointError(
                f"{self._service} shows a checkpoint that {error.rule}: check that the log's key and the service's URL "
                "belong together"
            ) from None
        for _ in range(ATTEMPTS):
            stored = self._read()
            if stored is not None:
                seen = self._opened(stored)
                old, new = sorted((seen, shown), key=lambda note: note.size)
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
        keys = self.keys
        # A key that was revoked since may have signed it: the log still has to extend it.
        trust = replace(keys, revoked={}) if isinstance(keys, Policy) else keys
        try:
            return open_checkpoint(note, trust)
        except Malformed as error:
            raise SeenCheckpointError(
                f"the checkpoint that was seen before cannot be read ({error}): restore {self.path}, or delete it to "
                "trust the next one that the service shows"
            ) from None

    def _read(self) -> str | None:
        return _read_text(self.path, NOTE_BYTES_MAX)

    def _replace(self, expected: str | None, note: str) -> bool:
        """Store a note in place of the expected one; whether it was still there."""
        with locked(self.path):
            if self._read() != expected:
                return False
            if note != expected:
                replace_file(self.path, note.encode())
            return True
