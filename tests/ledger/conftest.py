"""The fixtures of every test that needs a stored book."""

from __future__ import annotations

from tests.factories.stored_fixtures import engine, world

__all__ = ["engine", "world"]
