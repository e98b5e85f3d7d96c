"""The fixtures of every test that needs a running service."""

from __future__ import annotations

from tests.factories.service_fixtures import desk, quiet, room, walk, world

__all__ = ["desk", "quiet", "room", "walk", "world"]
