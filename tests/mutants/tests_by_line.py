"""A plugin of pytest: which tests execute each line of what is changed, and how long each takes.

Written as JSON: the seconds of processor time of each test that passed, and for each file and line the tests. Every
test begins without what caches kept, so that all who need an answer are noted where it is computed.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import Phase, settings

from tests.mutants.fresh_caches import caches

TABLE: Final = Path("mutants/lines.json")
SOURCES: Final = "MUTANT_SOURCES"
"""The environment variable that holds the paths of what is changed, apart by colons."""
CHANGED_TESTS: Final = "MUTANT_CHANGED_TESTS"
"""Likewise the files of tests that alone are noted anew; if it is empty, all are."""
# A failing example is enough: it need not be the smallest.
settings.register_profile("mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
_coverage: Any = importlib.import_module("coverage")


class Table:
    """The tests of each line."""

    def __init__(self, paths: list[str], changed: tuple[str, ...]) -> None:
        """Of these files, and of these tests' alone if there are any."""
        self._coverage = _coverage.Coverage(data_file=None, config_file=False, include=paths)
        self._paths, self._changed = paths, changed
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._caches: list[Any] = []

    def pytest_collection_finish(self) -> None:
        """Begin to note lines."""
        self._caches = caches()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the lines of one test under its name."""
        for one in self._caches:
            one.cache_clear()
        self._coverage.switch_context(item.nodeid)
        begun = time.process_time()
        result = yield
        self._seconds[item.nodeid] = round(time.process_time() - begun, 4)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails without a change decides nothing."""
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the table."""
        self._coverage.stop()
        data = self._coverage.get_data()
        seconds = {name: taken for name, taken in self._seconds.items() if name not in self._failed}
        lines = {
            path: {str(line): names for line, names in data.contexts_by_lineno(str(Path(path).resolve())).items()}
            for path in self._paths
        }
        if self._changed:
            _add_kept(seconds, lines, self._changed)
        number = {name: at for at, name in enumerate(seconds)}
        places = {
            path: {line: sorted(number[name] for name in names if name in number) for line, names in found.items()}
            for path, found in lines.items()
        }
        TABLE.parent.mkdir(exist_ok=True)
        table = {"tests": [*seconds], "seconds": [*seconds.values()], "lines": places}
        TABLE.write_text(json.dumps(table), encoding="utf-8")


def _add_kept(seconds: dict[str, float], lines: dict[str, dict[str, list[str]]], changed: tuple[str, ...]) -> None:
    """What the table says of the tests of all other files."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    names = table["tests"]
    kept = {at for at, name in enumerate(names) if name.partition("::")[0] not in changed}
    seconds.update((names[at], table["seconds"][at]) for at in kept)
    for path, found in table["lines"].items():
        for line, places in found.items():
            held = lines.setdefault(path, {}).setdefault(line, [])
            held += [names[at] for at in places if at in kept]


def pytest_configure(config: pytest.Config) -> None:
    """Make the table, where files are named."""
    if SOURCES in os.environ:
        changed = tuple(filter(None, os.environ[CHANGED_TESTS].split(":")))
        config.pluginmanager.register(Table(os.environ[SOURCES].split(":"), changed))
