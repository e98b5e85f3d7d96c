"""The processor time of the tests, summed over all workers: printed at the end of a run, and held by ``--cpu-budget``.

Temporary files lie in memory where there is room for them.

Each test has a state folder of its own under the temporary folder, and so have the processes that it starts: none finds
what another one kept, and none writes to a home folder.

Processor time is time of the processes and not of the clock, so that a loaded machine fails nothing. A child counts
where its parent waits for it: a server that a fixture starts counts with the test that tears it down.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Generator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

# There are no fewer workers than cores. PyTorch in a process that a test starts would otherwise run as many threads
# as there are cores too, and they would spin while they wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Otherwise the first graph that is compiled waits for programs that try what the processor says it can do.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Linux keeps files in memory
MEMORY_BYTES_MIN: Final = 3 << 30


def _temporary_files_in_memory() -> None:
    """Let all temporary files lie in memory, those of started processes too, unless TMPDIR says where.

    Hundreds of databases are made and removed; on a disk the kernel spends as long on them as the tests do. Where there
    is no such folder, too little room in it, or no program may be run from it, they lie where they usually do; and so
    do those of measurements and of the soak, whose disk is to be one.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return
    if shutil.disk_usage(MEMORY).free < MEMORY_BYTES_MIN or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


STATE: Final = tempfile.TemporaryDirectory(prefix="epsilon-state-")
# For what is imported, collected or started before the first test.
os.environ["XDG_STATE_HOME"] = STATE.name
_NUMBERS: Final = count()
SLOWEST: Final = 10
FIRST: Final = (
    "tests/e2e/",
    "tests/api/server/test_race.py",
    "tests/trainer_adapter/run/test_kills.py",
    "tests/trainer_adapter/session/test_key_grants.py",
    "tests/migrations/cli/test_db_kills.py",
    "tests/faults/",
    "tests/api/routes/test_generated_requests.py",
)
"""The longest tests: a worker that began one of them last would run alone at the end, and one that took over a part of
such a file would prepare anew what its tests share."""
USED_S: Final[defaultdict[str, float]] = defaultdict(float)
"""The processor time of each test, as its reports arrive."""


class _Stopwatch:
    """Seconds that this process and the children it waited for have used, user and system."""

    def __init__(self) -> None:
        self._last = self._now()

    @staticmethod
    def _now() -> float:
        return sum(os.times()[:4])

    def lap(self) -> float:
        """Seconds used since the last lap."""
        before, self._last = self._last, self._now()
        return self._last - before


STOPWATCH: Final = _Stopwatch()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--cpu-budget SECONDS``: the run fails if its tests use more."""
    parser.addoption("--cpu-budget", type=float, metavar="SECONDS", help="fail if the tests use more processor time")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before a temporary folder is made or a process is started."""
    # A shell lets what it runs in the background ignore interrupts, and so would every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "not bench" in config.option.markexpr and "not soak" in config.option.markexpr:
        _temporary_files_in_memory()


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: while one waits for a server, a lock or a killed process, another computes."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without measurements, import none of their modules: they load what ours is measured against."""
    measures = collection_path.parent.name == "bench" and "\npytestmark = pytest.mark.bench\n" in _text(collection_path)
    return True if measures and "not bench" in config.option.markexpr else None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.suffix == ".py" else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest."""
    items.sort(
        key=lambda item: next((place for place, name in enumerate(FIRST) if item.nodeid.startswith(name)), len(FIRST))
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give the test a state folder, before its fixtures; it is made when something is written."""
    os.environ["XDG_STATE_HOME"] = f"{STATE.name}/{next(_NUMBERS)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Take away how a command that ran in this process logs: it would log for the tests after it, too."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def pytest_collection_finish() -> None:
    """What was imported until now is no test's."""
    STOPWATCH.lap()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on each report what its phase used: a worker sends it along."""
    report = yield
    report.user_properties.append(("cpu_s", STOPWATCH.lap()))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add what one phase of a test used, in a worker or not."""
    phase = [value for name, value in report.user_properties if name == "cpu_s"][-1:]
    USED_S[report.nodeid] += sum(value for value in phase if isinstance(value, float))


def _over(config: pytest.Config) -> bool:
    budget = config.getoption("cpu_budget")
    return budget is not None and sum(USED_S.values()) > budget


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that used more than its budget."""
    if _over(session.config) and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was left out, the sum, the budget, and the tests that used most."""
    skipped = (report.longrepr for report in terminalreporter.stats.get("skipped", ()))
    for reason in sorted({str(found[2]) for found in skipped if isinstance(found, tuple)}):
        terminalreporter.write_line(f"left out: {reason.removeprefix('Skipped: ')}", yellow=True)
    budget = config.getoption("cpu_budget")
    held = "" if budget is None else f" of {budget:.0f} s that they may use"
    terminalreporter.write_line(f"tests used {sum(USED_S.values()):.0f} s of processor time{held}", red=_over(config))
    if _over(config) or config.getoption("durations") is not None:
        most = sorted(USED_S, key=lambda name: -USED_S[name])
        for name in most[: config.getoption("durations") or SLOWEST]:
            terminalreporter.write_line(f"{USED_S[name]:8.2f} s {name}")
