"""Out of memory: how PyTorch reports it, which has an error of its own for a GPU alone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from ledger.wire.malformed import Malformed

NO_ROOM: Final = "does not fit into memory"
_MESSAGES: Final = ("can't allocate memory", "Cannot allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is short."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


def raise_if_short(error: Exception, what: str = "what is computed") -> None:
    """No record's doing, and nothing to leave one out for. Raises: MemoryError, if an error says so."""
    if is_out_of_memory(error):
        raise MemoryError(f"{what} {NO_ROOM}") from None


@contextmanager
def refused_if_short(field: str, remedy: str) -> Iterator[None]:
    """Within it, running out of memory is an error of a field. Raises: Malformed, with what helps."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise Malformed(field, f"{NO_ROOM}: {remedy}") from None
