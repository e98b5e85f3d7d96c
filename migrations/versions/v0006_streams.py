"""A dataset has a stream, whose slices are its partitions."""

from __future__ import annotations

from migrations.schema.revision_sql import require_empty, run_sql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table of the streams' versions, which is empty: no entry before names one."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Drop it, if no entry has filled it: the earlier program knows no such entries."""
    require_empty("stream_version")
    run_sql(__file__, "downgrade")
