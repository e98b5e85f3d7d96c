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
def world(tmp_path: Path, engine: str) -> Iterator[StoredWorld]:
    """A world with everything that a charge needs."""
    with open_world(tmp_path, engine) as found:
        yield found
