"""Runs in processes of their own that are killed, held at a moment, copied and resumed, and what is left of them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from api.demo import digits
from ledger.commands.entry import Entry
from ledger.domain.outcomes import ChargeState, Code
from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.live_service import Place
from trainer_adapter.job.step_log import steps_begun

ROOT = Path(__file__).parents[2]
STEPS = 47
LIGHT = Plan(Fraction(1, 100), Fraction(200), Fraction(1), STEPS, digits.RECORDS // 100)
RESUME = '\n[train.resume]\nkey = "../keys/{name}.room"\nevery_s = 0\n'
Moment = tuple[str, int]
"""A moment of tests/trainer_adapter/kill_worker.py, and how many of its kind to let pass."""
LEFT = "left "
"""Begins a line of a trace with the digest of what left; the others are uses of noise."""


class Killer:
    """A process that runs jobs in children of its own and kills them, or holds them at a moment."""

    def __init__(self, process: subprocess.Popen[str], place: Place) -> None:
        """See tests/trainer_adapter/kill_worker.py."""
        self._process, self.place = process, place

    def run(self, name: str, kill: Moment | None, *, resume: bool = False, leased: bool = True) -> int:
        """The child's wait status."""
        self.start(name, kill, resume=resume, leased=leased)
        return self.status()

    def start(
        self, name: str, kill: Moment | None = None, *, resume: bool = False, leased: bool = True, held: bool = False
    ) -> None:
        """Start a child; where it is ``held`` it waits at the moment for :meth:`go_on`, and is not killed."""
        path = self._job(name)
        if not resume:
            text = self.place.job(name, LIGHT).read_text()
            text = text if leased else text.replace("lease_s = 0\n", "step_leases = false\n")
            path.write_text(text + RESUME.format(name=name))
        gate = self.place.folder / f"{name}.gate"
        if held:
            gate.unlink(missing_ok=True)
            os.mkfifo(gate)
        requested = {
            "gate": str(gate) if held else None,
            "job": str(path),
            "kill": kill,
            "resume": resume,
            "trace": str(self._trace(name)),
        }
        self._ask(name, requested)

    def cloned(self, name: str, moment: Moment, under_way: tuple[int | None, str], *, later: bool) -> tuple[int, int]:
        """Run one that goes on twice from a moment; the exit status of the first process, and of its clone.

        Args:
            name: the run; the clone's notes are those of ``<name>-clone``.
            moment: when.
            under_way: the first step of the lease that is requested meanwhile, and how far that request is.
            later: whether the clone waits until the first process has ended its run.
        """
        path = self._job(name)
        path.write_text(self.place.job(name, LIGHT).read_text() + RESUME.format(name=name))
        first, point = under_way
        folder = self.clone_of(name)
        machine = {"folder": str(folder), "machine": str(self.place.folder), "run": name}
        requested = {
            "clone": {**machine, "first": first, "later": later, "point": point},
            "gate": None,
            "job": str(path.relative_to(self.place.folder)),
            "kill": moment,
            "resume": False,
            "trace": str(self._trace(name)),
        }
        self._ask(name, requested)
        both = os.waitstatus_to_exitcode(self.status())
        return both & 1, both >> 1

    def clone_of(self, name: str) -> Path:
        """The folder of a run's second machine."""
        return self.place.folder / "clones" / name

    def kill(self, name: str) -> None:
        """Kill the child that was started, which has begun to work."""
        os.kill(int(self._pid(name).read_text()), signal.SIGKILL)

    def _ask(self, name: str, requested: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**requested, "pid": str(self._pid(name))}) + "\n")
        self._process.stdin.flush()

    def status(self) -> int:
        """The wait status of the child that was started, once it has ended."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def wait_held(self, name: str) -> None:
        """Return once the child waits at its moment."""
        with (self.place.folder / f"{name}.gate").open("rb") as gate:
            assert gate.read() == b"held"

    def go_on(self, name: str) -> None:
        """Let the child go on that waits."""
        (self.place.folder / f"{name}.gate").open("wb").close()

    def copied(self, name: str, copy: str) -> None:
        """Copy a run's folder and its job; the copy is the same run, in another folder."""
        shutil.copytree(self.place.folder / "runs" / name, self.place.folder / "runs" / copy)
        text = self._job(name).read_text()
        self._job(copy).write_text(text.replace(f'"../runs/{name}"', f'"../runs/{copy}"'))

    def _job(self, name: str) -> Path:
        return self.place.folder / "jobs" / f"{name}.toml"

    def noise(self, name: str) -> list[int]:
        """The steps whose noise may have been used, by all processes of the run."""
        return [int(line.split()[0]) for line in self._traced(name) if not line.startswith(LEFT)]

    def keys(self, name: str) -> list[str]:
        """By step, which key the noise came from, as its digest."""
        return [line.split()[1] for line in self._traced(name) if not line.startswith(LEFT)]

    def left(self, name: str) -> list[str]:
        """The digests of what left before the model, in order."""
        return [line.removeprefix(LEFT) for line in self._traced(name) if line.startswith(LEFT)]

    def said(self, name: str) -> str:
        """What the newest child said that failed."""
        return self._trace(name).with_suffix(".error").read_text()

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

    def entries(self, name: str, kind: str) -> list[Entry]:
        """Those of one kind about a run, in order."""
        with self.place.book.read() as facts:
            entries = [Entry.parse(facts.entry(index)) for index in range(facts.size)]
        return [one for one in entries if one.kind == kind and one.request.get("charge") == name]

    def leased_before(self, name: str) -> list[int]:
        """How many steps were leased before each generation that took the run over."""
        found = [one.body["leased"] for one in self.entries(name, "run_generation")]
        return [one for one in found if isinstance(one, int)]

    def _pid(self, name: str) -> Path:
        return self.place.folder / f"{name}.pid"

    def _trace(self, name: str) -> Path:
        return self.place.folder / f"{name}.trace"


@contextmanager
def killer_at(place: Place) -> Iterator[Killer]:
    """One process to kill or hold the children of."""
    command = [sys.executable, str(ROOT / "tests" / "trainer_adapter" / "kill_worker.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Killer(process, place)
        assert process.stdin is not None
        process.stdin.close()


Pair = tuple[Killer, Killer]
FAILED = 256
"""The wait status of a child that ended with exit code 1."""


def hold_copies(pair: Pair, run: str, copy: str) -> tuple[list[int], int]:
    """Hold what two copies left to the ledger's book: the steps with noise, and the copies that have a model."""
    noise = [*pair[0].noise(run), *pair[1].noise(copy)]
    assert len(noise) == len(set(noise)), "a step was taken twice"
    charge = pair[0].place.charge(run)
    assert charge is not None
    assert charge.steps_posted is not None
    assert len(noise) <= charge.steps_posted
    assert len([one for one in pair[0].entries(run, "post") if one.code is Code.POSTED]) == 1
    released = {one.request["model"] for one in pair[0].entries(run, "model_release") if one.code is Code.PERMITTED}
    assert released <= {charge.model}
    left = [
        path
        for name in (run, copy)
        for path in (pair[0].place.folder / "runs" / name).glob("model.*")
        if path.suffix in {".safetensors", ".sealed"}
    ]
    return noise, len(left)


def resume_both(pair: Pair, run: str, number: int) -> int:
    """Kill a run somewhere, copy it, resume both at the same time: no step twice, one post; the copies with a model."""
    copy, chosen = f"{run}-copy", random.Random(number)  # noqa: S311 - a seed, so that a failure comes again
    moment: Moment = (chosen.choice(["begun", "noise", "noised"]), chosen.randint(0, 3))
    moment = moment if moment[0] == "begun" else (moment[0], chosen.randint(0, STEPS - 1))
    assert pair[0].run(run, moment) == signal.SIGKILL
    pair[0].copied(run, copy)
    pair[0].start(run, resume=True)
    pair[1].start(copy, resume=True)
    ended = sorted([pair[0].status(), pair[1].status()])
    assert ended in ([0, 0], [0, FAILED]), (moment, ended)
    models = hold_copies(pair, run, copy)[1]
    if ended == [0, FAILED]:
        lost = next(name for name in (copy, run) if (pair[0].place.folder / f"{name}.error").exists())
        # Refused while it ran, or resumed when the other had posted.
        assert "conflict" in pair[0].said(lost) or "posted without the model of this folder" in pair[0].said(lost)
    return models
