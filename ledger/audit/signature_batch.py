"""Signatures gathered while entries are decided again, and verified by other hands meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ledger.audit.log_chunk import Signed, Wrong, first_wrong
from ledger.audit.worker_pool import Hands
from ledger.crypto.organisation_keys import SignerKey
from ledger.log.verification_findings import Broken

_SHARE: Final = 256


class SignaturePool:
    """What is not yet known of signatures, in order of entries. ``asked=False`` verifies nothing."""

    def __init__(self, hands: Hands, *, asked: bool = True) -> None:
        """Nothing gathered yet."""
        self._hands, self._asked = hands, asked
        self._gathered: list[Signed] = []
        self._given: deque[Callable[[], Wrong | None]] = deque()
        self.count = 0

    def gather(self, index: int, signature: str, raw: bytes, key: SignerKey) -> None:
        """Verify this one. Raises: Broken, at an earlier entry whose signature does not verify."""
        if not self._asked:
            return
        self.count += 1
        self._gathered.append((index, signature, raw, key.x))
        if len(self._gathered) == _SHARE:
            self._give()
            self._settle(self._hands.ahead)

    def finish(self) -> None:
        """Verify what is left. Raises: Broken, at the first entry whose signature does not verify."""
        self._give()
        self._settle(0)

    def _give(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._given.append(self._hands.give(first_wrong, gathered))

    def _settle(self, waiting: int) -> None:
        while len(self._given) > waiting:
            if (wrong := self._given.popleft()()) is not None:
                # Nothing later is the first.
                self._given.clear()
                self._gathered.clear()
                raise Broken(*wrong)
