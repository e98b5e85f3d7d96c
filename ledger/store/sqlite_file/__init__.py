"""The file of an SQLite book: where it may lie, and the one process that writes it."""
