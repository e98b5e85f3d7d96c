"""The seal: a book that was moved takes no more entries."""

from __future__ import annotations

from migrations.schema.additions import create, drop

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table, and the triggers that guard it and that it pulls."""
    create(revision)


def downgrade() -> None:
    """Drop both; refused for a book that is sealed."""
    drop(revision)
