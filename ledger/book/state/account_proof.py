"""The proof of one account: a statement's root, the account's leaf under it, and the entries of its runs since.

:mod:`ledger.verifier` checks it with nothing but the log's key. It shows what that key signed. That the root is that of
the entries, and that no entry since is left out, replay shows. It is for anyone who may see the account: its salt lets
others try balances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

from ledger.book.past_snapshot import PastSnapshot
from ledger.book.state.state_statements import StatedTree
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import read_entry
from ledger.commands.governance.account_reset import DECREE
from ledger.commands.organisation_lineage.coalition import COALITION
from ledger.commands.organisation_lineage.collusion import COLLUSION
from ledger.commands.organisation_lineage.merger import ACQUISITION, MERGER
from ledger.commands.organisation_lineage.model_publication import PUBLICATION
from ledger.commands.organisation_lineage.model_transfer import TRANSFER
from ledger.commands.organisation_lineage.split import SPLIT
from ledger.commands.runs.charge_entry import Charged
from ledger.commands.runs.model_release import MODEL_RELEASE
from ledger.commands.runs.settlement import Settled
from ledger.domain.facts import GLOBAL, Charge, holder_of
from ledger.domain.organisation_graph import knowers
from ledger.state_tree.leaves import leaf_name
from ledger.store.snapshot import Snapshot
from ledger.verifier import state_key, to_base64
from ledger.wire.field_types import constant
from ledger.wire.records import Record, write

_OTHERS: Final = frozenset(
    kind.name
    for kind in (MERGER, ACQUISITION, COLLUSION, SPLIT, TRANSFER, PUBLICATION, COALITION, DECREE, MODEL_RELEASE)
)
"""Entries that can change what an account holds without being a charge or its settlement."""


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


class AccountProof(Record, frozen=True):
    """What proves an account offline; hashes are in base64.

    Attributes:
        record: the bytes of the account, ``[partition, holder, posted, pending]`` with a loss as ``[finite, infinite]``
            in JSON; None without any charge.
        salt: of its leaf; None without a record.
        charges: the charges that entries since settle, where they are older.
        since: the entries since the statement's size that the caller may see and that change the account.
        hidden: how many more there are, which the caller may not see, or which may have changed it in another way: a
            merger, an account's reset. The next statement of the state has them all.
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
    v: Literal[1] = constant(1)


def account_proof(
    facts: Snapshot | PastSnapshot, stated: StatedTree, partition: str, holder: str, sees: Callable[[Entry], bool]
) -> AccountProof:
    """Prove an account.

    Args:
        facts: the book, which has the statement's entry.
        stated: the newest stated tree.
        partition: whose budget, ``provider/dataset/partition``.
        holder: ``global`` or ``lineage:N``.
        sees: whether the caller may see an entry.
    """
    path = stated.tree.path(state_key(leaf_name("accounts", (partition, holder))))
    account = None if path.leaf is None else path.leaf.content.value
    touching = [*_touching(facts, stated.size, partition, holder)]
    others = sum(read_entry(data).kind in _OTHERS for data in facts.entries(stated.size, facts.size))
    shown = [index for index, _ in touching if sees(Entry.parse(facts.entry(index)))]
    older = {charge.index: None for index, charge in touching if index in shown and charge.index < stated.size}
    return AccountProof(
        beside=tuple(OtherLeaf(to_base64(one.hash), to_base64(one.key)) for one in path.beside),
        charges=tuple(_proven(facts, index) for index in sorted(older)),
        hidden=len(touching) - len(shown) + others,
        holder=holder,
        partition=partition,
        record=None if account is None else write(account).decode(),
        salt=None if path.leaf is None else to_base64(path.leaf.content.salt),
        siblings=tuple(HashAt(depth, to_base64(one)) for depth, one in sorted(path.siblings.items())),
        since=tuple(_proven(facts, index) for index in shown),
        statement=_proven(facts, stated.position),
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


def _proven(facts: Snapshot | PastSnapshot, index: int) -> ProvenEntry:
    return ProvenEntry(to_base64(facts.entry(index)), facts.receipt(index))
