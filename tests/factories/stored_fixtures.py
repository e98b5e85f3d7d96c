"""The one world most tests begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories.stored import ENGINES, StoredWorld, open_world


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """What the book lies in: every test that asks for it, or for a world, runs once on each."""
    return str(request.param)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> Iterator[StoredWorld]:
    """A world with everything that a charge needs; after a test that damages nothing, its book is checked."""
    with open_world(tmp_path, engine) as found:
        found.is_checked = request.node.get_closest_marker("damages") is None
        yield found
