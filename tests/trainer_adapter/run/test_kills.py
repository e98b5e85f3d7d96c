"""Killed at any point, and resumed or never: the ledger's loss is never less than what was released."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from api.demo import digits
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.train import train_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.step_log import steps_begun
from trainer_adapter.run.checkpointing import locked

ROOT = Path(__file__).parents[3]
STEPS = 47
LIGHT = Plan(Fraction(1, 100), Fraction(200), Fraction(1), STEPS, digits.RECORDS // 100)
RESUME = '\n[train.resume]\nkey = "../keys/{name}.room"\nevery_s = 0\n'


class Killer:
    """A process that runs jobs in children of its own and kills them."""

    def __init__(self, process: subprocess.Popen[str], place: Place) -> None:
        """See tests/trainer_adapter/kill_worker.py."""
        self._process, self.place = process, place

    def run(self, name: str, kill: tuple[str, int] | None, *, resume: bool = False) -> int:
        """The child's wait status."""
        path = self.place.folder / "jobs" / f"{name}.toml"
        if not resume:
            text = self.place.job(name, LIGHT).read_text()
            path.write_text(text + RESUME.format(name=name))
        asked = {"job": str(path), "kill": kill, "resume": resume, "trace": str(self._trace(name))}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def noise(self, name: str) -> list[int]:
        """The steps whose noise may have been used, by all processes of the run."""
        return [int(line.split()[0]) for line in self._traced(name)]

    def keys(self, name: str) -> list[str]:
        """By step, which key the noise came from, as its digest."""
        return [line.split()[1] for line in self._traced(name)]

    def _traced(self, name: str) -> list[str]:
        path = self._trace(name)
        return path.read_text().splitlines() if path.exists() else []

    def counted(self, name: str) -> int:
        """The steps that the ledger counts if nothing more is ever heard of the run."""
        charge = self.place.charge(name)
        if charge is None:
            return 0
        assert charge.state is not ChargeState.VOIDED
        return STEPS if charge.steps_posted is None else charge.steps_posted

    def begun(self, name: str) -> int:
        """The steps that its log counts."""
        path = self.place.folder / "runs" / name / "steps.log"
        return steps_begun(path, name, LIGHT) if path.exists() else 0

    def _trace(self, name: str) -> Path:
        return self.place.folder / f"{name}.trace"


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """One service, and one process to kill the children of."""
    command = [sys.executable, str(ROOT / "tests" / "trainer_adapter" / "kill_worker.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        open_place(tmp_path_factory.mktemp("kills") / "place") as place,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process,
    ):
        yield Killer(process, place)
        assert process.stdin is not None
        process.stdin.close()


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


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_and_resumed(killer: Killer, moment: str) -> None:
    """No step is taken twice or beyond the charge, what began counts, and in the end a model is released."""
    assert killer.run(moment, MOMENTS[moment]) == signal.SIGKILL
    used, begun = killer.noise(moment), killer.begun(moment)
    assert len(used) <= begun <= killer.counted(moment)
    assert killer.run(moment, None, resume=True) == 0
    everything = killer.noise(moment)
    assert everything[: len(used)] == used
    assert everything[len(used) :] == list(range(begun + 1, STEPS + 1))
    assert not set(killer.keys(moment)[: len(used)]) & set(killer.keys(moment)[len(used) :])
    assert killer.counted(moment) == STEPS
    assert (killer.place.folder / "runs" / moment / "model.safetensors").exists()


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
    assert killer.run("back", ("noised", 35)) == signal.SIGKILL
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


def test_a_run_without_a_key_to_resume_by_cannot_go_on(killer: Killer) -> None:
    """Without ``[train.resume]`` both keys die with the process, and that is said."""
    job = Job.load(killer.place.job("mortal", LIGHT))
    with pytest.raises(Malformed, match=r"^resume: is not configured"):
        train_job(job, killer.place.service, lambda _: None, resume=True)
