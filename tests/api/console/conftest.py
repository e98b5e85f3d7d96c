"""The world that the console's tests look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import httpx
import pytest

from tests.api.console.page_addresses import proposal
from tests.api.console.visitors import visitors
from tests.api.console.walk import Walker, browser_path, launched
from tests.api.two_of_each import TwoOfEach
from tests.factories.service import open_world
from tests.factories.statements import state_now


class Looked(NamedTuple):
    """A world with two of everything, and a browser of each role."""

    pairs: TwoOfEach
    browsers: Mapping[str, httpx.Client]


@pytest.fixture(scope="session")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    """No test in it adds an entry."""
    with open_world(tmp_path_factory.mktemp("console")) as world:
        world.contract = world.found_service()
        pairs = TwoOfEach(world)
        state_now(world.book)
        world.service.propose_contract(world.bank, proposal(world))
        with visitors(world) as browsers:
            size = world.size
            yield Looked(pairs, browsers)
            assert world.size == size


@pytest.fixture(scope="module")
def walker(looked: Looked) -> Iterator[Walker]:
    """A browser at that world; without one a test that asks for it is left out, which the end of the run says."""
    if browser_path() is None:
        pytest.skip("no page was walked by a browser, for there is none: apt install chromium")
    with launched() as chromium:
        yield Walker(chromium, looked.pairs.world.url, looked.browsers)
