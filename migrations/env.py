"""Alembic's entry: the book's tables, on the connection that the caller passes, or as SQL for a dialect."""

from __future__ import annotations

from alembic import context

from ledger.store.tables import metadata

attributes = context.config.attributes
if context.is_offline_mode():
    context.configure(
        dialect_name=attributes["dialect"],
        # A printed percent sign must stay single; other styles of parameters would double it.
        dialect_opts={"paramstyle": "named"},
        target_metadata=metadata,
        transactional_ddl=True,
        literal_binds=True,
    )
else:
    context.configure(connection=attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
