"""``--verbose``: digests, ids and arithmetic, which a command shows to people on request only."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

HELP: Final = "Show digests, ids and arithmetic, too."
_WANTED: Final = ContextVar("verbose", default=False)
_ORDERS: Final = re.compile(r" \(order [^()]*\)")
"""The Rényi orders in a sentence about an account, for readers who check the arithmetic."""


def set_verbose(*, wanted: bool) -> None:
    """Set whether the running command shows digests, ids and arithmetic."""
    _WANTED.set(wanted)


def is_verbose() -> bool:
    """Whether the running command shows digests, ids and arithmetic."""
    return _WANTED.get()


def plain(sentence: str) -> str:
    """A sentence without its arithmetic, unless the command is verbose."""
    return sentence if is_verbose() else _ORDERS.sub("", sentence)
