"""What others registered is shown, and moves no cursor, clears no line and turns no text around."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import typer

from client.cli.error_report import errors_reported
from client.cli.output import cell, print_outcome, print_rows
from client.http.problems import Refused
from client.service.answers import Answer
from ledger.command_line.printable_text import printable, printable_lines, say
from ledger.wire.canonical_json import Object

CLI = Path(__file__).parents[4] / "client" / "cli"
EVIL = "Bank\x1b[2K\x1b[1A\x1b]0;owned\x07\r\u202eB"
SHOWN = "Bank?[2K?[1A?]0;owned???B"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ε ≤ 1, Zürich – 東京 🏦", "ε ≤ 1, Zürich – 東京 🏦"),
        ("1\u00a0000\u2009km", "1\u00a0000\u2009km"),
        (EVIL, SHOWN),
        ("\x00\x7f\x80\x9b2J\u2028\u2066\ufeff\ud800", "???" + "?2J" + "????"),
        ("", ""),
    ],
)
def test_only_what_is_printed_stays(text: str, shown: str) -> None:
    """Letters, signs and spaces of any script; nothing that acts on a terminal."""
    assert printable(text) == printable_lines(text) == shown


def test_a_line_s_end_stays_between_lines_alone() -> None:
    """A name of two lines would look like two of the program's own."""
    assert printable_lines("one\ntwo\r\n") == "one\ntwo?\n"
    assert printable("one\ntwo") == cell("one\ntwo") == "one?two"


def test_every_way_to_print_is_held_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A table, a sentence, a warning, and the error of a service with its reasons."""
    print_rows(("who", "how"), [(EVIL, EVIL)])
    say(EVIL)
    answer = Answer("run-1", "pending", 3, {}, "", repeated=False, warnings=(EVIL,))
    print_outcome(answer, EVIL, as_json=False)
    problem: Object = {"code": "policy_denied", "detail": EVIL, "reasons": [{"code": "one", "detail": EVIL[1:]}]}
    with pytest.raises(typer.Exit), errors_reported():
        raise Refused(403, problem)
    found = capsys.readouterr()
    assert found.out.count(SHOWN) >= 3
    assert (found.err.count(SHOWN), found.err.count(SHOWN[1:])) == (2, 3)
    assert {one for one in found.out + found.err if not one.isprintable()} == {"\n"}


def test_no_command_prints_beside_it() -> None:
    """Every call of the library's own printing is in the one place, or prints JSON, which escapes."""
    found = set()
    for path in sorted(CLI.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"typer.echo", "print", "typer.secho"}:
                found.add(path.relative_to(CLI).as_posix())
    assert found <= {"key.py"}
