"""What a file or a book of others holds is shown, and moves no cursor, clears no line and turns no text around."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Final

import pytest
import typer

import ledger
from ledger.cli.command_errors import errors_reported
from ledger.cli.terminal_output import print_tables
from ledger.command_line.printable_text import json_text, printable_json
from ledger.wire.malformed import Malformed

HOME: Final = Path(ledger.__file__).parents[1]
PACKAGES: Final = ("ledger", "policy", "migrations", "api")
OWN_WAYS: Final = {
    "api/cli/init.py": "prints its own words, and what its operator typed",
    "ledger/cli/main.py": "prints entries as the log holds them, to programs",
    "ledger/cli/terminal_output.py": "prints the colours of tables",
}
EVIL: Final = "Bank\x1b[2K\x1b[1A\x9b2J\r\u202eB\x7f"
SHOWN: Final = "Bank?[2K?[1A?2J??B?"


def test_json_keeps_its_value() -> None:
    """Escaped is what is not printed; letters of every script stay, and the ends of lines between members."""
    value = {"ε": [EVIL, "東京", "\ud800", "\U000e0041", "a\nb"]}
    text = json_text(value, ensure_ascii=False, indent=1)
    assert json.loads(text) == value
    assert {one for one in text if not one.isprintable()} == {"\n"}
    assert "東京" in text
    assert printable_json('{"a": 1}') == '{"a": 1}'


def test_errors_and_tables_are_held_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    """An error is one line, whatever it quotes."""
    print_tables((["who"], [(EVIL,)]))
    with pytest.raises(typer.Exit), errors_reported():
        raise Malformed(EVIL, f"quotes\nholds: {EVIL}")
    found = capsys.readouterr()
    assert SHOWN in found.out
    assert found.err == f"{SHOWN}: quotes?holds: {SHOWN}\n"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_command_prints_beside_it(package: str) -> None:
    """Every call of the library's own printing is in the one place, but for those with a reason."""
    found = set()
    for path in sorted((HOME / package / "cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"typer.echo", "print", "typer.secho"}:
                found.add(path.relative_to(HOME).as_posix())
    assert found <= set(OWN_WAYS)
