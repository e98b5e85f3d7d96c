"""Killed at any point, and resumed or never: the ledger's loss is never less than what was released."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator

import pytest

from ledger.domain.outcomes import ChargeState
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.killed_runs import LIGHT, STEPS, Killer, killer_at
from tests.trainer_adapter.live_service import open_place
from trainer_adapter.cli.train import train_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.run.checkpointing import locked


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """One service, and one process to kill the children of."""
    with open_place(tmp_path_factory.mktemp("kills") / "place") as place, killer_at(place) as found:
        yield found


MOMENTS = {
    "before-the-first-block": ("begin", 0),
    "after-the-first-block-begun": ("begun", 0),
    "before-a-noise": ("noise", 13),
    "after-a-noise": ("noised", 25),
    "after-a-save": ("saved", 1),
    "before-a-later-block": ("begin", 3),
    "before-the-post": ("post", 0),
    "after-the-post": ("posted", 0),
}


LEASED = [pytest.param(moment, True, id=f"{moment}-leased") for moment in MOMENTS]
"""Each moment of a run whose steps are leased; of one whose steps are not, the soak has those that differ less."""
UNLEASED = [
    pytest.param(
        moment,
        False,
        id=f"{moment}-unleased",
        marks=[] if moment in {"before-a-noise", "after-a-save", "before-the-post"} else pytest.mark.soak,
    )
    for moment in MOMENTS
]


@pytest.mark.parametrize(("moment", "leased"), [*LEASED, *UNLEASED])
def test_a_run_killed_and_resumed(killer: Killer, moment: str, leased: bool) -> None:  # noqa: FBT001 - a parameter
    """No step is taken twice or beyond the charge, what began counts, and in the end a model is released."""
    name = f"{moment}-{'leased' if leased else 'unleased'}"
    assert killer.run(name, MOMENTS[moment], leased=leased) == signal.SIGKILL
    used, begun = killer.noise(name), killer.begun(name)
    assert len(used) <= begun <= killer.counted(name)
    assert killer.run(name, None, resume=True) == 0
    if leased and moment != "after-the-post":
        # What was leased began, in the ledger's book, though the process never came to it.
        (before,) = killer.leased_before(name)
        assert before >= begun
        begun = before
    everything = killer.noise(name)
    assert everything[: len(used)] == used
    assert everything[len(used) :] == list(range(begun + 1, STEPS + 1))
    assert not set(killer.keys(name)[: len(used)]) & set(killer.keys(name)[len(used) :])
    assert killer.counted(name) == STEPS
    assert (killer.place.folder / "runs" / name / "model.safetensors").exists()


def test_each_lease_has_keys_of_its_own(killer: Killer) -> None:
    """A run without a kill: five leases of ten steps, and as many keys of noise."""
    assert killer.run("keyed", None) == 0
    keys = killer.keys("keyed")
    assert [keys[first : first + 10] for first in range(0, STEPS, 10)] == [
        [keys[first]] * len(keys[first : first + 10]) for first in range(0, STEPS, 10)
    ]
    assert len(set(keys)) == len(killer.entries("keyed", "step_lease")) == 5


def test_a_run_killed_in_its_last_block_and_again_before_its_post(killer: Killer) -> None:
    """The model that is left is older than what was begun: in the end all that was begun is posted, not what it saw."""
    assert killer.run("last-block", ("noised", 43)) == signal.SIGKILL
    assert killer.run("last-block", ("post", 0), resume=True) == signal.SIGKILL
    assert killer.run("last-block", None, resume=True) == 0
    charge = killer.place.charge("last-block")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, STEPS)
    assert killer.noise("last-block") == list(range(1, 45))


def _moments(seed: int, count: int) -> list[tuple[str, int]]:
    chosen = random.Random(seed)  # noqa: S311 - a seed, so that a failure comes again
    of = {"begin": 4, "begun": 4, "noise": STEPS - 1, "noised": STEPS - 1, "saved": 3, "post": 0, "posted": 0}
    return [(kind, chosen.randint(0, of[kind])) for kind in chosen.choices(sorted(of), k=count)]


def _killed_again_and_again(killer: Killer, name: str, seed: int) -> int:
    """Kill one run at seeded points, and hold what it left each time; how many steps have noise in the end."""
    resume, noise = False, list[int]()
    for kill in _moments(seed, 4):
        status = killer.run(name, kill, resume=resume)
        assert status in {0, signal.SIGKILL}
        noise = killer.noise(name)
        assert noise == sorted(set(noise))
        assert len(noise) <= killer.begun(name) <= killer.counted(name)
        resume = True
    return len(noise)


def test_a_run_killed_at_random_points_again_and_again(killer: Killer) -> None:
    """Four kills of one run at seeded points: after each, what the ledger counts covers all noise ever drawn."""
    assert 0 < _killed_again_and_again(killer, "seeded-1", 1) <= STEPS


@pytest.mark.soak
def test_many_runs_killed_at_random_points(killer: Killer) -> None:
    """The same with eighty more seeds."""
    for seed in range(2, 82):
        assert _killed_again_and_again(killer, f"seeded-{seed}", seed) <= STEPS


def test_a_folder_put_back_is_refused(killer: Killer) -> None:
    """A step log behind the saved state, another's state, or a folder in use: nothing goes on, nothing is charged."""
    assert killer.run("back", ("noised", 35), leased=False) == signal.SIGKILL
    folder, job = killer.place.folder / "runs" / "back", killer.place.folder / "jobs" / "back.toml"
    log = (folder / "steps.log").read_bytes()
    with locked(folder), pytest.raises(Malformed, match="in use by another process"):
        train_job(Job.load(job), killer.place.service, lambda _: None, resume=True)
    (folder / "steps.log").write_bytes(b"\n".join(log.split(b"\n")[:3]) + b"\n")
    with pytest.raises(Malformed, match=r"^steps\.log: .*put back"):
        train_job(Job.load(job), killer.place.service, lambda _: None, resume=True)
    (folder / "steps.log").write_bytes(log)
    (folder / "run.state").write_bytes((folder / "room.state").read_bytes())
    with pytest.raises(Malformed, match=r"^run\.state: was not sealed for this run"):
        train_job(Job.load(job), killer.place.service, lambda _: None, resume=True)


def test_a_folder_put_back_takes_no_leased_step_again(killer: Killer) -> None:
    """Put back to where it stood ten steps earlier, a run that leases goes on after all that the ledger has leased."""
    folder = killer.place.folder / "runs" / "set-back"
    assert killer.run("set-back", ("saved", 1)) == signal.SIGKILL
    shutil.copytree(folder, folder.with_name("older"))
    assert killer.run("set-back", ("noised", 25), resume=True) == signal.SIGKILL
    used = killer.noise("set-back")
    shutil.rmtree(folder)
    folder.with_name("older").rename(folder)
    assert killer.run("set-back", None, resume=True) == 0
    _, leased = killer.leased_before("set-back")
    assert killer.noise("set-back") == [*used, *range(leased + 1, STEPS + 1)]
    assert leased >= used[-1]
    assert killer.counted("set-back") == STEPS


def test_a_run_without_a_key_to_resume_by_cannot_go_on(killer: Killer) -> None:
    """Without ``[train.resume]`` both keys die with the process, and that is said."""
    job = Job.load(killer.place.job("mortal", LIGHT))
    with pytest.raises(Malformed, match=r"^resume: is not configured"):
        train_job(job, killer.place.service, lambda _: None, resume=True)
