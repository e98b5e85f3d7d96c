"""Preview of a lineage event: every account that gains exposure, before and after, under its cap. Nothing is recorded.

The event's own decision and edit run on the current state, so the preview equals the effect of its entry.
"""

from __future__ import annotations

from typing import Final

from ledger.commands.command_kind import Recorded
from ledger.commands.context import PendingCommand
from ledger.commands.decide import decide_unsigned
from ledger.commands.registry import KINDS
from ledger.domain.command import Command
from ledger.domain.decision import Rejected
from ledger.domain.facts import Account, Facts
from ledger.domain.organisation_graph import NodeKind
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.organisation_lineage.graph_edits import LineageEdit
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, Ref
from ledger.wire.records import Record
from policy.decisions.gate import gate
from policy.planning.account_caps import AccountStatus, account_status, empty_account, partition_bounds
from policy.planning.reported_values import Percent

EVENTS: Final = ("acquisition", "collusion", "merger", "publication", "split", "transfer")
"""Kinds of command by which an organisation gains exposure."""
_INDEX: Final = c.INTEGER_MAX - 1
"""The index of the hypothetical entry: beyond every other."""
_ID: Final = "preview"


class ExposureChange(Record, frozen=True):
    """One account that a lineage event would change.

    Attributes:
        excess: the share of capacity beyond 1 where it would be frozen; None if not, or if the share is infinite.
        members: the organisations that hold the account afterwards; for a declared coalition those that it follows.
    """

    after: AccountStatus
    before: AccountStatus
    coalition: bool
    excess: Percent | None
    members: tuple[Did, ...]
    partition: Ref


def exposure_changes(facts: Facts, kind: str, body: c.Object, now: int) -> tuple[ExposureChange, ...]:
    """The accounts of organisations and coalitions that gain exposure if an SRO reported this event now.

    Raises:
        Malformed: if the body is not of this kind.
        Rejected: as the event would be, so too if it would change nothing.
    """
    edit = _edit(facts, kind, body, now)
    changes = (_change(edit, account, now) for account in edit.accounts())
    return tuple(
        sorted(
            (account for account in changes if account is not None),
            key=lambda change: (change.partition, change.after.holder),
        )
    )


def _edit(facts: Facts, kind: str, body: c.Object, now: int) -> LineageEdit:
    reporter = next((did for did, organisation in facts.organisations.items() if SRO in organisation.roles), None)
    if reporter is None:
        raise Rejected(Code.CONFLICT, "no SRO is registered, who could report it")
    command = Command(kind, _ID, reporter, "", body)
    read = KINDS[kind].read_body(command)
    decided = decide_unsigned(facts, PendingCommand(command, read, b"", ""), now, _INDEX, gate)
    if decided.code.refused:
        raise Rejected(decided.code, decided.detail, decided.field)
    edit, draw = LineageEdit(facts, _INDEX, now), KINDS[kind].edit
    assert draw is not None
    draw(edit, Recorded(_ID, reporter, now, decided.code, read, dict(decided.derived or {})))
    return edit


def _change(edit: LineageEdit, account: Account, now: int) -> ExposureChange | None:
    """One account before and after; None for a node without an organisation, such as a model's."""
    node = edit.nodes[int(account.holder.partition(":")[2])]
    if not node.members:
        return None
    partition = edit.facts.partitions[account.partition]
    bounds = partition_bounds(edit.facts, partition, now)
    had = edit.facts.accounts.get((partition.ref, account.holder)) or empty_account(partition, account.holder)
    before, after = account_status(edit.facts, had, bounds), account_status(edit.facts, account, bounds)
    share = after.used.share
    excess = Percent.of(share - 1) if after.over and share is not None and share > 1 else None
    coalition = node.kind is NodeKind.COALITION
    return ExposureChange(after, before, coalition, excess, node.members, partition.ref)
