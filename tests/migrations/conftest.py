"""One book that has lived a little, made once, and copied to either engine for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories.stored_fixtures import world
from tests.migrations.places import ENGINES, Kept, Spot, grow, spot

__all__ = ["book", "engine", "grown", "other", "place", "twin", "world"]


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The book, and what people kept of it."""
    return grow(tmp_path_factory.mktemp("grown"))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """What a book lies in."""
    return str(request.param)


@pytest.fixture
def place(engine: str, tmp_path: Path) -> Iterator[Spot]:
    """Where there is no book yet."""
    with spot(engine, tmp_path) as found:
        yield found


@pytest.fixture
def other(engine: str, tmp_path: Path) -> Iterator[Spot]:
    """Another such place, on the other engine if there is one."""
    with spot(next((one for one in ENGINES if one != engine), engine), tmp_path / "other") as found:
        yield found


@pytest.fixture
def twin(engine: str, tmp_path: Path) -> Iterator[Spot]:
    """Another such place, on the same engine."""
    with spot(engine, tmp_path / "twin") as found:
        yield found


@pytest.fixture
def book(place: Spot, grown: Kept) -> Spot:
    """The grown book, copied there."""
    return grown.put(place)
