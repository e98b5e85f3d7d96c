"""The tree, checkpoints and seal are bound to the entries; an epoch row tells one writing process from another."""

from __future__ import annotations

from migrations.schema.revision_sql import run_sql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the epoch row's table, and the triggers that refuse what is ahead of the entries."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Drop them; no row of the log is among them."""
    run_sql(__file__, "downgrade")
