"""A run's folder copied and trained twice: of all its copies one goes on, posts and lets a model leave."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.trainer_adapter.killed_runs import FAILED, STEPS, Pair, hold_copies, killer_at, resume_both
from tests.trainer_adapter.live_service import open_place
from tests.trainer_adapter.machine_snapshots import Snapshot, clone_and_hold

ROUNDS, ROUNDS_FAST = 200, 1
"""Of copies resumed at once: each is a test of its own, so that `--last-failed` and an id resume them."""
HELD = {
    "before-its-first-block": ("begin", 0),
    "in-its-third-lease": ("noised", 24),
    "in-its-last-lease": ("noised", 44),
    "before-its-post": ("post", 0),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One service, and two processes whose children train at the same time."""
    with (
        open_place(tmp_path_factory.mktemp("copies") / "place") as place,
        killer_at(place) as one,
        killer_at(place) as other,
    ):
        yield one, other


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(moment, marks=[] if moment in {"in-its-third-lease", "before-its-post"} else pytest.mark.soak)
        for moment in HELD
    ],
)
def test_a_process_whose_copy_has_gone_on_ends(pair: Pair, moment: str) -> None:
    """Held while its folder is copied and the copy resumed to its end: what it asks for next is a conflict."""
    run, copy = f"held-{moment}", f"copy-{moment}"
    pair[0].start(run, HELD[moment], held=True)
    pair[0].wait_held(run)
    before = pair[0].noise(run)
    pair[0].copied(run, copy)
    assert pair[1].run(copy, None, resume=True) == 0
    (leased,) = pair[0].leased_before(run)
    pair[0].go_on(run)
    # Told by a refusal, or by the answer to its progress that the charge is posted, whichever comes first.
    assert pair[0].status() in {0, FAILED}
    noise, models = hold_copies(pair, run, copy)
    # Of the lease that it had it may use up what is left; the copy takes what no one had leased.
    assert [step for step in noise if step > leased] == list(range(leased + 1, STEPS + 1))
    assert noise[: len(before)] == before
    assert models == 1


def test_a_process_is_told_that_another_has_gone_on(pair: Pair) -> None:
    """Its copy has taken a generation and leased, and is killed: the next lease is a conflict that says it in words."""
    pair[0].start("told", ("noised", 13), held=True)
    pair[0].wait_held("told")
    pair[0].copied("told", "told-copy")
    assert pair[1].run("told-copy", ("noised", 5), resume=True) == signal.SIGKILL
    pair[0].go_on("told")
    assert pair[0].status() == FAILED
    assert pair[0].said("told") == "Refused: conflict: charge told is at generation 2: this clean room must end"
    assert pair[1].run("told-copy", None, resume=True) == 0
    assert hold_copies(pair, "told", "told-copy")[1] == 1


def test_a_copy_that_comes_after_the_post_has_no_model(pair: Pair) -> None:
    """Copied in the middle, resumed when the run is over: it takes no step, and what it has leaves in no form."""
    pair[0].start("over", ("noised", 24), held=True)
    pair[0].wait_held("over")
    pair[0].copied("over", "over-copy")
    pair[0].go_on("over")
    assert pair[0].status() == 0
    assert pair[1].run("over-copy", None, resume=True) == FAILED
    assert pair[0].said("over-copy").endswith("was posted without the model of this folder: nothing of it leaves")
    assert pair[1].noise("over-copy") == []
    assert hold_copies(pair, "over", "over-copy")[1] == 1


def test_a_machine_restored_when_its_run_is_over_shows_nothing(pair: Pair) -> None:
    """With its next lease still to be sent, which was granted to the first: it repeats it, and no one sees it."""
    assert clone_and_hold(pair[0], "restored", Snapshot(27, "asked", later=True)) == (0, 1)


def test_of_two_machines_with_one_granted_lease_one_goes_on(pair: Pair) -> None:
    """Both have the answer: both take the lease's steps, each with a key of its own, and one of them gets the next."""
    assert sorted(clone_and_hold(pair[0], "granted", Snapshot(17, "granted", later=False))) == [0, 1]


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[] if number < ROUNDS_FAST else pytest.mark.soak) for number in range(ROUNDS)]
)
def test_of_copies_resumed_at_once_one_goes_on(pair: Pair, number: int) -> None:
    """Killed somewhere, copied, both resumed at the same time: no step twice, one post, one model at most."""
    assert resume_both(pair, f"both-{number}", number) == 1


def test_the_post_names_the_last_lease_and_the_model_and_the_release_the_post(pair: Pair) -> None:
    """So the ledger itself refuses a second model of the run."""
    assert pair[0].run("named", None) == 0
    charge = pair[0].place.charge("named")
    assert charge is not None
    assert charge.model is not None
    (posted,) = pair[0].entries("named", "post")
    last = pair[0].entries("named", "step_lease")[-1]
    assert (posted.request["model"], posted.request["lease"], posted.request["generation"]) == (
        charge.model,
        last.id,
        1,
    )
    (left,) = pair[0].entries("named", "model_release")
    assert (left.request["model"], left.request["post"]) == (charge.model, posted.id)
