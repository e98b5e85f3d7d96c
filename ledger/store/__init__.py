"""The book in SQL: tables, triggers, grants, rows, the stored tree and snapshots for readers."""
