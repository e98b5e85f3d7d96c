"""What each command tells of itself is there, is true, and costs nothing to read."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

import pytest

from ledger.domain.outcomes import Code
from tests.epsilon_ledger.commands import leaves, parsed, root, walk
from tests.factories import command_runs
from tests.factories.command_runs import run_command

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "commands.md"
PAGES: Final = [ROOT / "README.md", *sorted(ROOT.glob("[a-z]*/README.md")), *sorted((ROOT / "docs").glob("*.md"))]
HEAVY: Final = (
    "alembic",
    "cryptography",
    "dp_accounting",
    "fastapi",
    "httpx",
    "joserfc",
    "numpy",
    "scipy",
    "sklearn",
    "sqlalchemy",
    "torch",
    "uvicorn",
)
"""Not pydantic, which typer loads itself."""
ALL_HELP: Final = """
import json, sys
import typer.main, typer.testing
from epsilon_ledger.__main__ import assemble
app = assemble()
def walk(command, *names):
    yield names
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, *names, name)
for names in walk(typer.main.get_command(app)):
    done = typer.testing.CliRunner().invoke(app, [*names, "--help"])
    assert done.exit_code == 0, names
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def _examples(epilog: str) -> list[str]:
    return re.findall(r"^  (\S.*)$", re.sub(r" \\\n +", " ", epilog), re.MULTILINE)


def _after_epsilon(line: str) -> list[str]:
    """The words of a line of shell after our command, without where its output goes."""
    words = shlex.split(line, comments=True)
    place = next(at for at, word in enumerate(words) if word.rpartition("/")[2] == "epsilon")
    return list(takewhile(lambda word: word not in {">", "|", "&"}, words[place + 1 :]))


def test_every_help_ends_with_examples_that_parse() -> None:
    """Two or more, each naming this command and taking only options that it has."""
    for names, command in walk():
        found = _examples(command.epilog or "")
        assert len(found) >= 2, names
        for line in found:
            words = _after_epsilon(line)
            assert tuple(words[: len(names)]) == names, line
            assert parsed(words)[: len(names)] == names, line


def test_every_help_fits_80_columns_and_its_examples_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """However wide the terminal is: no line is longer, no sentence is cut, and a line that goes on says so."""
    monkeypatch.setattr(command_runs, "COLUMNS", "200")
    for names, command in walk():
        lines = run_command([*names, "--help"]).out.splitlines()
        assert not [line for line in lines if line.endswith("...") and line.startswith("  ")], names
        # A key or a URL has no place to break.
        assert all(len(line) <= 80 or len(shlex.split(line.rstrip("\\"))) <= 2 for line in lines), names
        shown = " ".join(line.strip() for line in lines).replace(" \\ ", " ")
        for example in _examples(command.epilog or ""):
            assert example in shown, names
            assert any(line.strip() == example or line.endswith("\\") for line in lines), names


def test_every_command_can_be_asked_for_more() -> None:
    """All take --verbose, but one that prints a line."""
    without = {names for names, one in leaves() if not any("--verbose" in each.opts for each in one.params)}
    assert without == {("device",)}


def test_every_help_says_what_it_does() -> None:
    """One sentence in every list of commands, and a help text for every option and argument."""
    for names, command in walk():
        assert names == () or command.get_short_help_str(500).endswith("."), names
        for parameter in command.params:
            assert parameter.help, (names, parameter.name)


def _lines(page: Path) -> Iterator[str]:
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        yield from (line for line in block.splitlines() if re.match(r"\S*\bepsilon ", line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_line_to_type_parses(page: Path) -> None:
    """What stands in a block of shell is a command with options that it has."""
    known = {names for names, _ in walk()}
    for line in _lines(page):
        assert parsed(_after_epsilon(line)) in known, line


def test_the_page_lists_every_command() -> None:
    """docs/commands.md has the program's own commands and sentences, no more and no less."""
    reported = re.findall(r"^\| `epsilon ([a-z -]+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert reported == [(" ".join(names), one.get_short_help_str(500)) for names, one in sorted(leaves())]


def test_exit_codes_are_reported_in_full() -> None:
    """The page and the root's help name the same codes, and each code of an outcome is among them."""
    rows = re.findall(r"^\| ([0-9]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    helped = re.findall(r"(?:: |· )([0-9]+) ", root().epilog.replace("\n", " "))
    assert rows == helped == ["0", "1", "2", "3", "4", "5", "6", "7", "75", "141"]
    assert {str(code.exit_code) for code in Code} <= set(rows)


def test_no_help_loads_what_takes_long() -> None:
    """Nor does the help of all commands, one after the other in one process."""
    done = subprocess.run([sys.executable, "-c", ALL_HELP], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "client" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_the_shell_completes_commands() -> None:
    """As bash asks after the tabulator key."""
    requested = {"COMP_CWORD": "1", "COMP_WORDS": "epsilon con", "_EPSILON_COMPLETE": "complete_bash"}
    script = 'import sys; sys.argv = ["epsilon"]; from epsilon_ledger.__main__ import main; main()'
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **requested},
        cwd=ROOT,
    )
    assert done.stdout.split() == ["contract"]
