"""Judge a run of mutation testing: the share of mutants that the tests kill, and each survivor with its reason.

A mutant is the source with one small change. It is killed if a test fails, or does not end, with it. A survivor is a
place that the tests do not see; ``explained.toml`` says of each one that is left why no test can tell, or need not.

Run by ``make mutants``, after ``mutmut run`` in the same folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

KILLED_MIN: Final = 0.9
KILLED: Final = frozenset({"killed", "timeout", "segfault"})
UNKNOWN: Final = frozenset({"not checked", "check was interrupted by user", "skipped"})
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
    counts: Counter[tuple[str, str]] = Counter()
    for key, status in decided.items():
        counts[_function(key)[0], _kind(status)] += 1
    modules = sorted({module for module, _ in counts})
    _say(f"{'module':50} {'mutants':>8} {'killed':>8} {'share':>7}")
    for module in modules:
        killed, survived = counts[module, "killed"], counts[module, "survived"]
        _say(f"{module:50} {killed + survived:8} {killed:8} {killed / max(1, killed + survived):7.1%}")
    killed = sum(counts[module, "killed"] for module in modules)
    survived = sum(counts[module, "survived"] for module in modules)
    undecided = sum(counts[module, "undecided"] for module in modules)
    share = killed / max(1, killed + survived)
    _say(f"{'all':50} {killed + survived:8} {killed:8} {share:7.1%}; {undecided} not decided")
    left = [one for key, status in decided.items() if _kind(status) == "survived" and not _explain(one := _shown(key))]
    for one in left:
        _say(f"\n{one.function}\n- {one.was}\n+ {one.now}")
    _say(f"\n{survived} survived, {len(left)} of them without a reason in {EXPLAINED.name}")
    return 1 if left or undecided or share < KILLED_MIN else 0


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
    return "killed" if status in KILLED else "undecided" if status in UNKNOWN else "survived"


def _function(key: str) -> tuple[str, str]:
    found = _KEY.fullmatch(key)
    assert found is not None, key
    return found["module"], ".".join(part for part in (found["module"], found["kind"], found["name"]) if part)


def _shown(key: str) -> Survivor:
    lines = _mutmut("show", key).splitlines()
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
