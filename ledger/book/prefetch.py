"""What a batch of commands will ask a database for, read in one statement a table."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.domain.commands import MakeCharge, Post, ReleaseKey, ReleaseModel, Settle
from ledger.store.database_state import DatabaseState
from ledger.transitions.guards import Asked


def foresee(state: DatabaseState, batch: Sequence[Asked]) -> None:
    """Load the actors, keys, charges, contracts and partitions that commands name; the rest is read when asked for."""
    charges = [asked.body for asked in batch if isinstance(asked.body, MakeCharge)]
    settled = (asked.body for asked in batch if isinstance(asked.body, Post | ReleaseKey | ReleaseModel | Settle))
    state.organisations.load(asked.command.actor for asked in batch)
    state.keys.load([asked.command.key_id for asked in batch] + [body.signing.thumbprint for body in charges])
    state.charges.load([body.charge for body in settled] + [name for body in charges for name in body.base])
    state.contracts.load(body.contract for body in charges)
    state.partitions.load(ref for body in charges for ref in body.partitions)
