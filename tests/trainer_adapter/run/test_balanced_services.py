"""Copies of a run that ask two services of one book in turn, each a real process: of all of them one goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer_adapter.balanced_place import open_balanced_place
from tests.trainer_adapter.killed_runs import Pair, killer_at, resume_both

pytestmark = pytest.mark.soak

ROUNDS = 200
"""Each is a test of its own, so that `--last-failed` and an id resume them."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two services, and two processes whose children train at the same time."""
    with (
        open_balanced_place(tmp_path_factory.mktemp("balanced") / "place") as place,
        killer_at(place) as one,
        killer_at(place) as other,
    ):
        yield one, other


@pytest.mark.parametrize("number", range(ROUNDS))
def test_of_copies_that_ask_two_services_one_goes_on(pair: Pair, number: int) -> None:
    """Every request of either copy goes to the service that did not get the one before it."""
    assert resume_both(pair, f"balanced-{number}", number) == 1
