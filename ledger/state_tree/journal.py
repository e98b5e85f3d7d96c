"""What entries have changed since the state was last stated, and the tree of what was stated.

A statement may describe the state some thousand entries before its own place, so the changes of the last entries are
kept entry by entry. Moving on to a size takes what they changed up to there; to hash it into the tree is another step,
which another thread may do. Where the log is at hand, the sizes that its statements describe are known beforehand; and
a process that no other appends beside describes the state that there is. Then changes are summed up at once, and of
each record only the last entry that touched it is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ledger.commands.governance.state_statement import DISTANCE_MAX, STATEMENT
from ledger.domain.charge_record import Charge
from ledger.domain.outcomes import ChargeState
from ledger.domain.span_sums import SpanSums
from ledger.state_tree.leaves import CUTS, LOG, PARTS, SPANS, LogFacts, SpanFacts, leaf_name, salted
from ledger.state_tree.sparse_tree import PIECE, Leaf, SparseTree
from ledger.verifier import state_key
from ledger.wire.malformed import Malformed

_WORD: Final = 8
_NOTHING: Final[tuple[Any, bytes]] = None, b""
_LATER: Final = SpanFacts(-1, ())
"""In place of the sums of a bucket that are looked up when the state is stated."""
_ID, _CHARGE, _KEY = (bytes([kind]) for kind in range(3))
"""How a name is used: of the entry, of a charge that it changes, of a key that it binds."""


Noted = tuple[str, Any, Any]
"""A part of the state, a key, and the record that was set there; None for a charge that was settled before."""


class TrackedPart(dict[Any, Any]):
    """A part of the state that notes each record that is set."""

    def __init__(self, part: str, changes: list[Noted]) -> None:
        """An empty part; ``changes`` gets its name, the record's key and the record."""
        super().__init__()
        self._part, self._changes = part, changes

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401 - of any part
        super().__setitem__(key, value)
        self._changes.append((self._part, key, value))


class _Touched(Struct, frozen=True):
    """One entry: its time, whether it is a statement, its secret, the names it uses, and the records it set."""

    time: int
    states: bool
    secret: bytes
    names: bytes
    changes: list[Noted]


class StateChanges(NamedTuple):
    """What differs between two sizes: by part and key, the record (None if it is gone) and the secret of its entry.

    Attributes:
        size: the later size.
        names: the names that are used up to there, in pieces, where the journal keeps them.
    """

    size: int
    records: dict[tuple[str, Any], tuple[Any, bytes]]
    names: tuple[bytes, ...] = ()

    def then(self, later: StateChanges) -> StateChanges:
        """These and later changes together."""
        return later._replace(records={**self.records, **later.records})

    def applied(self, tree: SparseTree, rest: Callable[[], object] | None = None) -> SparseTree:
        """The tree at the later size, from that of the earlier.

        Args:
            rest: is called a few records apart, where others wait.
        """
        records, gone, stand = iter(self.records.items()), list[bytes](), list[Leaf]()
        while some := [*islice(records, PIECE)]:
            gone += [state_key(leaf_name(*place)) for place, (value, _) in some if value is None]
            stand += [salted(*place, *one).leaf for place, one in some if one[0] is not None]
            if rest is not None:
                rest()
        return tree.updated(gone, stand, rest)


class StateJournal:
    """The changes since the stated size; one thread adds to it and moves it on.

    Attributes:
        changes: what was set since the last entry was recorded; for :class:`TrackedPart`.
        stated: the size that the newest statement describes, 0 if there is none.
        is_alone: whether every statement to come describes the state at its moment, as no other process appends.
    """

    def __init__(
        self, changes: list[Noted] | None = None, sums: SpanSums | None = None, *, keeps_names: bool = False
    ) -> None:
        """Of an empty log.

        Args:
            changes: gets what is set.
            sums: those of the state, if it keeps any.
            keeps_names: whether the names that are used are kept, for a snapshot of the state.
        """
        self.changes: list[Noted] = [] if changes is None else changes
        self._pending: dict[str, Charge] = {}
        self._keeps_sums = sums is None
        self._sums = SpanSums() if sums is None else sums
        self.stated = 0
        self.is_alone = False
        self._named = sha256()
        self._names: list[bytes] | None = [] if keeps_names else None
        self._new_names = bytearray()
        self._entries: deque[_Touched] = deque()
        self._first = 0
        self._records: dict[tuple[str, Any], tuple[Any, bytes]] = {}
        self._since: int | None = None
        self._last: _Touched | None = None
        self._summed_from = 0
        self._expected: deque[int] = deque()
        self._made: deque[StateChanges] = deque()

    def parts(self) -> dict[str, TrackedPart]:
        """Empty parts of a state, which note their changes here."""
        return {part: TrackedPart(part, self.changes) for part in PARTS if part not in {CUTS, LOG, SPANS}}

    def resume(self, size: int, names: bytes, pending: Mapping[str, Charge]) -> None:
        """Go on from a stated size, with the names that are used up to there and the charges that are pending."""
        self._first = self.stated = self._summed_from = size
        self._named.update(names)
        self._pending.update(pending)
        if self._names is not None:
            self._names.append(names)

    @property
    def size(self) -> int:
        """How many entries were recorded."""
        return self._first + len(self._entries)

    def expect(self, sizes: Iterable[int]) -> None:
        """Note what the statements describe that will be recorded first of all, in increasing order.

        None of the others may describe a smaller size than the last of these.
        """
        self._expected.extend(one for one in sizes if one > self.size)

    @property
    def ahead(self) -> int:
        """How many entries are to be recorded until the next size that is expected; 0 if there is none."""
        return self._expected[0] - self.size if self._expected else 0

    @property
    def least(self) -> int:
        """The least size that a statement may describe yet."""
        return self._expected[-1] if self._expected else self._summed_from

    @property
    def waiting_since(self) -> int | None:
        """The time (ms) of the first entry that no statement describes; None if at most statements are left over."""
        if self._since is not None:
            return self._since
        return next((one.time for one in self._entries if not one.states), None)

    def record(self, name: str, kind: str, time: int, secret: bytes) -> None:
        """Note the next entry, which was just applied: its id, kind and secret, and the least time (ms) after it."""
        position = self._first + len(self._entries)
        place = position.to_bytes(_WORD)
        # In order: an id comes before all others.
        named, others, kept = _ID + name_digest(name) + place, list[bytes](), list[Noted]()
        for one in self.changes:
            part, key, value = one
            if part == "charges":
                if value is None or (value.index != position and not self._is_lease(value)):
                    others.append(_CHARGE + name_digest(key) + place)
                self._note_charge(key, value, position, kept)
            elif part == "keys" and value.charge is not None:
                others.append(_KEY + name_digest(key) + place)
                if value.charge in self._pending:
                    kept.append(one)
            else:
                if self._keeps_sums and part == "nodes" and key == position:
                    self._sums.cut(key)
                kept.append(one)
        self.changes.clear()
        if others:
            named += others[0] if len(others) == 1 else b"".join(sorted({*others}))
        self._keep(_Touched(time, kind == STATEMENT.name, secret, named, kept))

    def _keep(self, entry: _Touched) -> None:
        """Keep what an entry has changed by itself, or sum it up."""
        if self._expected:
            self._add(entry)
            if self._first == self._expected[0]:
                self._made.append(self._sum(self._expected.popleft()))
        elif self.is_alone:
            if self._entries:
                self._take(len(self._entries))
            self._add(entry)
        else:
            self._entries.append(entry)
            if len(self._entries) > DISTANCE_MAX + 1:
                self._take(1)

    @property
    def sums_up(self) -> bool:
        """Whether of the next entry, as of those before it, the last value of a record is enough."""
        return self.is_alone or self.ahead > 1

    def put_down(self, accounts: Iterable[Noted], last: Mapping[Any, bytes]) -> None:
        """Note accounts that were set, of entries that are summed up; ``last`` has each one's secret."""
        self._take(len(self._entries))
        for part, key, value in accounts:
            self._records[part, key] = value, last[key]

    def _note_charge(self, name: str, charge: Charge | None, position: int, kept: list[Noted]) -> None:
        """Keep what a charge that was set changes in the leaves."""
        if charge is None:
            # It was settled before, and has no leaf.
            return
        pending, sums = self._pending, self._sums
        if charge.index == position:
            if self._keeps_sums:
                sums.add(charge)
            if charge.recipients:
                kept.append((CUTS, position + 1, True))
        elif name not in pending:
            return
        if charge.state is ChargeState.PENDING:
            pending[name] = charge
            kept.append(("charges", name, charge))
        else:
            # Neither it nor its clean room's key is decided on in memory any more.
            pending.pop(name, None)
            if self._keeps_sums:
                sums.settle(charge)
            kept += (("charges", name, None), ("keys", charge.key_id, None))
        place = charge.author, sums.start(charge)
        # Many charges change the same sums: where only the last value is kept, it is looked up when it is needed.
        last_only = self._expected or self.is_alone
        kept.append((SPANS, place, _LATER if last_only else SpanFacts(*sums.bucket(*place))))

    def _is_lease(self, charge: Charge) -> bool:
        """Whether nothing of a charge was set but its leases."""
        before = self._pending.get(charge.id)
        return before is not None and charge.has_leased_since(before)

    def advance(self, size: int) -> StateChanges:
        """Move on to a size that a statement describes, not before the last one; what changed up to there.

        Raises:
            Malformed: if it lies more than :data:`DISTANCE_MAX` entries back, or before the newest statement's.
        """
        if self._made:
            if self._made[0].size != size or self.size - size > DISTANCE_MAX + 1:
                raise Malformed("size", f"the state of {size} entries is not one of the last")
            self.stated = size
            return self._made.popleft()
        if not max(self._first, self.stated) <= size <= self.size:
            raise Malformed("size", f"the state of {size} entries is not one of the last")
        self._take(size - self._first)
        self.stated = size
        return self._sum(size)

    def _sum(self, size: int) -> StateChanges:
        """What changed up to a size since the one before, all of which was taken."""
        if self._last is not None:
            facts = LogFacts(self._named.hexdigest(), self._last.time)
            self._records[LOG, ""] = facts, self._last.secret
        for place, (value, secret) in self._records.items():
            if value is _LATER:
                self._records[place] = SpanFacts(*self._sums.bucket(*place[1])), secret
        found, self._records, self._since, self._summed_from = self._records, {}, None, size
        if self._names is not None and self._new_names:
            self._names.append(bytes(self._new_names))
            self._new_names.clear()
        return StateChanges(size, found, tuple(self._names or ()))

    def _take(self, count: int) -> None:
        """Sum up the changes of the first entries that are kept one by one."""
        for one in (self._entries.popleft() for _ in range(count)):
            self._add(one)

    def _add(self, one: _Touched) -> None:
        """Sum up one entry; what came and went since the size before never had a leaf, and leaves nothing."""
        records, secret = self._records, one.secret
        for part, key, value in one.changes:
            place = part, key
            if value is None:
                before = records.get(place, _NOTHING)[0]
                if before is not None and before.index >= self._summed_from:
                    del records[place]
                    continue
            records[place] = value, secret
        self._named.update(one.names)
        if self._names is not None:
            self._new_names += one.names
        self._last = one
        self._first += 1
        if self._since is None and not one.states:
            self._since = one.time


@lru_cache(maxsize=4_096)
def name_digest(name: str) -> bytes:
    """What the state keeps of a name that is used: the first 8 bytes of its SHA-256."""
    return sha256(name.encode()).digest()[:_WORD]
