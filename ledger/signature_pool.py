"""Signatures gathered while entries are replayed, and verified on every core at once.

The library lets go of the interpreter while it verifies, so threads are enough; who replays waits meanwhile, which
costs less than two that take turns.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from ledger.broken import Broken
from ledger.malformed import Malformed
from ledger.organisation_key import SignerKey
from ledger.signatures import verify

Signed = tuple[int, str, bytes, SignerKey]
"""The entry's index, the detached JWS, the bytes it is over, and the key."""
_SHARE = 32


class SignaturePool:
    """As many threads as there are cores. ``asked=False`` verifies nothing."""

    def __init__(self, *, asked: bool = True) -> None:
        """Nothing gathered yet."""
        self._asked = asked
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="signatures")
        self._gathered: list[Signed] = []
        self.count = 0

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        """End the threads."""
        self._pool.shutdown()

    def gather(self, index: int, signature: str, raw: bytes, key: SignerKey) -> None:
        """Keep one for :meth:`verify`."""
        if self._asked:
            self._gathered.append((index, signature, raw, key))

    def verify(self) -> None:
        """Verify all that was gathered. Raises: Broken, at the first entry whose signature does not verify."""
        gathered, self._gathered = self._gathered, []
        shares = [gathered[start : start + _SHARE] for start in range(0, len(gathered), _SHARE)]
        for found in self._pool.map(_first_wrong, shares):
            if found is not None:
                raise found
        self.count += len(gathered)


def _first_wrong(share: Sequence[Signed]) -> Broken | None:
    for index, signature, raw, key in share:
        try:
            verify(signature, raw, key)
        except Malformed as fault:
            return Broken(index, str(fault))
    return None
