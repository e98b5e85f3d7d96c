"""The proof of one account: a statement's root, the account's leaf under it, and the entries of its runs since.

An account that a merger made since has no leaf yet: those of the organisations that merged are proven instead, with
the merger's entry, and their sum is its balance. A run that two of them knew counts twice in that sum.

:mod:`ledger.verifier` checks it with nothing but the log's key. It shows what that key signed. That the root is that of
the entries, and that no entry since is left out, replay shows. It is for anyone who may see the account: its salt lets
others try balances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final, Literal, NamedTuple

from ledger.book.past_snapshot import PastSnapshot
from ledger.book.state.state_statements import StatedTree
from ledger.commands.command_fields import Parents
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import read_entry
from ledger.commands.organisation_lineage.coalition import COALITION
from ledger.commands.organisation_lineage.collusion import COLLUSION
from ledger.commands.organisation_lineage.merger import ACQUISITION, MERGER
from ledger.commands.organisation_lineage.model_publication import PUBLICATION
from ledger.commands.organisation_lineage.model_transfer import TRANSFER
from ledger.commands.organisation_lineage.split import SPLIT
from ledger.commands.registration.organisation import ORGANISATION
from ledger.commands.runs.charge_entry import Charged, MakeCharge
from ledger.commands.runs.model_release import MODEL_RELEASE
from ledger.commands.runs.settlement import Settled
from ledger.domain.charge_record import Charge
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.organisation_graph import knowers
from ledger.domain.partition_ranges import partitions_within
from ledger.mechanisms.loss import Loss, loss_of
from ledger.state_tree.leaves import leaf_name
from ledger.state_tree.sparse_tree import Path
from ledger.store.snapshot import Snapshot
from ledger.verifier import state_key, to_base64
from ledger.wire.field_types import constant
from ledger.wire.records import Record, write

_MERGERS: Final = frozenset(kind.name for kind in (MERGER, ACQUISITION))
_OTHERS: Final = _MERGERS | {
    kind.name for kind in (COLLUSION, SPLIT, TRANSFER, PUBLICATION, COALITION, MODEL_RELEASE, ORGANISATION)
}
"""Entries that can change what an account holds without being a charge or its settlement.

Who registers knows what was published before.
"""


class ProvenEntry(Record, frozen=True):
    """An entry's exact bytes in base64, and its receipt (C2SP tlog-proof)."""

    entry: str
    receipt: str


class HashAt(Record, frozen=True):
    """The hash beside the way from the root, at a depth; those that are not named are of empty subtrees."""

    depth: int
    hash: str


class OtherLeaf(Record, frozen=True):
    """Another record at the same place, by its hashed name and its leaf hash."""

    hash: str
    key: str


class ProvenLeaf(Record, frozen=True):
    """An account's leaf under the statement's root, or that there is none; the fields are those of the proof."""

    beside: tuple[OtherLeaf, ...]
    holder: str
    record: str | None
    salt: str | None
    siblings: tuple[HashAt, ...]


class ProvenMerger(Record, frozen=True):
    """A merger or acquisition since the statement, and the stated accounts of those of its parents that had one."""

    accounts: tuple[ProvenLeaf, ...]
    merger: ProvenEntry


class AccountProof(Record, frozen=True):
    """What proves an account offline; hashes are in base64.

    Attributes:
        record: the bytes of the account, ``[partition, holder, posted, pending]`` with a loss as ``[finite, infinite]``
            in JSON; None without any charge.
        salt: of its leaf; None without a record.
        charges: the charges that entries since settle, where they are older.
        since: the entries since the statement's size that the caller may see and that change the account.
        hidden: how many more there are, which the caller may not see, or of which it may not see what they cost. Where
            the account is another one than the proof shows, those too that may have changed it in another way: a
            split, a transfer. The next statement of the state has them all.
        merged: of an account that a merger since has made: the mergers that lead to it, the oldest first.
        opened: of charges that name ranges, the entries that opened partitions in these, the oldest first: those that
            say that the partition is in a range, and of a charge with several prices all, which say which one is its.
        origin: of a lineage that began after the statement, and not by a merger, the entry that it began with.
    """

    beside: tuple[OtherLeaf, ...]
    charges: tuple[ProvenEntry, ...]
    hidden: int
    holder: str
    partition: str
    record: str | None
    salt: str | None
    siblings: tuple[HashAt, ...]
    since: tuple[ProvenEntry, ...]
    statement: ProvenEntry
    merged: tuple[ProvenMerger, ...] = ()
    opened: tuple[ProvenEntry, ...] = ()
    origin: ProvenEntry | None = None
    v: Literal[1] = constant(1)


class _Merger(NamedTuple):
    entry: int
    parents: tuple[int, ...]


def account_proof(
    facts: Snapshot | PastSnapshot, stated: StatedTree, partition: str, holder: str, sees: Callable[[Entry], bool]
) -> AccountProof:
    """Prove an account.

    Args:
        facts: the book, which has the statement's entry.
        stated: the newest stated tree.
        partition: whose budget, ``provider/dataset/partition``.
        holder: ``global`` or ``lineage:N``. Who may see a merged lineage's account may see those that it joins.
        sees: whether the caller may see an entry.
    """
    own = _leaf(stated, partition, holder)
    touching = [*_touching(facts, stated.size, partition, holder)]
    others = [*_others(facts, stated.size)]
    mergers = _mergers_to(holder, {one.entry: one for one in others if isinstance(one, _Merger)}, stated.size)
    now = facts.accounts.get((partition, holder))
    held = [] if now is None else _flat(now.posted, now.pending)
    explained = _sum(stated, partition, holder, mergers, touching) == held
    # What came of an account that is not shown would say nothing.
    begins = explained or own.record is not None
    openings = {charge.index: _openings(facts, charge, partition) for _, charge in touching}
    seen = {index for index in {*chain(*openings.values())} if sees(Entry.parse(facts.entry(index)))}
    shown = {
        index: charge
        for index, charge in touching
        # Of several prices the openings say which one is the partition's.
        if begins
        and (len(charge.prices) == 1 or seen.issuperset(openings[charge.index]))
        and sees(Entry.parse(facts.entry(index)))
    }
    older = {charge.index for charge in shown.values() if charge.index < stated.size}
    opened = seen.intersection(chain(*(openings[charge.index] for charge in shown.values())))
    return AccountProof(
        beside=own.beside,
        charges=tuple(_proven(facts, index) for index in sorted(older)),
        hidden=len(touching) - len(shown) + (0 if explained else len(others)),
        holder=holder,
        merged=tuple(_proven_merger(facts, stated, partition, one) for one in mergers),
        opened=tuple(_proven(facts, index) for index in sorted(opened)),
        origin=None if mergers else _origin(facts, holder, stated.size, sees),
        partition=partition,
        record=own.record,
        salt=own.salt,
        siblings=own.siblings,
        since=tuple(_proven(facts, index) for index in shown),
        statement=_proven(facts, stated.position),
    )


def _origin(
    facts: Snapshot | PastSnapshot, holder: str, size: int, sees: Callable[[Entry], bool]
) -> ProvenEntry | None:
    """The entry that a lineage began with since a size, where the caller may see it."""
    name = holder.removeprefix("lineage:")
    began = int(name) if name.isdecimal() else -1
    is_shown = size <= began < facts.size and sees(Entry.parse(facts.entry(began)))
    return _proven(facts, began) if is_shown else None


def _path(stated: StatedTree, partition: str, holder: str) -> Path:
    return stated.tree.path(state_key(leaf_name("accounts", (partition, holder))))


def _leaf(stated: StatedTree, partition: str, holder: str) -> ProvenLeaf:
    path = _path(stated, partition, holder)
    return ProvenLeaf(
        beside=tuple(OtherLeaf(to_base64(one.hash), to_base64(one.key)) for one in path.beside),
        holder=holder,
        record=None if path.leaf is None else write(path.leaf.content.value).decode(),
        salt=None if path.leaf is None else to_base64(path.leaf.content.salt),
        siblings=tuple(HashAt(depth, to_base64(one)) for depth, one in sorted(path.siblings.items())),
    )


def _touching(facts: Snapshot | PastSnapshot, start: int, partition: str, holder: str) -> Iterator[tuple[int, Charge]]:
    """The entries of runs from an index on that change an account, each with its charge."""
    for index, data in enumerate(facts.entries(start, facts.size), start):
        entry = read_entry(data)
        effect = entry.effect
        name = entry.id if isinstance(effect, Charged) else effect.charge if isinstance(effect, Settled) else ""
        charge = facts.charges[name] if name else None
        if charge is not None and partition in charge.partitions:
            nodes = knowers(facts.nodes, charge.author, charge.index)
            if holder == GLOBAL or holder in map(holder_of, nodes):
                yield index, charge


def _openings(facts: Snapshot | PastSnapshot, charge: Charge, partition: str) -> tuple[int, ...]:
    """The indices of the entries that show what a charge that names ranges costs on one of its partitions."""
    if charge.groups is None:
        return ()
    body = Entry.parse(facts.entry(charge.index)).command_body
    found = set[str]()
    for one in body.ranges if isinstance(body, MakeCharge) else ():
        within = partitions_within(facts, (), (one,))
        if len(charge.prices) > 1:
            found.update(within)
        elif partition in within:
            found |= {within[0], within[-1], partition}
    return tuple(facts.partitions[ref].index for ref in found)


def _others(facts: Snapshot | PastSnapshot, start: int) -> Iterator[_Merger | int]:
    """The entries from an index on that may change an account without being of a run; of a merger, its parents."""
    for index, data in enumerate(facts.entries(start, facts.size), start):
        entry = read_entry(data)
        if entry.kind in _MERGERS and isinstance(entry.effect, Entry):
            yield _Merger(index, entry.effect.recorded().fixed(Parents).parents)
        elif entry.kind in _OTHERS and entry.effect is not None:
            yield index


def _mergers_to(holder: str, mergers: dict[int, _Merger], size: int) -> tuple[_Merger, ...]:
    """Those that lead to a lineage, the oldest first; none where they join one that began otherwise since ``size``."""
    found: dict[int, _Merger] = {}
    waiting = [index for index in mergers if holder_of(index) == holder]
    while waiting:
        merger = mergers[waiting.pop()]
        found[merger.entry] = merger
        later = [parent for parent in merger.parents if parent >= size]
        if not mergers.keys() >= {*later}:
            return ()
        waiting += (parent for parent in later if parent not in found)
    return tuple(one for _, one in sorted(found.items()))


def _proven_merger(facts: Snapshot | PastSnapshot, stated: StatedTree, partition: str, merger: _Merger) -> ProvenMerger:
    parents = (holder_of(parent) for parent in merger.parents if parent < stated.size)
    return ProvenMerger(tuple(_leaf(stated, partition, one) for one in parents), _proven(facts, merger.entry))


def _sum(
    stated: StatedTree,
    partition: str,
    holder: str,
    mergers: Sequence[_Merger],
    touching: Sequence[tuple[int, Charge]],
) -> list[int]:
    """The balance, flat, that a proof with all of these entries adds up to; empty if there is no charge."""
    parents = dict.fromkeys(holder_of(parent) for merger in mergers for parent in merger.parents)
    leaves = [_path(stated, partition, one).leaf for one in (holder, *parents)]
    held = [_flat(one.content.value.posted, one.content.value.pending) for one in leaves if one is not None]
    for index, charge in touching:
        segments = charge.price_of(partition)
        whole = loss_of(segments, charge.steps)
        zero = whole.zero(len(whole.finite))
        if index == charge.index:
            held.append(_flat(zero, whole))
        else:
            held.append([-one for one in _flat(zero, whole)])
            held.append(_flat(loss_of(segments, charge.steps_posted or 0), zero))
    return [sum(column) for column in zip(*held, strict=True)]


def _flat(posted: Loss, pending: Loss) -> list[int]:
    return [*posted.finite, *posted.infinite, *pending.finite, *pending.infinite]


def _proven(facts: Snapshot | PastSnapshot, index: int) -> ProvenEntry:
    return ProvenEntry(to_base64(facts.entry(index)), facts.receipt(index))
