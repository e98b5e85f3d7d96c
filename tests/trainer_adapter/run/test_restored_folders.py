"""A run's folder restored to an older state after a newer one went on: no step twice, one post, one model at most.

One of it, step by step, runs with every test, in test_kills.py.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator

import pytest

from tests.trainer_adapter.killed_runs import FAILED, STEPS, Killer, Moment, hold_copies, killer_at
from tests.trainer_adapter.live_service import open_place

pytestmark = pytest.mark.soak

ROUNDS = 200
"""Each is a test of its own, so that `--last-failed` and an id resume them."""


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """One service, and one process to kill the children of."""
    with open_place(tmp_path_factory.mktemp("restored") / "place") as place, killer_at(place) as found:
        yield found


def _drawn(number: int) -> tuple[Moment, Moment | None]:
    """When the first process is killed, and when the one that resumes it is; in one of six rounds it ends its run."""
    chosen = random.Random(number)  # noqa: S311 - a seed, so that a failure comes again
    kind = chosen.choice(["begun", "noise", "noised", "saved"])
    first: Moment = (kind, chosen.randint(0, {"begun": 3, "saved": 2}.get(kind, STEPS // 2)))
    then = chosen.choice(["begun", "noise", "noised", "post", "posted", ""])
    passed = {"begun": 1, "post": 0, "posted": 0}.get(then, STEPS // 4)
    return first, (then, chosen.randint(0, passed)) if then else None


@pytest.mark.parametrize("number", range(ROUNDS))
def test_of_a_folder_and_its_backup_no_step_is_taken_twice(killer: Killer, number: int) -> None:
    """Killed, backed up, resumed, killed again, restored from the backup, and resumed to its end."""
    run, (first, then) = f"restored-{number}", _drawn(number)
    folder = killer.place.folder / "runs" / run
    assert killer.run(run, first) == signal.SIGKILL
    shutil.copytree(folder, folder.with_name(f"{run}-backup"))
    assert killer.run(run, then, resume=True) in {0, signal.SIGKILL}
    charge = killer.place.charge(run)
    assert charge is not None
    over = charge.steps_posted is not None
    shutil.rmtree(folder)
    folder.with_name(f"{run}-backup").rename(folder)
    ended = killer.run(run, None, resume=True)
    assert ended == (FAILED if over else 0), killer.said(run)
    noise, models = hold_copies((killer, killer), run, f"{run}-none")
    assert noise == sorted(noise)
    assert len(killer.leased_before(run)) == (1 if over else 2)
    # What had been released lay in the folder that the backup replaced.
    assert models == (0 if over else 1)
