"""Which account proofs would let their reader try out values of records that it may not see exactly.

A proof has the hash of each subtree beside the account's way to the root. A leaf's hash is salted by the last entry
that touched its record, so who reads that entry computes the salt: a bank's own charge touches the account that it
shares with others, too. Where every leaf below a hash has a salt that the reader knows, it compares the hash with that
of each value that it thinks possible, and a shared account that is shown rounded is known exactly. One salt that it
does not know makes a hash useless for that. After the next statement of the state another entry may have touched it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from api.auth.authorisation import Caller, sees_entry
from ledger.book.past_snapshot import PastSnapshot
from ledger.book.state.state_statements import StatedTree
from ledger.commands.entry import Entry
from ledger.domain.facts import GLOBAL, Account, holder_of
from ledger.domain.roles import TDC, TSO
from ledger.state_tree.leaves import SPANS, StatedRecord, leaf_name
from ledger.state_tree.sparse_tree import Leaf
from ledger.store.snapshot import Snapshot
from ledger.verifier import state_entry_secret, state_key, state_salt
from policy.planning.shared_account import is_rounded

ENTRIES_MAX: Final = 4_096
"""The newest entries in which the salt of a record is looked for; an older one counts as known."""
_READ: Final = 256
_RECORDS_MAX: Final = 16
"""Hidden records of one subtree that are looked at: one unknown salt is enough."""


class _Hidden(NamedTuple):
    """A record that the caller may not see exactly: its leaf's name and salt."""

    name: bytes
    salt: bytes


class ProofReader:
    """Who is to be shown a proof of a stated tree, from which facts, at what time (ms)."""

    def __init__(self, caller: Caller, facts: Snapshot | PastSnapshot, now: int, stated: StatedTree) -> None:
        """Nothing is looked up yet."""
        self._caller, self._facts, self._now, self._stated = caller, facts, now, stated
        known = facts.organisations.get(caller.organisation)
        self._nodes = frozenset[int]() if known is None else frozenset(node for _, node in known.moves)

    def can_guess(self, partition: str, holders: Iterable[str]) -> bool:
        """Whether a hash beside the accounts of some holders could be compared with guesses."""
        if self._caller.sees_all or TSO in self._caller.roles:
            return False
        subtrees = (one for holder in holders for one in self._stated.tree.beside(_key(partition, holder)))
        beside = [self._hidden(one) for one in subtrees]
        return self._any_known([some for some in beside if some])

    def _hidden(self, leaves: Iterable[Leaf]) -> set[_Hidden]:
        """Hidden records of a subtree; none too where the salt of one cannot be known."""
        found = set[_Hidden]()
        for record in islice((one.content for one in leaves if self._hides(one.content)), _RECORDS_MAX):
            if self._touches_never(record):
                return set()
            found.add(_Hidden(record.name, record.salt))
        return found

    def _hides(self, record: StatedRecord) -> bool:
        """Whether the caller may not see an account, or what an author has charged, exactly."""
        if record.part == SPANS:
            others = record.key[0] not in self._nodes
            refs = (ref for ref, *_ in record.value.sums) if others else ()
            return not all(self._caller.watches(self._facts.partitions[ref]) for ref in refs)
        if record.part != "accounts":
            return False
        ref, holder = record.key
        partition = self._facts.partitions[ref]
        if holder != GLOBAL:
            return not self._caller.sees_account(partition, holder, self._facts)
        if self._caller.watches(partition) or not is_rounded(self._facts, partition, self._now):
            return False
        # What no one else has a part of is shown exactly.
        return all(one is None or one.loss != record.value.loss for one in self._own(ref))

    def _own(self, ref: str) -> Iterator[Account | None]:
        """The caller's own accounts of a partition, as the tree has them."""
        for node in self._nodes:
            leaf = self._stated.tree.path(_key(ref, holder_of(node))).leaf
            yield None if leaf is None else leaf.content.value

    def _touches_never(self, record: StatedRecord) -> bool:
        """Whether no entry that a consumer sees has touched everyone's account: it has no part of the partition."""
        if record.part == SPANS or record.key[1] != GLOBAL or set(self._caller.roles) != {TDC}:
            return False
        return not any(self._own(record.key[0]))

    def _any_known(self, beside: list[set[_Hidden]]) -> bool:
        """Whether of any subtree every salt is known, as far as the newest entries show."""
        for data in self._newest():
            if not beside:
                return False
            secret = state_entry_secret(data)
            touched = {one for some in beside for one in some if state_salt(secret, one.name) == one.salt}
            if touched and not sees_entry(self._caller, Entry.parse(data), self._facts):
                beside = [some for some in beside if touched.isdisjoint(some)]
            elif touched:
                beside = [some - touched for some in beside]
            if not all(beside):
                return True
        return bool(beside)

    def _newest(self) -> Iterator[bytes]:
        """Entries before the tree's size, the newest first."""
        size = self._stated.size
        for stop in range(size, max(0, size - ENTRIES_MAX), -_READ):
            yield from reversed([*self._facts.entries(max(0, stop - _READ), stop)])


def _key(partition: str, holder: str) -> bytes:
    return state_key(leaf_name("accounts", (partition, holder)))
