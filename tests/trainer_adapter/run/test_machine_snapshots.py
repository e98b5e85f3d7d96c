"""A machine's snapshot as a fork: a live run goes on twice with the same memory, and one of the two is ever seen.

Two of it run with every test, in test_copied_runs.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer_adapter.killed_runs import Killer, killer_at
from tests.trainer_adapter.live_service import open_place
from tests.trainer_adapter.machine_snapshots import Snapshot, clone_and_hold

ROUNDS = 200
"""Each is a test of its own, so that `--last-failed` and an id resume them."""


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """One service, and one process whose children go on twice."""
    with open_place(tmp_path_factory.mktemp("machines") / "place") as place, killer_at(place) as found:
        yield found


@pytest.mark.soak
@pytest.mark.parametrize("number", range(ROUNDS))
def test_of_a_machine_and_its_snapshot_one_is_seen(killer: Killer, number: int) -> None:
    """Anywhere in a run, at once or later."""
    assert 0 in clone_and_hold(killer, f"round-{number}", Snapshot.drawn(number))
