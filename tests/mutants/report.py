"""Judge the mutation testing: the share of changes that tests or the type check see, and each survivor with its reason.

A change survives if all tests that execute its line pass with it, or none executes it: a place that the tests do not
see. ``explained.toml`` says of each survivor that is left why no test can tell, or need not; a change with such a
reason needs no trial. What had no time, or was not tried, is counted by itself, and as not killed. What was dropped
before (:data:`tests.mutants.changes.DROPPED`) is told and counts for nothing. Two rates are told: what was seen of all
changes, the refusals of the type check among them, and what tests killed of all that these do not refuse. Nine tenths
are asked of both.

Run by ``make mutants`` after :mod:`tests.mutants.run`; also of a run that was interrupted or was of some modules.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tests.mutants.changes import Change, Function
from tests.mutants.reasons import EXPLAINED, explain, fits, reasons
from tests.mutants.run import letter, modules
from tests.mutants.statuses import DROPPED, ENDLESS, KILLED, NO_TIME, NOT_RUN, REFUSED, SURVIVED, UNREACHED, read

KILLED_MIN: Final = 0.9
SEEN: Final = (KILLED, ENDLESS, REFUSED)
UNSEEN: Final = (SURVIVED, UNREACHED, NO_TIME, NOT_RUN)
COLUMNS: Final = {
    "killed": KILLED,
    "endless": ENDLESS,
    "refused": REFUSED,
    "survived": SURVIVED,
    "unreached": UNREACHED,
    "no time": NO_TIME,
    "not run": NOT_RUN,
    "dropped": DROPPED,
}


def main() -> int:
    """Print the table, survivors without a reason, reasons without a survivor; 1 if there is one, or few are killed."""
    decided = list(_decided())
    _say(f"{'module':42} {'all':>6} {' '.join(f'{one:>9}' for one in COLUMNS)}   seen  of tried")
    totals = Counter[str]()
    for module in sorted({function.module for function, _, _ in decided}):
        counts = Counter(status for function, _, status in decided if function.module == module)
        totals += counts
        _say(_row(module, counts))
    _say(_row("all", totals))
    known = reasons()
    left = [one for one in decided if one[2] in UNSEEN and not explain(one[0], one[1], known)]
    for function, change, status in left:
        _say(f"\n{status} {function.name} {change.place}\n- {change.was}\n+ {change.now}")
    idle = [one for one in known if not any(fits(one, function, change) for function, change in _unseen(decided))]
    for one in idle:
        _say(f"\na reason for nothing that is left: {one.get('function', 'anywhere')}: {one['now']}")
    count = sum(totals[one] for one in UNSEEN)
    _say(f"\n{count} were not seen, {len(left)} of them without a reason in {EXPLAINED.name}")
    few = min(_share(totals), _killed(totals)) < KILLED_MIN
    return 1 if left or few or idle else 0


def _decided() -> Iterator[tuple[Function, Change, str]]:
    statuses = read()
    for found in modules(["*"]):
        for function in found:
            for change in function.changes:
                yield function, change, letter(statuses, function, change)


def _unseen(decided: Iterable[tuple[Function, Change, str]]) -> Iterator[tuple[Function, Change]]:
    return ((function, change) for function, change, status in decided if status in UNSEEN)


def _row(name: str, counts: Counter[str]) -> str:
    numbers = " ".join(f"{counts[one]:9}" for one in COLUMNS.values())
    return f"{name:42} {counts.total():6} {numbers} {_share(counts):6.1%} {_killed(counts):9.1%}"


def _share(counts: Counter[str]) -> float:
    """The seen ones of all that were not dropped."""
    return sum(counts[one] for one in SEEN) / max(1, counts.total() - counts[DROPPED])


def _killed(counts: Counter[str]) -> float:
    """What tests saw of the changes that the type check does not refuse."""
    killed = counts[KILLED] + counts[ENDLESS]
    return killed / max(1, killed + sum(counts[one] for one in UNSEEN))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
