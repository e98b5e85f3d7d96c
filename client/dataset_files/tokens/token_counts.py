"""How often tokens come, of more records than memory holds: which record is one too many of its token.

Tokens of 32 bytes are kept with the places of their records. Beyond some hundred thousand they go to temporary files,
by their first byte, so that equal ones are in the same file, and each file is sorted by itself. The files have no name,
and end with the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

TOKEN_BYTES: Final = 32
KEPT_MAX: Final = 1 << 18
"""Records whose tokens are in memory at a time: 10 MiB."""
_FILES: Final = 256
# Text of numpy drops zeros at the end alone, so texts of one length are equal if their bytes are.
_PLACED: Final = np.dtype([("token", f"S{TOKEN_BYTES}"), ("place", "<u8")])


class TokenCounts:
    """The tokens of records that are added in order."""

    def __init__(self) -> None:
        """None yet."""
        self._count = 0
        self._kept: list[NDArray[np.void]] = []
        self._kept_count = 0
        self._files: list[IO[bytes]] = []
        self._open = ExitStack()

    def add(self, tokens: NDArray[np.uint8]) -> None:
        """The tokens of the next records, of shape (records, 32). Raises: OSError, of a temporary file."""
        placed = np.empty(len(tokens), _PLACED)
        placed["token"] = np.ascontiguousarray(tokens).view(_PLACED["token"]).reshape(-1)
        placed["place"] = np.arange(self._count, self._count + len(tokens), dtype=np.uint64)
        self._kept.append(placed)
        self._count += len(tokens)
        self._kept_count += len(tokens)
        if self._kept_count >= KEPT_MAX:
            self._put_away()

    def excess(self, count_max: int) -> int | None:
        """The place, from 0, of the first record whose token more than ``count_max`` have up to it; None of none.

        Raises:
            OSError: of a temporary file.
        """
        with self._open:
            found = [place for part in self._parts() if (place := _excess(part, count_max)) is not None]
        return min(found, default=None)

    def _parts(self) -> Iterator[NDArray[np.void]]:
        """All that was added, in parts that have no token in common."""
        if not self._files:
            yield np.concatenate([np.empty(0, _PLACED), *self._kept])
            return
        self._put_away()
        for file in self._files:
            file.seek(0)
            yield np.frombuffer(file.read(), _PLACED)

    def _put_away(self) -> None:
        """Move what is in memory to the files."""
        if not self._files:
            new = (tempfile.TemporaryFile() for _ in range(_FILES))  # noqa: SIM115 - closed with the stack
            self._files = [self._open.enter_context(one) for one in new]
        placed = np.concatenate([np.empty(0, _PLACED), *self._kept])
        firsts = placed.view(np.uint8).reshape(len(placed), _PLACED.itemsize)[:, 0]
        order = np.argsort(firsts, kind="stable")
        placed, ends = placed[order], np.cumsum(np.bincount(firsts, minlength=_FILES))
        for file, part in zip(self._files, np.split(placed, ends[:-1]), strict=True):
            file.write(part.tobytes())
        self._kept, self._kept_count = [], 0


def _excess(placed: NDArray[np.void], count_max: int) -> int | None:
    placed = placed[np.argsort(placed["token"], kind="stable")]
    tokens = placed["token"]
    # Sorted by token and, within one, by place: so a record is one too many if it equals that of so many before it.
    beyond = placed["place"][count_max:][tokens[count_max:] == tokens[: max(0, len(tokens) - count_max)]]
    return int(beyond.min()) if len(beyond) else None
