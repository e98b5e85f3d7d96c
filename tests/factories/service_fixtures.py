"""Worlds to test in: an empty one that tests leave as it was, and one with a pending charge for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories.parties_walk import Desk, Ran, walked
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld, founded_world, open_world


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedWorld]:
    """A world in which three are registered, and nothing else is; no test in it may add an entry."""
    with open_world(tmp_path_factory.mktemp("quiet")) as world:
        for did, role, signer in (
            (SRO, "SRO", world.sro),
            (HOSPITAL, "TDP", world.hospital),
            (BANK_A, "TDC", world.bank),
        ):
            world.register(did, role, signer)
        size = world.size
        yield world
        assert world.size == size


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServedWorld]:
    """A world with everything that a charge needs."""
    with founded_world(tmp_path) as found:
        yield found


@pytest.fixture
def room(world: ServedWorld) -> CleanRoom:
    """A clean room whose charge ``run-1`` is pending."""
    fresh = CleanRoom()
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, fresh), "run-1")
    return fresh


@pytest.fixture(scope="session")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, list[Ran]]]:
    """A book that the first page's commands have filled; tests add to it, and take nothing from one another."""
    with walked(tmp_path_factory.mktemp("walk")) as found:
        yield found


@pytest.fixture
def desk(walk: tuple[Desk, list[Ran]]) -> Desk:
    """Where to run more commands."""
    return walk[0]
