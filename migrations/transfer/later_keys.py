"""Keys that a log came to have, as far as a damaged book shows: which it proves, and which its entries name alone.

A rotation is proven by its entry and the checkpoint over it, which both keys sign. Where that checkpoint is damaged,
the entry still bears the signature of the key that it retires: so it names the next key, by which kept checkpoints and
notes are known as this log's. Where the entry is damaged too, it is known at most that there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.exc import DatabaseError

from ledger.commands.entry import Entry
from ledger.commands.signing_keys.log_key_rotation import RotateLogKey
from ledger.crypto import detached_jws
from ledger.store.log_key.rotation_proofs import Trust, trusted
from ledger.store.tables import ENTRY
from ledger.verifier import LOG_KEY_ROTATION, LogKey, Policy
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

_PLACES: Final = select(ENTRY.c.position).where(ENTRY.c.kind == LOG_KEY_ROTATION).order_by(ENTRY.c.position)
_DATA: Final = select(ENTRY.c.data).where(ENTRY.c.position == bindparam("position"))
UNREADABLE: Final = (DatabaseError, UnicodeDecodeError)
"""What reading a damaged row may raise."""


class LogKeys(NamedTuple):
    """The keys of a log, by a book that may be damaged.

    Attributes:
        trust: the known key, with all others that the book proves.
        later: keys that entries signed by these name, in order, and that the book does not prove.
        unproven: the first entry that replaces the log's key, and is not proven; None if there is none.
    """

    trust: Trust
    later: tuple[LogKey, ...]
    unproven: int | None


def keys_in(connection: Connection, key: LogKey) -> LogKeys:
    """The keys of a log of which one is known."""
    places = [*_places(connection)]
    trust, proven = _proven(connection, key, places)
    later: dict[str, LogKey] = {}
    known = {c.base64url(one.public) for one in logs_of(trust)}
    for place in places[proven:]:
        with suppress(*UNREADABLE, Malformed):
            body = _rotation(bytes(connection.execute(_DATA, {"position": place}).scalar_one()))
            if body.retires.x in known | later.keys() and body.key.x not in known:
                later[body.key.x] = LogKey(key.origin, c.unbase64url(body.key.x, "key"))
    return LogKeys(trust, tuple(later.values()), places[proven] if proven < len(places) else None)


def logs_of(trust: Trust) -> tuple[LogKey, ...]:
    """The keys of the log that are trusted."""
    return trust.logs if isinstance(trust, Policy) else (trust,)


def _places(connection: Connection) -> Iterator[int]:
    """The entries that replace the log's key, as far as rows can be read."""
    with suppress(*UNREADABLE):
        for (place,) in connection.execute(_PLACES):
            yield int(place)


def _proven(connection: Connection, key: LogKey, places: list[int]) -> tuple[Trust, int]:
    """The key with all that as many rotations prove as possible, and how many those are."""
    for count in range(len(places), 0, -1):
        with suppress(*UNREADABLE, Malformed):
            return trusted(connection, key, places[:count]), count
    return key, 0


def _rotation(data: bytes) -> RotateLogKey:
    """A rotation that the key which it retires has signed. Raises: Malformed."""
    entry = Entry.parse(data)
    body = entry.command_body
    if not isinstance(body, RotateLogKey):
        raise Malformed("kind", f"must be {LOG_KEY_ROTATION}")
    detached_jws.verify(entry.signature, entry.command.to_bytes(), body.retires)
    return body
