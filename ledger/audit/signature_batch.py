"""The signatures over the commands of a log, verified in batches behind the entries that are decided again.

A batch is a task of another process where there is one: what goes in and what comes out is plain values. This module
imports little, so that a process that does only this starts fast.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ledger.audit.worker_pool import WorkerPool
from ledger.crypto.detached_jws import verify
from ledger.crypto.organisation_keys import SignerKey, key_of
from ledger.log.verification_findings import VerificationFailed
from ledger.wire.malformed import Malformed

Signed = tuple[int, str, bytes, str]
"""The entry's index, the detached JWS, the bytes it is over, and the key as the registry keeps it."""
Wrong = tuple[int, str]
"""The index of an entry, and what is wrong with it."""
_BATCH: Final = 256
"""Signatures that are verified together."""


class SignatureBatch:
    """The signatures that are not verified yet, in order of entries. ``enabled=False`` verifies nothing."""

    def __init__(self, pool: WorkerPool, *, enabled: bool = True) -> None:
        """Begin with no signature."""
        self.pool, self._enabled = pool, enabled
        self._collected: list[Signed] = []
        self._results: deque[Callable[[], Wrong | None]] = deque()
        self.count = 0

    def add(self, index: int, signature: str, raw: bytes, key: SignerKey) -> None:
        """Verify this signature soon. Raises: VerificationFailed, at an earlier entry with an invalid signature."""
        if not self._enabled:
            return
        self.count += 1
        self._collected.append((index, signature, raw, key.x))
        if len(self._collected) == _BATCH:
            self._submit()
            self._check(self.pool.ahead)

    def finish(self) -> None:
        """Verify the rest. Raises: VerificationFailed, at the first entry whose signature does not verify."""
        self._submit()
        self._check(0)

    def _submit(self) -> None:
        collected, self._collected = self._collected, []
        if collected:
            self._results.append(self.pool.submit(first_wrong, collected))

    def _check(self, unfinished: int) -> None:
        while len(self._results) > unfinished:
            if (wrong := self._results.popleft()()) is not None:
                # The results come in order of entries: no later one is the first that is wrong.
                self._results.clear()
                self._collected.clear()
                raise VerificationFailed(*wrong)


def first_wrong(share: list[Signed]) -> Wrong | None:
    """The first of some entries whose signature does not verify, and why."""
    for index, signature, raw, key in share:
        try:
            verify(signature, raw, key_of(key))
        except Malformed as error:
            return index, str(error)
    return None
