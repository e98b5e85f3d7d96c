"""No record ends a process whose graph is compiled, and no process that holds records leaves its memory behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.trainer_adapter.compiled_run_child import PLAN
from trainer_adapter.run.core_dumps import CORE_BYTES

ROOT = Path(__file__).parents[3]
CHILD = ROOT / "tests" / "trainer_adapter" / "compiled_run_child.py"


@dataclass(frozen=True)
class Told:
    """What the child's run says of itself."""

    finite: bool
    limits: list[int]
    posted: int
    taken: int


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A run whose data have one token of no word, in a process of its own with two threads."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", str(CHILD), str(tmp_path_factory.mktemp("compiled") / "place")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Told(**json.loads(done.stdout))


def test_a_token_of_no_word_ends_no_compiled_run(told: Told) -> None:
    """Its record adds nothing, and every step is taken and posted: a compiled kernel would end the process."""
    assert (told.taken, told.posted, told.finite) == (PLAN.steps, PLAN.steps, True)


def test_a_run_leaves_no_core_from_its_charge_on(told: Told) -> None:
    """The limit is down, for good, before the keys of the data are requested; the process began with its most."""
    before, charged, ended = told.limits
    most = CORE_BYTES if before == resource.RLIM_INFINITY else min(CORE_BYTES, before)
    assert (charged, ended) == (most, most)


def test_no_core_is_left_where_the_limit_is_down(tmp_path: Path) -> None:
    """By the kernel's own word on a process that aborts, and on one that it becomes."""
    lines = "import os\nfrom trainer_adapter.run.core_dumps import leave_no_core\nleave_no_core()\n"
    for last in ("os.abort()", "os.execvp('sh', ['sh', '-c', 'kill -ABRT $$'])"):
        child = os.fork()
        if not child:
            _become(lines + last, tmp_path)
        status = os.waitpid(child, 0)[1]
        assert (os.WTERMSIG(status), os.WCOREDUMP(status)) == (signal.SIGABRT, False)
    assert not list(tmp_path.iterdir())


def _become(lines: str, folder: Path) -> None:
    """Run these lines in a folder, with as large a core as this process may leave; ends this process."""
    try:
        os.chdir(folder)
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        os.execve(sys.executable, [sys.executable, "-c", lines], environment)  # noqa: S606 - our own lines
    finally:
        os._exit(1)
