r"""Checks a report of one dataset: every file beside it, and every number on it that names a file.

    python check.py FOLDER --log LOG.VKEY

It needs Python 3.11, the package ``cryptography``, ``check_page.py`` and ``verifier.py`` beside it, and no network.
Bring the log's key as you keep it yourself, and the project's own copies of these three files: those in the folder of a
report come from who gives the report, and who forges one replaces them too. Without FOLDER it checks the report that it
lies beside.

It lists each value that it proved, with its file and field. It ends with 0 if all of it holds, and with 7 and the first
thing that does not otherwise. A number that names no file is computed from those that do by the rules of the ledger:
``epsilon report`` makes it again from the book.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import io
import json
import math
import re
import sys
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

FAILED = 7
EVERY = "*"
ROUNDED_AT_MOST = Fraction(1, 1000)
"""Four digits are shown: what is shown differs from the exact value by less than this part of it."""


DIGEST_SHOWN = 12
"""Characters of a digest that are shown."""
DECIMAL = re.compile(r"[0-9]{1,40}(\.[0-9]{1,40})?")


class Wrong(Exception):  # noqa: N818 - what is the case
    """The first thing that does not hold."""


class Report:
    """The folder of one report."""

    def __init__(
        self,
        folder: Path,
        log: Path,
        verifier: Any,  # noqa: ANN401 - a module
        reader: Any,  # noqa: ANN401 - a module
        *,
        quiet: bool = False,
    ) -> None:
        """Check by the key in ``log`` with the modules ``verifier`` and ``check_page``."""
        self._folder, self._verifier, self._reader, self._quiet = folder, verifier, reader, quiet
        rotations = folder / "rotations.json"
        self._trust = ["--log", str(log), *(["--rotations", str(rotations)] if rotations.exists() else [])]
        self._known: dict[str, Any] = {}

    def check(self) -> str:
        """Check all of it; what was checked, in words. Raises: Wrong, OSError; for an entry of no book, as it comes."""
        head = self._verified("checkpoint", "checkpoint")
        entries = sorted(self._folder.glob("entries/*.entry"), key=lambda one: int(one.stem))
        named: set[str] = set()
        for one in entries:
            name = f"entries/{one.name}"
            found = self._verified("receipt", f"entries/{one.stem}.tlog-proof", name)
            if (found["index"], found["root"]) != (int(one.stem), head["root"]):
                raise Wrong(f"{name}: is entry {found['index']} of {found['size']}, and not what its name says")
            self._known[name] = json.loads(one.read_bytes())
            request = self._known[name]["body"]["request"]
            named.add(str(request.get("document", "")))
        documents = self._documents(named)
        accounts = sorted(self._folder.glob("accounts/*.json"))
        for one in accounts:
            self._known[f"accounts/{one.name}"] = self._account(one, head)
        page = self._reader.Page((self._folder / "report.html").read_text("utf-8"))
        self._compare(page.found)
        tables = self._reader.check_tables(page, self._folder)
        return (
            f"holds: {len(page.found)} numbers of the report are those of {len(entries)} entries, {documents} "
            f"documents and {len(accounts)} accounts, all under the checkpoint of {head['size']} entries of "
            f"{head['log']}, and its {tables} tables are as the page. Nothing else on the page is proven here, and no "
            "PDF: go by the values that are listed"
        )

    def _account(self, file: Path, head: Any) -> Any:  # noqa: ANN401 - JSON
        """What a proof shows: the account that its name says, with all of its entries, under this checkpoint."""
        name = f"accounts/{file.name}"
        found = self._verified("account", name)
        if (found["size"], found["root"]) != (head["size"], head["root"]):
            raise Wrong(f"{name}: is of {found['size']} entries, and not under the checkpoint of the report")
        opened, _, holder = file.stem.partition("-")
        partition = next((ref for ref, place in self._openings().items() if str(place) == opened), None)
        if (found["partition"], found["account"].replace(":", "-")) != (partition, holder):
            raise Wrong(f"{name}: is of {found['account']} of {found['partition']}, and not what its name says")
        if found["hidden"]:
            raise Wrong(f"{name}: lacks {found['hidden']} entries that may have changed it")
        changing = self._changing(found["partition"], holder, found["stated"])
        if found["since"] < changing:
            raise Wrong(f"{name}: shows {found['since']} entries since its statement, and {changing} lie here")
        return found

    def _entries(self, *outcomes: str) -> dict[int, Any]:
        """The entries here with one of these outcomes, by index."""
        every = {int(Path(name).stem): one for name, one in self._known.items() if name.endswith(".entry")}
        return {place: one for place, one in every.items() if one["body"]["outcome"] in outcomes}

    def _openings(self) -> dict[str, int]:
        """The partitions whose openings lie here, each with the index of its entry."""
        opened = {place: one for place, one in self._entries("permitted").items() if one["kind"] == "partition"}
        return {_ref(one["body"]["request"]): place for place, one in opened.items()}

    def _changing(self, partition: str, holder: str, stated: int) -> int:
        """How many entries here change an account after so many: charges on its partition, and their ends.

        Those of its holder are the fewest that a lineage's account has: it may know runs of others.
        """
        openings, kept = self._openings(), self._entries("pending", "posted", "voided")
        runs = {
            one["id"]
            for one in kept.values()
            if one["kind"] == "charge"
            and holder in {"global", f"lineage-{one['body']['author']}"}
            and _is_on(one["body"]["request"], partition, openings)
        }
        return sum(
            place >= stated and (one["id"] in runs or one["body"]["request"].get("charge") in runs)
            for place, one in kept.items()
        )

    def _verified(self, what: str, *names: str) -> Any:  # noqa: ANN401 - JSON
        arguments = [what, *(str(self._folder / name) for name in names), *self._trust]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = self._verifier.main([*arguments, "--json"])
        found = json.loads(printed.getvalue())
        if code:
            raise Wrong(f"{', '.join(names)}: {found['fault']}")
        self._say(f"python verifier.py {' '.join([what, *names])}: holds")
        return found

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(printed(line))  # noqa: T201 - a command of its own

    def _documents(self, named: set[str]) -> int:
        """Each must be the one that an entry names by its digest."""
        found = sorted(self._folder.glob("documents/*"))
        for one in found:
            data = one.read_bytes()
            if hashlib.sha256(data).hexdigest() != one.name or one.name not in named:
                raise Wrong(f"documents/{one.name}: is not a document that an entry here names")
            with contextlib.suppress(ValueError):
                # One in YAML is shown by its digest alone.
                self._known[f"documents/{one.name}"] = json.loads(data)
        return len(found)

    def _compare(self, numbers: list[tuple[list[str], str, str]]) -> None:
        for (name, *path), value, shown in numbers:
            read = _resolve(self._known.get(name), path)
            if not _is_same(read, value) or not _is_shown(shown, value):
                raise Wrong(f"report.html: {shown!r} ({value}) is not what {name} says of {'.'.join(path)}: {read!r}")
        for name, *path, value in sorted({(*names, value) for names, value, _ in numbers}):
            self._say(f"{name} {'.'.join(path)}: {value}")


def printed(line: str) -> str:
    """A line as any terminal may show it: names in entries are others' own, escape sequences included."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)


def _ref(opening: Any) -> str:  # noqa: ANN401 - JSON
    return "/".join(str(opening[part]) for part in ("provider", "dataset", "partition"))


def _is_on(charge: Any, partition: str, openings: dict[str, int]) -> bool:  # noqa: ANN401 - JSON
    """Whether a charge lists a partition, or names a range that it opened within; an end that is not here is none."""
    within = (
        openings.get(f"{one['dataset']}/{one['first']}", math.inf)
        <= openings[partition]
        <= openings.get(f"{one['dataset']}/{one['last']}", -1)
        for one in charge.get("ranges", [])
        if one["dataset"] == partition.rpartition("/")[0]
    )
    return partition in charge["partitions"] or any(within)


def _resolve(value: Any, path: list[str]) -> Any:  # noqa: ANN401 - JSON
    """The value at a path of names, places and :data:`EVERY`, the sum over a list; None where there is none."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(value, dict):
        return _resolve(value.get(first), rest)
    if not isinstance(value, list):
        return None
    if first == EVERY:
        found = [_resolve(one, rest) for one in value]
        return None if None in found else sum(found)
    return _resolve(value[int(first)], rest) if int(first) < len(value) else None


def _is_same(read: Any, value: str) -> bool:  # noqa: ANN401 - JSON
    if isinstance(read, list):
        return bool(read == json.loads(value))
    if value.endswith("Z") and isinstance(read, int):
        return datetime.fromtimestamp(read // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") == value
    return read is not None and str(read) == value


def _is_shown(shown: str, value: str) -> bool:
    """Whether what people read is the value that it carries."""
    if value.startswith("[["):
        units, unbounded = json.loads(value)
        words = (
            f"{one} and {runs} without bound" if runs else str(one) for one, runs in zip(units, unbounded, strict=True)
        )
        return shown == ", ".join(words)
    if shown.endswith(" UTC"):
        return shown == f"{value[:10]} {value[11:16]} UTC"
    if shown.endswith("…"):
        return shown[:-1] == value[:DIGEST_SHOWN] and len(value) > DIGEST_SHOWN
    if not DECIMAL.fullmatch(shown) or shown == value:
        return shown == value
    exact = Fraction(value)
    return abs(exact - Fraction(shown)) <= exact * ROUNDED_AT_MOST


def main() -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(description="Check every file and number of a report.")
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="FOLDER", help="the report; default: this file's folder"
    )
    parser.add_argument("--log", required=True, type=Path, metavar="FILE", help="the log's key, as you keep it")
    parser.add_argument("--quiet", action="store_true", help="print the end only")
    options = parser.parse_args()
    # Those beside this file, which Python finds first.
    verifier, reader = (importlib.import_module(name) for name in ("verifier", "check_page"))
    folder = options.folder or Path(__file__).resolve().parent
    try:
        report = Report(folder, options.log, verifier, reader, quiet=options.quiet)
        print(printed(report.check()))  # noqa: T201 - a script of its own
    except (Wrong, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # Of a log whose operator forges, an entry may be anything.
        reason = str(error) if isinstance(error, Wrong | OSError | ValueError) else f"{type(error).__name__}: {error}"
        print(printed(reason), file=sys.stderr)  # noqa: T201 - a script of its own
        return FAILED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
