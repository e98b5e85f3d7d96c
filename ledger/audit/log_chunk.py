"""A chunk of the log: every check of stored entries that needs no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ledger.audit.run_entry import SignedRun, read_signed
from ledger.commands.apply import Effect
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import Read, read_entry
from ledger.domain.decision import Rejected
from ledger.verifier import leaf_hash
from ledger.wire.malformed import Malformed

FAULTS = (Malformed, Rejected, LookupError, AssertionError, ValueError, ArithmeticError, TypeError, AttributeError)
"""Errors that reading or applying an invalid entry may raise."""
Wrong = tuple[int, str]
"""The index of an entry, and its error."""
Stored = tuple[int, str, str, int, bytes]
"""An entry's position, the id, kind and time that it is stored under, and its bytes."""


class Chunk(NamedTuple):
    """A chunk of entries, read up to the first invalid one.

    Attributes:
        start: the index of the first.
        leaves: their leaf hashes.
        read: what applying each takes, what deciding it again takes, or the whole of it.
        times: of each, the least one after it.
    """

    start: int
    leaves: list[bytes]
    read: list[Effect | SignedRun]
    times: list[int]
    wrong: Wrong | None


def read_chunk(start: int, stored: list[Stored], last: int, *, whole: bool) -> Chunk:
    """Read what is stored from the index ``start`` on: to decide it again, if ``whole``, or what applying it takes.

    Every entry must be at its place, have canonical bytes and bounded fields, be stored under its own id, kind and
    time, and be no older than the one before it; ``last`` is the least time of the first.
    """
    wrong: Wrong | None = None
    leaves: list[bytes] = []
    effects: list[Effect | SignedRun] = []
    times: list[int] = []
    take: Callable[[bytes], tuple[Read, Effect | SignedRun]] = _entire if whole else _effect
    for index, (position, name, kind, time, data) in enumerate(stored, start):
        try:
            if index != position:
                raise Malformed("", "is missing")
            read, consumed = take(data)
            if (read.id, read.kind, read.time) != (name, kind, time):
                raise Malformed("", "is filed under an id, kind or time that is not its own")
            if time < last:
                raise Malformed("time", "lies before the time of the entry before it")
        except FAULTS as error:
            wrong = index, describe_error(error)
            break
        last = read.time_after
        effects.append(consumed)
        leaves.append(leaf_hash(data))
        times.append(last)
    return Chunk(start, leaves, effects, times, wrong)


def _effect(data: bytes) -> tuple[Read, Effect]:
    read = read_entry(data)
    return read, read.effect


def _entire(data: bytes) -> tuple[Read, Effect | SignedRun]:
    if (run := read_signed(data)) is not None:
        return run.read, run
    entry = Entry.parse(data)
    return Read(entry.id, entry.kind, entry.time, entry), entry


def describe_error(error: Exception) -> str:
    """An error in one sentence."""
    return f"names {error}, which does not exist" if isinstance(error, KeyError) else str(error)
