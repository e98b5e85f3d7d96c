"""The sizes that the statements of a log describe, read before its entries are folded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ledger.commands.entry_reader import read_entry
from ledger.commands.governance.state_statement import Stated
from ledger.wire.malformed import Malformed

_UNREADABLE: Final = (Malformed, LookupError, AssertionError, ArithmeticError, TypeError, AttributeError, ValueError)


def stated_sizes(entries: Iterable[tuple[int, bytes]]) -> list[int]:
    """The sizes that statements describe, each larger than the one before.

    What is wrong is left out, and found when the entry has its turn.

    Args:
        entries: the positions and bytes of the entries that are stored as statements, in order.
    """
    sizes = [0]
    for position, data in entries:
        try:
            effect = read_entry(data).effect
        except _UNREADABLE:
            continue
        if isinstance(effect, Stated) and sizes[-1] < effect.size <= position:
            sizes.append(effect.size)
    return sizes[1:]
