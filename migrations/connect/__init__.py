"""Connections to a book that no service holds: its location, and exclusive access to it."""
