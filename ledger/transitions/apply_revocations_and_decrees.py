"""Apply what governs: contracts revoked, accounts reset, models announced, clean rooms that opened one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ledger.domain.entries import Entry
from ledger.domain.facts import SigningKey, State
from ledger.domain.governance_commands import Announce, Decree, OpenModel, Revoke
from ledger.mechanisms.loss import Loss


def _revocation(state: State, entry: Entry, index: int) -> None:
    del index
    body = entry.command_body
    assert isinstance(body, Revoke)
    state.contracts[body.contract] = state.contracts[body.contract]._replace(revoked=True)


def _decree(state: State, entry: Entry, index: int) -> None:
    del index
    body = entry.command_body
    assert isinstance(body, Decree)
    state.forgiven[body.partition, body.holder] = Loss.parse(entry.body["forgiven"])


def _notice(state: State, entry: Entry, index: int) -> None:
    del index
    body = entry.command_body
    assert isinstance(body, Announce)
    found = state.charges[body.charge]
    state.charges[body.charge] = found._replace(notices=(*found.notices, (body.model, entry.time)))


def _opening(state: State, entry: Entry, index: int) -> None:
    body = entry.command_body
    assert isinstance(body, OpenModel)
    name = body.clean_room.signing.thumbprint
    state.keys[name] = SigningKey(name, entry.actor, body.clean_room.signing.x, body.charge, index)


GOVERNING_CHANGES: Final[dict[str, Callable[[State, Entry, int], None]]] = {
    "revocation": _revocation,
    "decree": _decree,
    "release_notice": _notice,
    "model_opening": _opening,
}
