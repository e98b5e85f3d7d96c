"""A plugin of pytest: try each change by the tests that execute its line, until one fails.

This process imports and collects everything once. For each change it forks; the child gives the function its changed
code, and runs the tests, quick ones and those that saw a change of the same function before the others. The first time
that a test sees a change, it is run once more without any, after the same tests: if it fails then too, it decides
nothing. One line of JSON a change is appended to ``mutants/decided.jsonl``, so a run may be ended at any time.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.changes import Change, Function
from tests.mutants.fresh_caches import caches
from tests.mutants.statuses import DECIDED, ENDLESS, KILLED, NO_TIME, SURVIVED, UNREACHED
from tests.mutants.tests_by_line import TABLE

WORK: Final = "MUTANT_WORK"
"""The environment variable that names a file with what is to be tried."""
CPU_S_MAX: Final = float(os.environ.get("MUTANT_CPU_S", "4"))
"""Of all tests of a change together; beyond it the change counts as one that had no time."""
WALL_S_MAX: Final = 600
_TEST_S_MIN: Final = 5.0
_OWN: Final = 10
"""A test in the module's own file may take so many times as long as another that goes before it."""
_TEST_FACTOR: Final = 8
"""A test that takes so many times as long as without the change does not end: the change is seen."""
_ADDRESSES_MAX: Final = 8 << 30
"""Bytes: a change that takes ever more memory fails a test, and not the machine."""

ENDED: Final[dict[int, str]] = {
    signal.SIGPROF: ENDLESS,
    **dict.fromkeys((signal.SIGALRM, signal.SIGKILL, signal.SIGTERM, signal.SIGINT), NO_TIME),
}
"""What the signal that ended a child says of its change; any other one is a crash, and the change is seen."""


class Tests(NamedTuple):
    """What the tests execute.

    Attributes:
        seconds: of each test, by its number.
        lines: the numbers of the tests of each line of each file.
    """

    names: list[str]
    seconds: list[float]
    lines: dict[str, dict[str, list[int]]]

    @classmethod
    def read(cls) -> Tests:
        """What :mod:`tests.mutants.tests_by_line` wrote."""
        table = json.loads(TABLE.read_text(encoding="utf-8"))
        return cls(table["tests"], table["seconds"], table["lines"])

    def of(self, function: Function, change: Change) -> set[int]:
        """Those that execute the changed lines; those of the whole function where its head is changed."""
        table = self.lines.get(str(function.path), {})
        lines = change.lines or function.body
        return {test for line in lines for test in table.get(str(line), ())}

    def least(self, function: Function) -> float:
        """Seconds of the quickest test that calls a function."""
        table = self.lines.get(str(function.path), {})
        tests = {test for line in function.body[1:] for test in table.get(str(line), ())}
        return min((self.seconds[test] for test in tests), default=0.0)


class Case(NamedTuple):
    """One change to try.

    Attributes:
        change: None tells what the tests say without one, however long they take.
        objects: the function itself, under its decorators, wherever it is held.
        queue: the tests, and the seconds of each without the change.
        kept: caches to empty first.
    """

    function: Function
    change: Change | None
    objects: list[FunctionType]
    queue: list[tuple[pytest.Item, float]]
    kept: list[_lru_cache_wrapper[Any]]


class Trials:
    """Runs the changes of some functions."""

    def __init__(self, work: list[tuple[Function, list[Change]]]) -> None:
        """These changes of each function: of two the one first that has a quicker test."""
        self._tests = Tests.read()
        self._sound: dict[str, bool] = {}
        self._work = sorted(work, key=lambda one: self._tests.least(one[0]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of the tests themselves."""
        items = {item.nodeid: item for item in session.items}
        objects, kept = _functions(), caches()
        gc.collect()
        gc.freeze()
        with DECIDED.open("a", encoding="utf-8") as file:
            for function, changes in self._work:
                seen = Counter[str]()
                found = objects.get((str(function.path.resolve()), function.qualname), [])
                for change in changes:
                    case = Case(function, change, found, self._queue(function, change, items, seen), kept)
                    file.write(json.dumps(self._decide(case, change, seen)) + "\n")
                    file.flush()
        return True

    def _decide(self, case: Case, change: Change, seen: Counter[str]) -> dict[str, object]:
        """What became of a change, as a line of the record; counts the test that saw it."""
        begun = time.monotonic()
        status, by, cpu_s = _try(case)
        while by is not None and not self._passes(case, by):
            case = case._replace(queue=case.queue[:by] + case.queue[by + 1 :])
            status, by, cpu_s = _try(case)
        name = None if by is None else case.queue[by][0].nodeid
        if name is not None:
            seen[name] += 1
        return {
            "function": case.function.name,
            "digest": case.function.digest,
            "place": change.place,
            "status": status,
            "by": name,
            "cpu_s": round(cpu_s, 3),
            "wall_s": round(time.monotonic() - begun, 3),
        }

    def _passes(self, case: Case, by: int) -> bool:
        """Whether the test at this place passes without a change, after those before it."""
        name = case.queue[by][0].nodeid
        if name not in self._sound:
            status, _, _ = _try(case._replace(change=None, queue=case.queue[: by + 1]))
            self._sound[name] = status == SURVIVED
        return self._sound[name]

    def _queue(
        self, function: Function, change: Change, items: dict[str, pytest.Item], seen: Counter[str]
    ) -> list[tuple[pytest.Item, float]]:
        """The tests of a change: first quick ones, those of its module, and those that saw a change of it."""
        names = self._tests.names
        numbers = [one for one in self._tests.of(function, change) if names[one] in items]
        found = [(items[names[one]], self._tests.seconds[one]) for one in numbers]
        own = f"/test_{function.path.stem}.py"
        return sorted(
            found, key=lambda one: one[1] / (1 + 10 * seen[one[0].nodeid]) / (_OWN if own in one[0].nodeid else 1)
        )


def pytest_configure(config: pytest.Config) -> None:
    """Try changes, where some are named."""
    if WORK in os.environ:
        work = pickle.loads(Path(os.environ[WORK]).read_bytes())  # noqa: S301 - written by tests.mutants.run
        config.pluginmanager.register(Trials(work))


def _functions() -> dict[tuple[str, str], list[FunctionType]]:
    """All functions there are, by file and qualified name; decorated ones too, under their decorators."""
    found: dict[tuple[str, str], list[FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            found.setdefault((one.__code__.co_filename, one.__code__.co_qualname), []).append(one)
    return found


def _try(case: Case) -> tuple[str, int | None, float]:
    """The status of a change, the place of the test that saw it, and seconds of processor time."""
    if not case.queue or not case.objects:
        return UNREACHED, None, 0.0
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_child(case, writing))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        places = [int(place) for place in pipe.read().split()]
    _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        how = ENDED.get(os.WTERMSIG(status), KILLED)
    else:
        how = {0: SURVIVED, 1: KILLED, 2: NO_TIME}.get(os.WEXITSTATUS(status), KILLED)
    by = places[-1] if places and how in {KILLED, ENDLESS} else None
    return how, by, usage.ru_utime + usage.ru_stime


def _child(case: Case, writing: int) -> int:
    """0 if no test sees the change, 1 if one does, 2 if there was no time. Writes the place of each test it begins."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for sign in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(sign, signal.SIG_DFL)
    signal.alarm(WALL_S_MAX)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_MAX, _ADDRESSES_MAX))
    if case.change is not None:
        _give(case, case.change)
    for cache in case.kept:
        cache.cache_clear()
    for place, ((item, seconds), (following, _)) in enumerate(_pairs(case.queue)):
        if case.change is not None and time.process_time() > CPU_S_MAX:
            return 2
        os.write(writing, f"{place} ".encode())
        signal.setitimer(signal.ITIMER_PROF, _TEST_S_MIN + _TEST_FACTOR * seconds)
        try:
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                return 1
        except BaseException:  # noqa: BLE001 - a change may raise anything, also what ends a session
            return 1
    return 0


def _pairs(
    queue: list[tuple[pytest.Item, float]],
) -> Iterator[tuple[tuple[pytest.Item, float], tuple[pytest.Item | None, float]]]:
    yield from zip(queue, [*queue[1:], (None, 0.0)], strict=True)


def _give(case: Case, change: Change) -> None:
    """Change the function where it is; what a cache, a property or a class holds is the same object."""
    code = case.function.compiled(change.text)
    for one in case.objects:
        one.__code__ = code.replace(co_qualname=one.__code__.co_qualname)
        if not change.lines:
            one.__defaults__, one.__kwdefaults__ = _defaults(case, change, one)


def _defaults(case: Case, change: Change, one: FunctionType) -> tuple[Any, Any]:
    holder, _, name = case.function.qualname.rpartition(".")
    text = f"class {holder}:\n{change.text}" if holder else change.text
    space = dict(one.__globals__)
    exec(f"from __future__ import annotations\n{text}", space)  # noqa: S102 - the changed source of ours
    made = space[holder].__dict__[name] if holder else space[name]
    return made.__defaults__, made.__kwdefaults__
