"""Alembic's entry: the book's tables, on the connection that ``migrations`` hands over."""

from __future__ import annotations

from alembic import context

from ledger.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
