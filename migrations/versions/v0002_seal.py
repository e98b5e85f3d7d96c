"""The seal: a book that was moved takes no more entries."""

from __future__ import annotations

from migrations.schema.revision_sql import require_empty, run_sql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table of the seal, the triggers that guard it, and the one that refuses entries after it."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Drop them; refused for a book that is sealed. Raises: NotDone."""
    require_empty("seal")
    run_sql(__file__, "downgrade")
