"""Runs of several ranks against a real service: one charge, one session, and whatever dies, what began counts."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.commands.entry import Entry
from ledger.domain.outcomes import ChargeState
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.killed_runs import LIGHT, RESUME, STEPS
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.devices.attach_ranks import ranks_of
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.step_log import steps_begun

ROOT = Path(__file__).parents[3]
WORKER = Path(__file__).with_name("rank_worker.py")
FAILED = 256
Kill = tuple[int, str, int]
"""A rank, the purpose of a stream, and the step at which it dies before opening it."""


class Ranks:
    """A process that runs jobs on several ranks; see tests/trainer_adapter/devices/rank_worker.py."""

    def __init__(self, process: subprocess.Popen[str], place: Place) -> None:
        """Its pipes, and the place of its jobs."""
        self._process, self.place = process, place

    def run(
        self, name: str, size: int = 2, kill: Kill | None = None, *, resume: bool = False, other: str = ""
    ) -> list[int]:
        """The wait status of each rank; ``other`` is the last one's job."""
        folder = self.folder(name)
        folder.mkdir(exist_ok=True)
        (folder / "store").unlink(missing_ok=True)
        path = self.job(name, size)
        jobs = [str(path)] * (size - 1) + [str(self.place.folder / "jobs" / f"{other or name}.toml")]
        wanted = {"folder": str(folder), "jobs": jobs, "kill": kill, "resume": resume}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        statuses: list[int] = json.loads(self._process.stdout.readline())
        return statuses

    def job(self, name: str, size: int) -> Path:
        """A job for so many devices, which may be resumed."""
        path = self.place.folder / "jobs" / f"{name}.toml"
        if not path.exists():
            text = self.place.job(name, LIGHT).read_text().replace("[train]\n", f"[train]\ndevices = {size}\n", 1)
            path.write_text(text + RESUME.format(name=name))
        return path

    def folder(self, name: str) -> Path:
        """Where the ranks of a run meet."""
        return self.place.folder / f"{name}-ranks"

    def said(self, name: str, rank: int) -> str:
        """Why a rank failed."""
        return (self.folder(name) / f"{rank}.error").read_text(encoding="utf-8")

    def noise(self, name: str) -> list[int]:
        """The steps whose noise rank 0 may have used."""
        path = self.folder(name) / "noise"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

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

    def kinds(self, name: str) -> list[str]:
        """The kinds of the entries about a run, in order."""
        with self.place.book.read() as facts:
            entries = [Entry.parse(facts.entry(index)) for index in range(facts.size)]
        return [one.kind for one in entries if name in {one.request.get("charge"), one.id}]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """One service, and one process whose children are ranks."""
    with open_place(tmp_path_factory.mktemp("ranks") / "place") as place:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            yield Ranks(process, place)
            assert process.stdin is not None
            process.stdin.close()


def _ended_in_words(ranks: Ranks, name: str, size: int, kill: Kill) -> None:
    """The killed rank and the others are over, and what the ledger counts covers every noise."""
    statuses = ranks.run(name, size, kill)
    assert [status == signal.SIGKILL for status in statuses] == [rank == kill[0] for rank in range(size)]
    for rank in range(size):
        if rank != kill[0]:
            assert statuses[rank] == FAILED
            assert "RankLost: devices: " in ranks.said(name, rank)
    noise = ranks.noise(name)
    assert noise == list(range(1, len(noise) + 1))
    assert len(noise) <= ranks.begun(name) <= ranks.counted(name)


def test_two_ranks_are_one_run_to_the_ledger_until_one_dies(ranks: Ranks) -> None:
    """One charge of the same plan, one key release, the leases of one session, one post, one model.

    A second run loses rank 1 in step 13, before its sum: twelve noises were drawn, twenty steps had begun and count.
    """
    assert ranks.run("together") == [0, 0]
    charge = ranks.place.charge("together")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, STEPS)
    assert ranks.noise("together") == list(range(1, STEPS + 1))
    kinds = ranks.kinds("together")
    once = ["charge", "key_release", "post", "release_notice", "model_release"]
    assert [kind for kind in kinds if kind != "step_lease"] == once
    assert 1 <= kinds.count("step_lease") <= STEPS
    assert (ranks.place.folder / "runs" / "together" / "model.safetensors").exists()
    _ended_in_words(ranks, "lost", 2, (1, "sampler", 13))
    charge = ranks.place.charge("lost")
    assert charge is not None
    assert charge.state is ChargeState.POSTED
    assert ranks.noise("lost") == list(range(1, 13))
    assert charge.steps_posted is not None
    assert charge.steps_posted >= ranks.begun("lost") == 20
    with pytest.raises(Malformed, match=r"^devices: is 2, and one process was started: start it as `torchrun"):
        ranks_of(Job.load(ranks.job("lost", 2)))
    assert ranks_of(Job.load(ranks.place.job("single", LIGHT))) is None


@pytest.mark.soak
def test_without_rank_0_no_rank_goes_on_and_the_run_is_resumed(ranks: Ranks) -> None:
    """It dies with its noise: the charge stays in full, and all ranks resume on steps that were never begun."""
    _ended_in_words(ranks, "headless", 2, (0, "noise", 25))
    charge = ranks.place.charge("headless")
    assert charge is not None
    assert charge.state is ChargeState.PENDING
    before = ranks.noise("headless")
    assert ranks.run("headless", resume=True) == [0, 0]
    after = ranks.noise("headless")[len(before) :]
    assert after[0] > before[-1]
    assert after[-1] == STEPS == ranks.counted("headless")
    assert ranks.run("headless", resume=True) == [0, 0], "it was over, and all ranks are told"


@pytest.mark.soak
def test_ranks_that_disagree_are_refused_before_the_charge(ranks: Ranks) -> None:
    """Another learning rate on rank 1: named on both, and nothing is charged."""
    text = ranks.job("odd-one", 2).read_text()
    (ranks.place.folder / "jobs" / "other-one.toml").write_text(
        re.sub(r'learning_rate = "[^"]*"', 'learning_rate = "0.125"', text)
    )
    assert ranks.run("odd-one", other="other-one") == [FAILED, FAILED]
    words = "Malformed: devices: rank 1 has another optimiser than rank 0: all ranks run one job"
    assert (ranks.said("odd-one", 0), ranks.said("odd-one", 1)) == (words, words)
    assert ranks.place.charge("odd-one") is None


@pytest.mark.soak
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_killed_at_random(ranks: Ranks, size: int) -> None:
    """Any rank, at any step, before its batch, its masks or its noise: what the ledger counts covers what was drawn."""
    chosen = random.Random(size)  # noqa: S311 - a seed, so that a failure comes again
    for number in range(20):
        purpose = chosen.choice(["sampler", "noise"])
        kill = (chosen.randrange(size), purpose, chosen.randint(1, STEPS))
        _ended_in_words(ranks, f"random-{size}-{number}", size, kill)
        assert ranks.counted(f"random-{size}-{number}") <= STEPS


@pytest.mark.soak
def test_the_page_s_lines_run_under_torchrun(ranks: Ranks, tmp_path: Path) -> None:
    """Both ways of docs/devices.md, with torchrun itself: a loop of one's own, and a job."""
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    place, torchrun = ranks.place, [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node"]
    (place.folder / "train.py").write_text(lines, encoding="utf-8")
    shutil.copy(place.assignment_file("page", LIGHT), place.folder / "job.toml")
    text = (place.folder / "job.toml").read_text().replace("../", "")
    (place.folder / "job.toml").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*torchrun, "4", "train.py"], cwd=place.folder, env=environment, check=True, timeout=300)
    job = str(ranks.job("by-torchrun", 2))
    epsilon = ["--no-python", str(Path(sys.executable).with_name("epsilon")), "train", job]
    subprocess.run([*torchrun, "2", *epsilon], cwd=tmp_path, env=environment, check=True, timeout=300)
    for name in ("page", "by-torchrun"):
        charge = place.charge(name)
        assert charge is not None
        assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, STEPS)
        assert (place.folder / "runs" / name / "model.safetensors").exists()
