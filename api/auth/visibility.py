"""What a caller may not see does not exist for it: one answer for what is hidden and for what never was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from api.auth.authorisation import sees_entry
from api.http.problems import Problem
from ledger.domain.commands import parse_ref
from ledger.domain.entries import Entry
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c

if TYPE_CHECKING:
    from api.auth.authorisation import Caller
    from ledger.domain.facts import Facts, Partition
    from ledger.store.snapshot import Past, Snapshot

T = TypeVar("T")


def seen(found: T | None, sees: Callable[[T, Facts], bool], facts: Facts, what: str) -> T:
    """The thing, if the caller may see it. Raises: Problem."""
    if found is None or not sees(found, facts):
        raise missing(what)
    return found


def missing(what: str) -> Problem:
    """There is no such thing."""
    return Problem(Code.NOT_FOUND, f"there is no {what}")


def partition_at(facts: Facts, ref: str, field: str, caller: Caller) -> Partition:
    """A partition by its reference. Raises: Malformed, Problem."""
    found = facts.partitions.get(parse_ref(ref, field))
    return seen(found, caller.sees_partition, facts, f"partition {ref}")


def entry_of(facts: Snapshot | Past, name: str, caller: Caller) -> tuple[int, Entry]:
    """The entry of a command by the command's id. Raises: Malformed, Problem."""
    index = facts.entry_index(c.name(name, "id"))
    entry = None if index is None else Entry.parse(facts.entry(index))
    if index is None or entry is None or not sees_entry(caller, entry, facts):
        raise Problem(Code.NOT_FOUND, f"no entry has the id {name}", field="id", id=name)
    return index, entry
