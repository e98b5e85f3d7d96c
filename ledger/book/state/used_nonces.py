"""The nonces that the newest entries hold, so that of two commands with one nonce the later is not recorded.

Who submits a command that answers a challenge has looked for its nonce in the entries that it could read. The writer
looks in these when it decides: every entry since, those that it has not committed yet among them.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from ledger.commands.registry import CLIENT_KINDS

ANSWERING: Final = tuple(name for name, kind in CLIENT_KINDS.items() if "nonce" in kind.body.__struct_fields__)
"""The kinds of command that answer a challenge."""
KEPT_MS: Final = 600_000
"""How long the nonces of an entry are kept: no command waits so long from the look at the entries to its decision."""
_NONCE: Final = re.compile(rb'"nonce":"([^"]*)"')
"""A member of that name: no quote is bare inside a text of canonical JSON."""


class UsedNonces:
    """The nonces of the entries of the last ten minutes, for the one thread that appends to the log."""

    def __init__(self) -> None:
        """None yet: those of before the book was opened are read by the route that takes a command."""
        self._entries: dict[str, int] = {}
        self._times: deque[tuple[int, str]] = deque()

    def note(self, index: int, kind: str, time: int, data: bytes) -> None:
        """Note the nonces that an entry of this time (ms) holds, refused or not; the first entry with one counts."""
        if kind not in ANSWERING:
            return
        for found in _NONCE.findall(data):
            nonce = found.decode()
            if self._entries.setdefault(nonce, index) == index:
                self._times.append((time, nonce))
        while self._times and self._times[0][0] < time - KEPT_MS:
            del self._entries[self._times.popleft()[1]]

    def entry_with(self, nonce: str) -> int | None:
        """The index of the first entry with a nonce; None if no entry of the last ten minutes holds it."""
        return self._entries.get(nonce)
