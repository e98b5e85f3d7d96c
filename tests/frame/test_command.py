"""The `epsilon` command: assembled whole, and light."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest
import typer.core
import typer.main

from epsilon_ledger.__main__ import GROUP, assemble

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
    """Each command that a room brings has a name of its own in the root."""
    root = assemble()
    brought = len(root.registered_commands) + len(root.registered_groups)
    command = typer.main.get_command(root)
    assert {entry.name for entry in entry_points(group=GROUP)} == {
        "api",
        "client",
        "ledger",
        "migrations",
        "policy-depa",
        "policy-planning",
        "trainer",
    }
    assert isinstance(command, typer.core.TyperGroup)
    assert len(command.commands) == brought
    assert brought >= len(entry_points(group=GROUP))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
