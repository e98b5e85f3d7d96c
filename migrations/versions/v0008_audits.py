"""Clean rooms report audits of runs."""

from __future__ import annotations

from migrations.schema.revision_sql import require_empty, run_sql

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table of audits, which is empty: no entry before reports one."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Drop it, if no entry has filled it: the earlier program knows no such entries."""
    require_empty("audit")
    run_sql(__file__, "downgrade")
