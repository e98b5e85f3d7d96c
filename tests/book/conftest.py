"""The one world most tests begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.book.world import World, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world with everything that a charge needs."""
    with open_world(tmp_path) as found:
        yield found
