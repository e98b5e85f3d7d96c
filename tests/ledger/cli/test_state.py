"""``epsilon standing`` and ``epsilon log --as-of``: what stood after so many entries, read from the book itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ledger.cli.main import app
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A
from tests.factories.stored import open_world
from tests.ledger.audit.forge import tampered

FOUNDED = 10


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book: ten entries before the first charge, then one charged, another charged, the first settled."""
    with open_world(tmp_path_factory.mktemp("book")) as world:
        world.submit(world.charge("one"))
        world.submit(world.charge("two"))
        world.submit(world.settle("one", 40))
        return world.path


def _run(*words: str | Path) -> Result:
    found = CliRunner().invoke(app, [*map(str, words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def _standing(book: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_run("standing", book, "--json", *words).stdout)
    return found


@pytest.mark.parametrize(
    ("size", "states"),
    [
        (FOUNDED, {}),
        (FOUNDED + 1, {"one": ("pending", None)}),
        (FOUNDED + 2, {"one": ("pending", None), "two": ("pending", None)}),
        (FOUNDED + 3, {"one": ("posted", 40), "two": ("pending", None)}),
    ],
)
def test_charges_as_they_stood(book: Path, size: int, states: dict[str, tuple[str, int | None]]) -> None:
    """After each entry what its charges were then."""
    reported = _standing(book, "--as-of", str(size))
    assert {one["id"]: (one["state"], one["steps_posted"]) for one in reported["charges"]} == states
    assert reported["entries"] == size


def test_accounts_as_they_stood(book: Path) -> None:
    """Nothing before the first charge; then steps of 100, of 200, and of 40 posted beside 100 pending."""
    assert _standing(book, "--as-of", str(FOUNDED))["accounts"] == []
    steps = {size: _of_everyone(_standing(book, "--as-of", str(FOUNDED + size))) for size in (1, 2, 3)}
    assert [one["posted"] for one in (steps[1], steps[2])] == [[0] * len(steps[1]["posted"])] * 2
    assert [2 * one for one in steps[1]["pending"]] == steps[2]["pending"]
    assert steps[3]["pending"] == steps[1]["pending"]
    assert [100 * one for one in steps[3]["posted"]] == [40 * one for one in steps[1]["pending"]]


def _of_everyone(reported: dict[str, Any]) -> dict[str, list[int]]:
    (account,) = [one for one in reported["accounts"] if one["holder"] == "global"]
    assert account["partition"] == PARTITION
    return {name: [int(one) for one in account[name]["finite"]] for name in ("posted", "pending")}


def test_now_is_the_whole_log(book: Path) -> None:
    """Read from what is stored, it is what the entries make."""
    assert _standing(book) == _standing(book, "--as-of", str(FOUNDED + 3))


def test_in_words(book: Path) -> None:
    """Every account and charge in a line of a table."""
    reported = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["standing", str(book)]).stdout
    for words in (PARTITION, "everyone", "posted", "pending", "one", "two", BANK_A):
        assert words in reported


def test_organisations_of_a_book_are_named(book: Path) -> None:
    """With the DID where each is first mentioned; programs read DIDs."""
    for command in ("log", "standing"):
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, str(book)]).stdout
        assert shown.count(f"({BANK_A})") == shown.count(BANK_A) == 1, shown
    assert f'"actor":"{BANK_A}"' in _run("log", book, "--json").stdout
    assert "over the root" not in _run("verify", book, "--log", book.with_name("log.vkey")).stdout


def test_the_first_entries_of_a_log(book: Path) -> None:
    """As many as are asked for, and no more."""
    lines = _run("log", book, "--json", "--as-of", str(FOUNDED + 1)).stdout.splitlines()
    assert (len(lines), json.loads(lines[-1])["id"]) == (FOUNDED + 1, "one")
    assert _run("log", book, "--json", "--as-of", "0").stdout == ""


@pytest.mark.parametrize("command", ["standing", "log"])
def test_a_log_that_has_not_grown_so_far(book: Path, command: str) -> None:
    """Exit 4, and how far it has."""
    reported = _run(command, book, "--as-of", str(FOUNDED + 4))
    assert (reported.exit_code, reported.stderr) == (4, "the log has 13 entries, fewer than 14\n")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET data = CAST('{}' AS BLOB) WHERE position = 11",
        "UPDATE charge SET partitions = '{'",
        "DELETE FROM entry WHERE position = 3",
    ],
)
def test_a_damaged_book(book: Path, tmp_path: Path, statement: str) -> None:
    """One sentence, exit 7, and who names the place."""
    damaged = tampered(book, tmp_path / "b", statement)
    reported = _run("standing", damaged, *([] if "charge" in statement else ["--as-of", "13"]))
    assert (reported.exit_code, reported.stderr.count("\n")) == (7, 1), reported.output
    assert "run 'epsilon verify' to find the error" in reported.stderr
