"""The book: entries, tree, documents and checkpoints, append-only; and the projections of the entries."""

from __future__ import annotations

from migrations.schema.revision_sql import run_sql

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table, then the triggers and the grants."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Refused: below the first migration there is no book, and a log is never deleted."""
    raise RuntimeError("there is no schema below the first migration: a log is never deleted")
