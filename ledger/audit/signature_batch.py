"""The signatures over the commands of a log, verified in batches behind the entries that are decided again.

On a long book other processes verify most of them: :mod:`ledger.book.signatures.signature_process`. What a process has
not confirmed, for whatever reason, is verified here, so the findings do not depend on which of them did what.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct

from ledger.book.signatures.signature_process import SignatureProcess
from ledger.crypto.detached_jws import ed25519_check, verify
from ledger.crypto.ed25519 import Check
from ledger.crypto.organisation_keys import SignerKey
from ledger.crypto.public_keys import PublicKey
from ledger.log.verification_findings import VerificationFailed
from ledger.wire.malformed import Malformed

ALONE_MAX: Final = 4_096
"""Entries that one process verifies before another would have started."""
BATCH: Final = 256
"""Signatures that are verified together."""
WAITING_MAX: Final = 16
"""Batches that wait for another process; beyond, the oldest is verified here."""
_START_S: Final = 60.0


class _Signed(Struct, frozen=True):
    """An entry's index, the detached JWS over its command, the bytes it is over, and the key it must verify with."""

    index: int
    signature: str
    raw: bytes
    key: SignerKey


class _Batch:
    """Signatures in order of entries.

    Attributes:
        process: that verifies them; None if none does.
        verified: whether all of them are known to verify.
        wrong: the first that does not verify, once that is known.
    """

    def __init__(self, signed: list[_Signed]) -> None:
        self.signed = signed
        self.process: SignatureProcess | None = None
        self.verified = False
        self.wrong: VerificationFailed | None = None

    @property
    def is_done(self) -> bool:
        return self.verified or self.wrong is not None

    def send(self, process: SignatureProcess) -> None:
        """Have a process verify them, which has nothing to do."""
        checks = [one for one in map(_check, self.signed) if one is not None]
        if len(checks) < len(self.signed):
            self.verify([])
        elif process.send(checks) == len(checks):
            self.process = process
        else:
            # The pipe is a short one.
            self.verify(process.receive())

    def verify(self, confirmed: list[bool]) -> None:
        """Verify here what was not confirmed."""
        self.process = None
        for place, one in enumerate(self.signed):
            if confirmed[place : place + 1] == [True]:
                continue
            try:
                verify(one.signature, one.raw, one.key)
            except Malformed as error:
                self.wrong = VerificationFailed(one.index, str(error))
                return
        self.verified = True


def _check(one: _Signed) -> Check | None:
    """What another process may verify in place of this one; None where there is no such thing."""
    if not isinstance(one.key, PublicKey):
        return None
    try:
        return ed25519_check(one.signature, one.raw, one.key)[1]
    except Malformed:
        return None


class SignatureBatch:
    """The signatures that are not verified yet, in order of entries. ``enabled=False`` verifies nothing.

    Attributes:
        enabled: whether signatures are verified at all.
        count: how many there were.
    """

    def __init__(self, processes: list[SignatureProcess], *, enabled: bool = True) -> None:
        """Begin with no signature; ``processes`` help, from when each is ready."""
        self._processes, self.enabled = processes, enabled
        self._collected: list[_Signed] = []
        self._batches: deque[_Batch] = deque()
        self.count = 0

    def add(self, index: int, signature: str, raw: bytes, key: SignerKey) -> None:
        """Verify this signature soon. Raises: VerificationFailed, at an earlier entry with an invalid signature."""
        if not self.enabled:
            return
        self.count += 1
        self._collected.append(_Signed(index, signature, raw, key))
        if len(self._collected) == BATCH:
            self._collect()
            self._pass_on()
            self._check(WAITING_MAX * len(self._processes))

    def finish(self) -> None:
        """Verify the rest. Raises: VerificationFailed, at the first entry whose signature does not verify."""
        self._collect()
        while any(one.process is None and not one.is_done for one in self._batches):
            self._pass_on()
            # The oldest that no one has begun; meanwhile the others have more to do.
            self._verify_next()
        self._check(0)

    def _collect(self) -> None:
        collected, self._collected = self._collected, []
        if collected:
            self._batches.append(_Batch(collected))

    def _pass_on(self) -> None:
        """Give every process that has nothing to do the oldest batch that no one has begun."""
        for process in self._processes:
            if not process.is_ready:
                continue
            self._take_answer(process)
            waiting = next((one for one in self._batches if one.process is None and not one.is_done), None)
            if waiting is not None:
                waiting.send(process)

    def _take_answer(self, process: SignatureProcess) -> None:
        for one in self._batches:
            if one.process is process:
                one.verify(process.receive())

    def _verify_next(self) -> None:
        waiting = next((one for one in self._batches if one.process is None and not one.is_done), None)
        if waiting is not None:
            waiting.verify([])

    def _check(self, unfinished: int) -> None:
        """Note what is done, oldest first, until so few batches are left. Raises: VerificationFailed."""
        while self._batches:
            oldest = self._batches[0]
            if not oldest.is_done:
                if len(self._batches) <= unfinished:
                    return
                if oldest.process is None:
                    oldest.verify([])
                else:
                    self._take_answer(oldest.process)
            self._batches.popleft()
            if oldest.wrong is not None:
                # They stand in order of entries: no later one is the first that is wrong.
                self._batches.clear()
                self._collected.clear()
                raise oldest.wrong


@contextmanager
def helping(count: int, *, wait: bool = False) -> Iterator[list[SignatureProcess]]:
    """So many processes that verify signatures; they are ended with the block. With ``wait``, they are ready."""
    processes: list[SignatureProcess] = []
    try:
        for _ in range(count if sys.executable else 0):
            with suppress(OSError):
                processes.append(SignatureProcess())
        for one in processes if wait else ():
            one.has_answered(_START_S)
        yield processes
    finally:
        for one in processes:
            one.close()


def helper_count(entries: int) -> int:
    """How many processes beside this one make the verification of this many entries faster."""
    return 0 if entries <= ALONE_MAX else max(1, (os.cpu_count() or 1) - 1)
