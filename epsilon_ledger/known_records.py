"""Which sets of a local book hold which records of a run, and where the rest is entered.

A book of before holds records by names that are no longer given, and from the name that a record has now no one
computes those. So when such a record is in a run, its name is entered beside: in a set that *follows* those that hold
the record, and is never charged itself. Who finds a record there charges the sets that it follows, with all that the
record lost before. A set says which it follows by commitments of its own, which are those of no record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from client.dataset_files.record_commitments import commitment
from epsilon_ledger.record_names import RecordNames


class Found(NamedTuple):
    """Where the records of a run are.

    Attributes:
        touched: the sets to charge, each once.
        new: the names of records that no set holds.
        beside: names to enter in a set that follows these sets.
    """

    touched: list[str]
    new: set[bytes]
    beside: dict[frozenset[str], set[bytes]]


def find_records(
    names: RecordNames, key: bytes, refs: Sequence[str], held: Iterable[tuple[str, frozenset[bytes]]]
) -> Found:
    """Look for records in the sets of a book.

    Args:
        names: of the records.
        key: of the book's commitments.
        refs: of all its sets.
        held: each set with its commitments.
    """
    known = [
        (commitment(key, name), tuple(commitment(key, other) for other in names.known_as(place)))
        for place, name in enumerate(names.names)
    ]
    holders, named = dict[int, set[str]](), set[int]()
    for ref, theirs in held:
        places = [place for place, (_, others) in enumerate(known) if not theirs.isdisjoint(others)]
        if places:
            charged = {other for other in refs if commitment(key, follows(ref, other)) in theirs} or {ref}
            for place in places:
                holders.setdefault(place, set()).update(charged)
            named.update(place for place in places if known[place][0] in theirs)
    by_name = dict[bytes, set[str]]()
    for place in holders.keys() - named:
        by_name.setdefault(names.names[place], set()).update(holders[place])
    beside = dict[frozenset[str], set[bytes]]()
    for name, charged in by_name.items():
        beside.setdefault(frozenset(charged), set()).add(name)
    # Of two records that share a name, one may be in a book of before by its own bytes and the other not.
    new = {name for place, name in enumerate(names.names) if place not in holders} - by_name.keys()
    every = set[str]().union(*holders.values())
    return Found([ref for ref in refs if ref in every], new, beside)


def follows(ref: str, other: str) -> bytes:
    """What a set commits to if it follows another."""
    return f"follows\n{ref}\n{other}".encode()
