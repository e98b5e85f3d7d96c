"""A chunk of the log read by itself: all that can be checked of stored entries without the state.

Of a long book other processes do this ahead of the one that applies (:mod:`ledger.audit.worker_pool`), so what comes in
and what goes out is plain values.
"""

from __future__ import annotations

from typing import NamedTuple

from ledger.commands.apply import Effect
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import Read, read_entry
from ledger.crypto.detached_jws import verify
from ledger.crypto.organisation_keys import key_of
from ledger.domain.decision import Rejected
from ledger.verifier import leaf_hash, state_entry_secret
from ledger.wire.malformed import Malformed

FAULTS = (Malformed, Rejected, LookupError, AssertionError, ValueError, ArithmeticError, TypeError, AttributeError)
"""What reading or applying an entry that is wrong may raise."""
Stored = tuple[int, str, str, int, bytes]
"""An entry's position, the id, kind and time it is filed under, and its bytes."""
Signed = tuple[int, str, bytes, str]
"""The entry's index, the detached JWS, the bytes it is over, and the key as the registry keeps it."""
Wrong = tuple[int, str]
"""The index of an entry, and what is wrong with it."""


class Chunk(NamedTuple):
    """Some entries, read up to the first that is wrong.

    Attributes:
        start: the index of the first.
        leaves: their leaf hashes.
        effects: what applying each takes, or the whole of it.
        marks: of each its id, kind and the least time after it, and its secret (ledger.verifier.state_entry_secret).
        times: of the first, and the least one after the last; None if there is none.
    """

    start: int
    leaves: list[bytes]
    effects: list[Effect]
    marks: list[tuple[str, str, int, bytes]]
    times: tuple[int, int] | None
    wrong: Wrong | None


def read_chunk(start: int, stored: list[Stored], *, whole: bool) -> Chunk:
    """Read what is stored from the index ``start`` on: ``whole`` entries, or what applying them takes.

    Every entry must stand at its place, have canonical bytes and bounded fields, be filed under its own id, kind and
    time, and be no older than the one before it.
    """
    wrong: Wrong | None = None
    leaves: list[bytes] = []
    read: list[Effect] = []
    marks: list[tuple[str, str, int, bytes]] = []
    first, least = None, 0
    take = _entire if whole else read_entry
    for index, (position, name, kind, time, data) in enumerate(stored, start):
        try:
            if index != position:
                raise Malformed("", "is missing")
            taken = take(data)
            if taken[:3] != (name, kind, time):
                raise Malformed("", "is filed under an id, kind or time that is not its own")
            if time < least:
                raise Malformed("time", "lies before the time of the entry before it")
        except FAULTS as error:
            wrong = index, describe_error(error)
            break
        first, least = time if first is None else first, taken.time_after
        read.append(taken.effect)
        leaves.append(leaf_hash(data))
        marks.append((name, kind, taken.time_after, state_entry_secret(data)))
    return Chunk(start, leaves, read, marks, None if first is None else (first, least), wrong)


def _entire(data: bytes) -> Read:
    entry = Entry.parse(data)
    return Read(entry.id, entry.kind, entry.time, entry)


def describe_error(error: Exception) -> str:
    """An error in one sentence."""
    return f"names {error}, which does not exist" if isinstance(error, KeyError) else str(error)


def first_wrong(share: list[Signed]) -> Wrong | None:
    """The first of some entries whose signature does not verify, and why."""
    for index, signature, raw, key in share:
        try:
            verify(signature, raw, key_of(key))
        except Malformed as error:
            return index, str(error)
    return None
