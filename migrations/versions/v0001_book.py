"""The book: entries, tree, documents and checkpoints, append-only; and the projections of the entries."""

from __future__ import annotations

from alembic import op

from ledger.roles import grant
from ledger.tables import metadata
from ledger.triggers import install_triggers

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table, then the triggers, then the roles and their rights."""
    bind = op.get_bind()
    metadata.create_all(bind)
    install_triggers(bind)
    grant(bind)


def downgrade() -> None:
    """Refused: below the first migration there is no book, and a log is never deleted."""
    raise RuntimeError("there is nothing below the first migration: a log is never deleted")
