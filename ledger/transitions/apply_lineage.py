"""Apply lineage entries to the state: the graph, each organisation's node, and the accounts that gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ledger.domain.entries import Entry
from ledger.domain.facts import State
from ledger.domain.lineage_commands import Collude, Declare, Join, Publish, Split, Transfer
from ledger.domain.lineage_graph import Arrow
from ledger.lineage import graph_edits
from ledger.lineage.graph_edits import LineageEdit


def apply_edit(state: State, edit: LineageEdit, time: int) -> None:
    """Apply an edit to the state, at a time (ms)."""
    # Sums are put together from the accounts and the graph before the change.
    accounts = edit.accounts()
    for index, node in edit.changed.items():
        state.nodes[index] = node
    for did in edit.moves:
        found = state.organisations[did]
        state.organisations[did] = replace(found, node=edit.index, moves=(*found.moves, (time, edit.index)))
    for account in accounts:
        state.accounts[account.partition, account.holder] = account


def _merger(state: State, entry: Entry, index: int) -> LineageEdit:
    body = entry.command_body
    assert isinstance(body, Join)
    return graph_edits.merge(LineageEdit(state, index, entry.time), body.organisation, _nodes(entry))


def _collusion(state: State, entry: Entry, index: int) -> LineageEdit:
    body = entry.command_body
    assert isinstance(body, Collude)
    return graph_edits.collude(LineageEdit(state, index, entry.time), body.organisations, body.effective)


def _split(state: State, entry: Entry, index: int) -> LineageEdit:
    body = entry.command_body
    assert isinstance(body, Split)
    parent, own = _nodes(entry)
    return graph_edits.split(LineageEdit(state, index, entry.time), body.organisation, body.child, (parent, own))


def _transfer(state: State, entry: Entry, index: int) -> LineageEdit:
    body, recorded = entry.command_body, _recorded(entry)
    assert isinstance(body, Transfer)
    arrow = Arrow(recorded["node"], recorded["before"])
    recipient = state.organisations[body.recipient].node
    return graph_edits.transfer(LineageEdit(state, index, entry.time), recorded["giver"], arrow, recipient)


def _publication(state: State, entry: Entry, index: int) -> LineageEdit:
    recorded = _recorded(entry)
    assert isinstance(entry.command_body, Publish)
    return graph_edits.publish(LineageEdit(state, index, entry.time), recorded["giver"], recorded["node"])


def _coalition(state: State, entry: Entry, index: int) -> LineageEdit:
    body = entry.command_body
    assert isinstance(body, Declare)
    return graph_edits.declare_coalition(LineageEdit(state, index, entry.time), entry.actor, body.members, body.epsilon)


def _nodes(entry: Entry) -> tuple[int, ...]:
    return tuple(_recorded(entry)["parents"])


def _recorded(entry: Entry) -> dict[str, Any]:
    return entry.body


def _applied(edit: Callable[[State, Entry, int], LineageEdit]) -> Callable[[State, Entry, int], None]:
    def change(state: State, entry: Entry, index: int) -> None:
        apply_edit(state, edit(state, entry, index), entry.time)

    return change


LINEAGE_CHANGES: Final[dict[str, Callable[[State, Entry, int], None]]] = {
    "merger": _applied(_merger),
    "acquisition": _applied(_merger),
    "collusion": _applied(_collusion),
    "split": _applied(_split),
    "transfer": _applied(_transfer),
    "publication": _applied(_publication),
    "coalition": _applied(_coalition),
}
"""By kind of entry."""
