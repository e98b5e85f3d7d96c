"""Documents may be longer: a policy may state a Level for each of ten thousand datasets."""

from __future__ import annotations

from migrations.schema.revision_sql import require_short, run_sql

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Raise the bound on a document's bytes; SQLite changes no constraint of a table, so its rows are copied."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Lower it again, unless a document is longer."""
    require_short("document", "data", 262_144)
    run_sql(__file__, "downgrade")
