"""Judge a run of mutation testing: the share of mutants that the tests kill, and each survivor with its reason.

A mutant is the source with one small change. It is killed if a test fails, or does not end, with it. A survivor is a
place that the tests do not see; ``explained.toml`` says of each one that is left why no test can tell, or need not.

Run by ``make mutants``, after ``mutmut run`` in the same folder; also of a run that was interrupted or was of some
modules. What no test calls counts as a survivor. What ran out of time, or did not run yet, is counted by itself and is
not killed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

KILLED_MIN: Final = 0.9
KILLED: Final = frozenset({"killed", "timeout", "segfault"})
NOT_RUN: Final = frozenset({"not checked", "check was interrupted by user"})
NO_TIME: Final = "skipped"
"""What mutmut calls those that :mod:`tests.mutants.time_limit` ended."""
KINDS: Final = ("killed", "survived", "no time", "not run")
EXPLAINED: Final = Path(__file__).with_name("explained.toml")
_KEY: Final = re.compile(r"(?P<module>.+)\.x(?:ǁ(?P<kind>[^ǁ]+)ǁ|_)(?P<name>.+)__mutmut_\d+")


class Survivor(NamedTuple):
    """A change that no test saw.

    Attributes:
        function: its dotted name.
        was: the lines as they are, without indentation.
        now: the lines as they were changed.
    """

    function: str
    was: str
    now: str


def main() -> int:
    """Print the table and every survivor that is not explained; 1 if one is left, or too few were killed."""
    decided = _results()
    counts = Counter((_function(key)[0], _kind(status)) for key, status in decided.items())
    columns = ("mutants", *KINDS)
    _say(f"{'module':50} {' '.join(f'{one:>8}' for one in columns)} {'killed of run':>13}")
    totals = Counter[str]()
    for module in sorted({module for module, _ in counts}):
        of_module = Counter({kind: count for (name, kind), count in counts.items() if name == module})
        totals += of_module
        _say(_row(module, of_module))
    _say(_row("all", totals))
    survivors = _shown([key for key, status in decided.items() if _kind(status) == "survived"])
    left = [one for one in survivors if not _explain(one)]
    for one in left:
        _say(f"\n{one.function}\n- {one.was}\n+ {one.now}")
    _say(f"\n{len(survivors)} survived, {len(left)} of them without a reason in {EXPLAINED.name}")
    return 1 if left or totals["not run"] or totals["no time"] or _share(totals) < KILLED_MIN else 0


def _row(name: str, counts: Counter[str]) -> str:
    numbers = " ".join(f"{counts[kind]:8}" for kind in KINDS)
    return f"{name:50} {counts.total():8} {numbers} {_share(counts):13.1%}"


def _share(counts: Counter[str]) -> float:
    """The killed ones of those that ran; what ran out of time is not killed."""
    return counts["killed"] / max(1, counts.total() - counts["not run"])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _mutmut(*arguments: str) -> str:
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _results() -> dict[str, str]:
    """The status of every mutant, by its key."""
    lines = (line.strip().partition(": ") for line in _mutmut("results", "--all", "true").splitlines())
    return {key: status for key, _, status in lines if _KEY.fullmatch(key)}


def _kind(status: str) -> str:
    if status in KILLED:
        return "killed"
    return "not run" if status in NOT_RUN else "no time" if status == NO_TIME else "survived"


def _function(key: str) -> tuple[str, str]:
    found = _KEY.fullmatch(key)
    assert found is not None, key
    return found["module"], ".".join(part for part in (found["module"], found["kind"], found["name"]) if part)


def _shown(keys: list[str]) -> list[Survivor]:
    """The changed lines of each, by one process: one for every survivor would take minutes."""
    if not keys:
        return []
    program = (
        "import json, sys; from mutmut.mutation.diff_apply import get_diff_for_mutant as diff; "
        "json.dump([diff(key) for key in json.load(sys.stdin)], sys.stdout)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True, input=json.dumps(keys))
    return [_survivor(key, text.splitlines()) for key, text in zip(keys, json.loads(done.stdout), strict=True)]


def _survivor(key: str, lines: list[str]) -> Survivor:
    changes = {
        sign: " ".join(line[1:].strip() for line in lines if line.startswith(sign) and not line.startswith(sign * 3))
        for sign in "-+"
    }
    return Survivor(_function(key)[1], changes["-"], changes["+"])


def _explain(survivor: Survivor) -> str | None:
    """The reason that is written down for a survivor: of its function alone, or of every change of its kind."""
    for one in tomllib.loads(EXPLAINED.read_text())["explained"]:
        named = one.get("function", survivor.function) == survivor.function
        if named and re.fullmatch(one["was"], survivor.was) and re.fullmatch(one["now"], survivor.now):
            return str(one["why"])
    return None


if __name__ == "__main__":
    sys.exit(main())
