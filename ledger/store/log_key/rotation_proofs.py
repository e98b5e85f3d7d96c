"""How a log replaced its key, as its own entries prove it, for programs and people that kept any of its keys.

The answer is ``{"rotations":[{"entry":...,"receipt":...},...],"v":1}``: each entry in base64, and its receipt under the
checkpoint that ends with it, which the old key and the new one sign (``with_rotations`` of :mod:`ledger.verifier`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ledger.commands.entry import Entry
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.facts import Facts
from ledger.log.checkpoint import receipt
from ledger.log.verification import log_key_changes, with_rotations
from ledger.store.cosignatures import checkpoint_at
from ledger.store.engine import Executor
from ledger.store.merkle_tables import entries_of_kind
from ledger.store.snapshot import Log
from ledger.verifier import LOG_KEY_ROTATION, LogKey, Policy, to_base64
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

Trust = LogKey | Policy
"""The log's key, or all keys that it had, each for its own sizes."""
_NONE: Final = c.dump({"rotations": [], "v": 1}).decode()


def rotations_of(connection: Executor, positions: Iterable[int]) -> str:
    """The rotations at these entries, in their order. Raises: KeyError, if the book lacks one."""
    found: list[c.Json] = []
    for index in positions:
        ended = Log(connection, index + 1)
        if Entry.parse(ended.entry(index)).kind != LOG_KEY_ROTATION:
            # The log's first key is known from its suspension on, where that comes first.
            continue
        note = checkpoint_at(connection, index + 1)
        proven = receipt(index, ended.tree.proof(index), note)
        found.append({"entry": to_base64(ended.entry(index)), "receipt": proven})
    return c.dump({"rotations": found, "v": 1}).decode() if found else _NONE


def rotation_places(facts: Facts) -> list[int]:
    """The entries that replaced the log's key, as the state names them; the first may be one that suspended it."""
    return sorted({one.index for one in facts.keys_of(LEDGER_ACTOR)})


def all_rotations(connection: Executor) -> str:
    """Every rotation of the log, sought among all entries. Raises: KeyError."""
    return rotations_of(connection, (index for index, _ in entries_of_kind(connection, LOG_KEY_ROTATION)))


def trusted(connection: Executor, key: LogKey, places: Iterable[int] | None = None) -> Trust:
    """One key of a log, and all others that it had if it was ever replaced.

    Args:
        places: the entries that replaced it, where they are known.

    Raises:
        Malformed: if a rotation is not proven, or the key is none of the log's.
    """
    try:
        found = all_rotations(connection) if places is None else rotations_of(connection, places)
    except KeyError as error:
        raise Malformed("rotations", f"cannot be proven: the book lacks {error}") from None
    # What a stolen key signed before its revocation is in the book's own history, and compared with the entries.
    return key if found == _NONE else replace(with_rotations(key, found), revoked={})


def signs_beside(connection: Executor, key: LogKey, places: Iterable[int]) -> tuple[LogKey, int] | None:
    """The key before the log's newest one, and the last size that both sign; None for a log that had one key.

    Raises:
        Malformed, KeyError: if a rotation is not proven.
    """
    newest = log_key_changes(rotations_of(connection, places))[-1:]
    return next(((one.old, one.index + 1 + one.overlap) for one in newest if one.new == key), None)


def first_x(trust: Trust, key: LogKey) -> str:
    """The key that a log began with, as its entries spell it."""
    return c.base64url((trust.first_keys(key.origin)[0] if isinstance(trust, Policy) else key).public)
