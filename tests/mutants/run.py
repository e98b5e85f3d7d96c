"""Try changes of the arithmetic, the rules, the decisions and the lineage: ``make mutants``.

First the strict type check reads all changes that are not decided, then the tests run once to note which of them
execute each line and how long each takes, then :mod:`tests.mutants.trial` tries what is left. What was decided holds
while the code of its function is the same; ``--again sun`` tries again what survived, what no test reached and what
had no time, after tests were added. What ``explained.toml`` gives a reason for is tried with ``--explained`` alone: of
most of it all tests would have to run to their ends. It may be ended at any time, and goes on.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.mutants.changes import Change, Function, functions
from tests.mutants.reasons import Reasons, explain, reasons
from tests.mutants.statuses import DROPPED, NOT_RUN, REFUSED, read, write
from tests.mutants.tests_by_line import CHANGED_TESTS, SOURCES, TABLE
from tests.mutants.trial import WORK
from tests.mutants.type_errors import refused

CHANGED: Final = ("ledger/filters", "ledger/accounting", "ledger/organisation_lineage", "policy/decisions")
TESTS: Final = (
    *(f"tests/ledger/{room}" for room in ("accounting", "accounts", "commands", "domain", "filters", "mechanisms")),
    "tests/ledger/organisation_lineage",
    "tests/policy",
)
FOLDER: Final = Path("mutants")
Statuses = dict[tuple[str, str], str]


def main() -> int:
    """Decide what is not decided of the modules that are asked for."""
    parser = argparse.ArgumentParser(prog="tests.mutants.run")
    parser.add_argument("modules", nargs="*", default=["*"], help="patterns of dotted names, like ledger.filters.*")
    parser.add_argument("--children", type=int, default=1)
    parser.add_argument("--again", default="", help="letters of statuses that are tried again, like sun")
    parser.add_argument("--explained", action="store_true", help="try what has a reason too")
    asked = parser.parse_args()
    found = modules(asked.modules)
    known = [] if asked.explained else reasons()
    statuses = read()
    for function in (function for one in found for function in one):
        key = function.name, function.digest
        if key in statuses:
            statuses[key] = _forgotten(function, statuses, asked.again, known)
    _drop_and_type(found, statuses)
    keep(statuses)
    work = [(one, _open(one, statuses)) for functions_ in found for one in functions_]
    work = [(one, [change for change in changes if not explain(one, change, known)]) for one, changes in work]
    work = [(one, changes) for one, changes in work if changes]
    if work:
        _note_lines()
        _try(work, asked.children)
    keep(read())
    return 0


def modules(patterns: Iterable[str]) -> list[list[Function]]:
    """The functions of each module whose name fits a pattern; made once for each text of the file."""
    made = []
    for path in (path for place in CHANGED for path in sorted(Path(place).glob("*.py"))):
        digest = hashlib.sha256(path.read_bytes() + Path(functions.__code__.co_filename).read_bytes()).hexdigest()[:12]
        kept = FOLDER / "changes" / f"{path.parent.name}.{path.stem}.{digest}"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(pickle.dumps(functions(path)))
        found: list[Function] = pickle.loads(kept.read_bytes())  # noqa: S301 - written by ourselves
        if found and any(fnmatch.fnmatch(found[0].module, pattern) for pattern in patterns):
            made.append(found)
    return made


def keep(statuses: Statuses) -> None:
    """Write down what is decided of the functions as they are now; what was of others is forgotten."""
    now = {(one.name, one.digest) for found in modules(["*"]) for one in found}
    write({key: letters for key, letters in statuses.items() if key in now})


def letter(statuses: Mapping[tuple[str, str], str], function: Function, change: Change) -> str:
    """What became of a change."""
    letters = statuses.get((function.name, function.digest), "")
    return letters[change.place - 1] if change.place <= len(letters) else NOT_RUN


def _forgotten(function: Function, statuses: Mapping[tuple[str, str], str], again: str, known: Reasons) -> str:
    """The letters of a function without those of changes that are to be tried again."""
    letters = [(change, letter(statuses, function, change)) for change in function.changes]
    return "".join(
        NOT_RUN if status in again and not explain(function, change, known) else status for change, status in letters
    )


def _open(function: Function, statuses: Statuses) -> list[Change]:
    return [change for change in function.changes if letter(statuses, function, change) == NOT_RUN]


def _drop_and_type(found: list[list[Function]], statuses: Statuses) -> None:
    """Decide what needs no test, of the modules in which something is open."""
    modules_open = [one for one in found if any(_open(function, statuses) for function in one)]
    seen = refused(modules_open, FOLDER / "types") if modules_open else set()
    for function in (function for one in modules_open for function in one):
        letters = [letter(statuses, function, change) for change in function.changes]
        for change in _open(function, statuses):
            if change.dropped:
                letters[change.place - 1] = DROPPED
            elif (function.name, change.place) in seen:
                letters[change.place - 1] = REFUSED
        statuses[function.name, function.digest] = "".join(letters)


def _note_lines() -> None:
    """Run all tests once; those of some files alone, where nothing but these files has changed since."""
    places = [path for place in ("ledger", "policy", "tests") for path in sorted(Path(place).rglob("*.py"))]
    places = [path for path in places if path.parent != Path(__file__).parent.relative_to(Path.cwd())]
    now = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in places}
    stamp = TABLE.with_suffix(".digests")
    was: dict[str, str] = json.loads(stamp.read_text(encoding="utf-8")) if TABLE.exists() and stamp.exists() else {}
    changed = {path for path in {*now, *was} if now.get(path) != was.get(path)}
    few = bool(was) and all(Path(path).name.startswith("test_") for path in changed)
    again = [path for path in sorted(changed) if any(path.startswith(f"{room}/") for room in TESTS)] if few else TESTS
    asked = [path for path in again if Path(path).exists()]
    if asked:
        sources = ":".join(str(path) for place in CHANGED for path in sorted(Path(place).glob("*.py")))
        environment = {SOURCES: sources, CHANGED_TESTS: ":".join(again) if few else ""}
        if _pytest("tests.mutants.tests_by_line", environment, asked).wait() not in {0, 1}:
            raise SystemExit("the tests did not run")
    stamp.write_text(json.dumps(now), encoding="utf-8")


def _try(work: list[tuple[Function, list[Change]]], children: int) -> None:
    running = []
    for child in range(children):
        part = FOLDER / f"work.{child}"
        part.write_bytes(pickle.dumps(work[child::children]))
        running.append(_pytest("tests.mutants.trial", {WORK: str(part)}))
    codes = [one.wait() for one in running]
    if any(codes):
        raise SystemExit("the trial did not run to its end: what was decided is kept")


def _pytest(plugin: str, environment: dict[str, str], tests: Iterable[str] = TESTS) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-s", "-o", "faulthandler_timeout=0", "-p", plugin]
    command += ["--hypothesis-profile=mutants", *tests]
    return subprocess.Popen(command, env={**os.environ, **environment})


if __name__ == "__main__":
    sys.exit(main())
