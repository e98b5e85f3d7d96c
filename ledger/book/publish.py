"""Fourth stop of a command: its entry comes under a signed checkpoint, and its outcome gets a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.log.checkpoint import receipt, sign
from ledger.store.merkle_tables import Tree
from ledger.store.projection_table import append_rows
from ledger.store.tables import CHECKPOINT
from ledger.verifier import Checkpoint, LogKey

if TYPE_CHECKING:
    from ledger.book.batch import Batch
    from ledger.book.submitted_command import Outcome


def publish(batch: Batch, signer: LogSigner, outcomes: Sequence[Sequence[Outcome]]) -> list[list[Outcome]]:
    """Write what a batch decided, and one checkpoint over it, in the batch's transaction.

    Args:
        batch: the batch, decided; its transaction still open.
        signer: signs the checkpoint.
        outcomes: what each call's commands got, without receipts.

    Returns:
        The same outcomes, each recorded one with its receipt (C2SP tlog-proof) under the newest checkpoint. They are
        for callers once the transaction has committed, and not before.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: if the database fails; whether the batch is recorded is then unknown.
    """
    if batch.flush():
        batch.tree.flush()
        batch.state.note = note = signer.sign(batch.tree)
        append_rows(batch.connection, CHECKPOINT, [{"tree_size": batch.tree.size, "note": note}])
    return [[_with_receipt(batch, one) for one in call] for call in outcomes]


def _with_receipt(batch: Batch, outcome: Outcome) -> Outcome:
    if outcome.index is None:
        return outcome
    if batch.state.note is None:
        raise AssertionError("every entry is under a checkpoint")
    return replace(outcome, receipt=receipt(outcome.index, batch.tree.proof(outcome.index), batch.state.note))


class LogSigner:
    """The key and the origin of a log."""

    def __init__(self, private: Ed25519PrivateKey, origin: str) -> None:
        """Sign with ``private``, in the name of ``origin``."""
        self.private = private
        self._origin = origin
        self.key = LogKey(origin, private.public_key().public_bytes_raw())

    def sign(self, tree: Tree) -> str:
        """The signed checkpoint of a tree."""
        return sign(Checkpoint(self._origin, tree.size, tree.root()), self.private)
