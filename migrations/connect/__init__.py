"""Connections to a book that no service holds: where it is, and exclusive access to it."""
