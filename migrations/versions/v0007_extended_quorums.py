"""The quorum of an SRO may be extended to the SROs that it registers."""

from __future__ import annotations

from migrations.schema.revision_sql import require_empty, run_sql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table of the extended quorums, which is empty: no entry before extends one."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Drop it, if no entry has filled it: the earlier program knows no such entries."""
    require_empty("extended_quorum")
    run_sql(__file__, "downgrade")
