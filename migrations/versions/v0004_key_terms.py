"""Signing keys have terms (start, end, suspension, revocation), and organisations a quorum that recovers them."""

from __future__ import annotations

from migrations.schema.revision_sql import require_empty, run_sql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the two tables, which are empty: no entry before names a key's terms."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Drop them, if no entry has filled them: the earlier program knows no such entries."""
    for table in ("key_terms", "recovery_quorum"):
        require_empty(table)
    run_sql(__file__, "downgrade")
