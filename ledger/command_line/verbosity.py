"""``--verbose``: digests, ids and arithmetic, which a command does not show to people unless they ask."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

HELP: Final = "Show digests, ids and arithmetic, too."
_WANTED: Final = ContextVar("verbose", default=False)
_ORDERS: Final = re.compile(r" \(order [^()]*\)")
"""Of a sentence about an account: its orders, which are for those who check the arithmetic."""


def set_verbose(*, wanted: bool) -> None:
    """Say of the running command whether it was asked for more than people need."""
    _WANTED.set(wanted)


def is_verbose() -> bool:
    """Whether the running command was asked for more than people need."""
    return _WANTED.get()


def plain(sentence: str) -> str:
    """A sentence without its arithmetic, unless it was asked for."""
    return sentence if is_verbose() else _ORDERS.sub("", sentence)
