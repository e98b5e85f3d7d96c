"""An operator's command killed at any moment: the source is as it was, and the target is whole or not there."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.factories.loaded_process import WARM, LoadedProcess, loaded_process
from tests.migrations.places import ENGINES, Kept, Spot, db, spot
from tests.migrations.schema.schema_dump import schema_of

DICE: Final = random.Random(20_261_121)  # noqa: S311 - snapshots to die at
DEATHS: Final = 3


class Operators:
    """The process that forks operators."""

    def __init__(self, process: LoadedProcess) -> None:
        self._process = process

    def warm(self, *arguments: object) -> None:
        """Run a command there, for what it loads."""
        ended = self._process.run({"arguments": [str(one) for one in arguments], WARM: True})
        assert [one[:3] for one in ended.reports] == [["did", 0, 0]], ended

    def run(self, *arguments: object, die: int | str = -1) -> int:
        """One command; how many things it did, or 0 if it was killed."""
        ended = self._process.run({"arguments": [str(one) for one in arguments], "die": die})
        assert os.WTERMSIG(ended.status) == (0 if ended.reports else signal.SIGKILL), ended
        if not ended.reports:
            return 0
        ((_, did, code, output),) = ended.reports
        assert (code, did > 0) == (0, True), output
        return int(did)


@pytest.fixture(scope="module")
def operators(grown: Kept, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """One for all kills, since it loads for seconds."""
    with loaded_process("tests.migrations.cli.operator_process") as process:
        operators = Operators(process)
        with spot("sqlite", tmp_path_factory.mktemp("warm")) as place:
            operators.warm("check", grown.put(place).book, *place.log)
        yield operators


def _moments(things: int, *last: int) -> list[int]:
    """When to die: some of the last things that a command does, and some before."""
    return sorted({things - one for one in last} | {DICE.randrange(1, things) for _ in range(DEATHS)})


def test_a_killed_upgrade_is_undone(operators: Operators, book: Spot, grown: Kept) -> None:
    """The schema is the one before or the newest, never between; the next upgrade ends it."""
    newest = schema_of(book)
    assert db("downgrade", book.book, "0001").code == 0
    before = schema_of(book)
    things = operators.run("upgrade", book.book)
    for die in _moments(things, 0, 1, 2):
        assert db("downgrade", book.book, "0001").code == 0
        assert operators.run("upgrade", book.book, die=die) == 0
        assert schema_of(book) in (before, newest)
    assert db("upgrade", book.book).code == 0
    assert (schema_of(book), book.rows()) == (newest, grown.rows)


def test_a_killed_backup_is_not_there(operators: Operators, book: Spot, grown: Kept, tmp_path: Path) -> None:
    """Or it is whole; the book is as it was."""
    things = operators.run("backup", book.book, tmp_path / "whole.zip")
    for die in _moments(things, 3, 4, 5, 6):
        file = tmp_path / f"{die}.zip"
        assert operators.run("backup", book.book, file, die=die) == 0
        assert not file.exists() or file.read_bytes() == (tmp_path / "whole.zip").read_bytes()
        assert operators.run("backup", book.book, tmp_path / f"{die}-again.zip") > 0
    assert book.rows() == grown.rows


def test_a_killed_restore_leaves_no_book(operators: Operators, engine: str, grown: Kept, tmp_path: Path) -> None:
    """Or a whole one; if none, the same command makes it."""
    things = 0
    for turn in range(DEATHS):
        with spot(engine, tmp_path / f"{turn}") as place:
            more = (grown.backup, place.book, "--kept", grown.checkpoint, *place.log)
            things = things or operators.run("restore", *more)
        with spot(engine, tmp_path / f"{turn}-killed") as place:
            more = (grown.backup, place.book, "--kept", grown.checkpoint, *place.log)
            assert operators.run("restore", *more, die=DICE.randrange(things // 2, things + 1)) == 0
            if db("status", place.book).code == 4:
                assert operators.run("restore", *more) > 0
            assert place.rows() == grown.rows


def _both_names(path: Path) -> list[Path]:
    """The part that a killed command left beside a file, which is the same file."""
    assert path.stat().st_nlink == 2
    return [part for part in path.parent.glob(".*.part") if part.samefile(path)]


def test_a_restore_killed_between_two_names_leaves_a_book_that_opens(
    operators: Operators, grown: Kept, tmp_path: Path
) -> None:
    """The book has its name and that of the part: whoever opens it next removes the part, and loses nothing."""
    for turn, then in enumerate(("open", "upgrade")):
        with spot("sqlite", tmp_path / f"{turn}") as place:
            more = (grown.backup, place.book, "--kept", grown.checkpoint, *place.log)
            assert operators.run("restore", *more, die="named") == 0
            (part,) = _both_names(place.path)
            if then == "open":
                place.open().close()
            else:
                assert db("upgrade", place.book).code == 0
            assert (place.path.stat().st_nlink, part.exists()) == (1, False)
            assert place.rows() == grown.rows


def test_a_move_killed_between_two_names_is_done_by_the_same_move(
    operators: Operators, book: Spot, grown: Kept, tmp_path: Path
) -> None:
    """It is said to be done of a book that opens; while a foreign name keeps that book shut, that name is told."""
    with spot("sqlite", tmp_path / "to") as target:
        arguments = ("move", book.book, target.book, *book.log)
        assert operators.run(*arguments, die="named") == 0
        (part,) = _both_names(target.path)
        foreign = target.path.with_name("foreign.sqlite")
        foreign.hardlink_to(target.path)
        done = db(*arguments)
        assert (done.code, "has 2 hard links" in done.out, "foreign.sqlite" in done.out) == (5, True, True), done.out
        foreign.unlink()
        part.hardlink_to(target.path)
        assert db(*arguments, "--json").json["repeated"] is True
        assert (target.path.stat().st_nlink, part.exists()) == (1, False)
        served = target.open()
        try:
            assert db(*arguments, "--json").json["repeated"] is True, "a service that has it open is no hindrance"
        finally:
            served.close()
        assert target.rows() == grown.rows


def _move_killed(operators: Operators, engine: str, grown: Kept, folder: Path, die: int) -> tuple[bool, bool]:
    """Whether the target was there and the source sealed after a killed move; the same move again ended it."""
    to = next(one for one in ENGINES if one != engine)
    with spot(engine, folder / f"{die}") as book, spot(to, folder / f"{die}-to") as target:
        grown.put(book)
        assert operators.run("move", book.book, target.book, *book.log, die=die) == 0
        there, sealed = db("status", target.book).code == 0, book.rows()["seal"] != []
        assert operators.run("move", book.book, target.book, *book.log) > 0
        assert target.rows() == grown.rows
        assert {**book.rows(), "seal": []} == grown.rows
    return there, sealed


def _things(operators: Operators, engine: str, grown: Kept, folder: Path) -> int:
    """How many things a move does."""
    to = next(one for one in ENGINES if one != engine)
    with spot(engine, folder / "count") as book, spot(to, folder / "count-to") as target:
        return operators.run("move", grown.put(book).book, target.book, *book.log)


def test_a_killed_move_leaves_one_book(operators: Operators, engine: str, grown: Kept, tmp_path: Path) -> None:
    """At no moment do both take entries; the same move again ends it, wherever it was cut."""
    things = _things(operators, engine, grown, tmp_path)
    # The last things are the target's: its commit in PostgreSQL; in SQLite its name, what goes before that, and that it
    # is opened by it.
    last = (1, 2) if engine == "sqlite" else (14, 18, 22)
    dice = DICE.randrange(1, things)
    found = {_move_killed(operators, engine, grown, tmp_path, die) for die in {dice, *(things - one for one in last)}}
    assert (True, False) not in found
    assert (False, True) in found, "no moment between the two commits was tried"


@pytest.mark.soak
def test_a_move_is_killed_at_every_moment(operators: Operators, engine: str, grown: Kept, tmp_path: Path) -> None:
    """One after another, from the first thing it does to the last."""
    things = _things(operators, engine, grown, tmp_path)
    found = [_move_killed(operators, engine, grown, tmp_path, die) for die in range(1, things + 1)]
    assert set(found) <= {(False, False), (False, True), (True, True)}
    assert found == sorted(found), "what was done is never undone"
