"""The `epsilon` command: assembled whole, and light."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest
import typer.main

from epsilon_ledger.__main__ import GROUP, assemble
from tests.epsilon_ledger.commands import leaves, walk

HEAVY = ("alembic", "dp_accounting", "fastapi", "numpy", "scipy", "sklearn", "sqlalchemy", "torch", "uvicorn")
LOADED = """
import json, sys
from epsilon_ledger.__main__ import main
sys.argv = ["epsilon", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_is_light(argument: str) -> None:
    """Neither help nor version loads a library that takes long to import."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, argument],
        capture_output=True,
        text=True,
        check=True,
        env=_environment(),
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "epsilon_ledger" in loaded
    assert "trainer_adapter" in loaded or argument == "--version"
    assert [name for name in HEAVY if name in loaded] == []


def test_version_is_the_distribution_s() -> None:
    """The version comes from the installed metadata."""
    done = subprocess.run(
        [sys.executable, "-m", "epsilon_ledger", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"epsilon-ledger {version('epsilon-ledger')}\n"


def test_no_room_hides_another_s_command() -> None:
    """What the installed rooms bring is all there, groups of one name as one; what two bring takes both's words."""
    brought: set[tuple[str, ...]] = set()
    commands: list[tuple[str, ...]] = []
    for entry in entry_points(group=GROUP):
        found = [names for names, _ in walk(typer.main.get_group(entry.load())) if names]
        groups = {names[:-1] for names in found}
        brought |= set(found)
        commands += [names for names in found if names not in groups]
    assert {names for names, _ in walk() if names} == brought
    assert {names for names, _ in leaves()} == set(commands)
    # Asked of a service or of a book: the first parameter of these alone is either.
    extended = {names for names in commands if commands.count(names) > 1}
    assert extended == {names for names, one in leaves() if one.params and one.params[0].metavar == "PROFILE|BOOK"}


def test_what_is_built_alone_is_what_is_built_with_all() -> None:
    """A command takes the same words whether the others are built or not, and the others are still named."""
    whole = dict(walk())
    for first in whole[()].commands:
        alone = dict(walk(typer.main.get_command(assemble(first))))
        for names, command in whole.items():
            if names[:1] == (first,):
                assert [one.opts for one in alone[names].params] == [one.opts for one in command.params], names
                assert alone[names].epilog == command.epilog
        reported = [(name, one.get_short_help_str(500)) for name, one in alone[()].commands.items()]
        assert reported == [(name, one.get_short_help_str(500)) for name, one in whole[()].commands.items()]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
