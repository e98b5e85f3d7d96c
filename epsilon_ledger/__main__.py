"""Assemble `epsilon`: one root command, to which each room adds its own through an entry point.

A room's `cli` module is imported for every command, `--help` included, so it keeps heavy imports inside its
functions. This module imports no room.
"""

import os
import re
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.models import CommandInfo, TyperInfo

from epsilon_ledger import __version__

GROUP: Final = "epsilon.commands"
PIPED_COLUMNS: Final = "160"
"""A pipe or a file has no edge to wrap at: names in a table are kept whole there. COLUMNS, where set, comes first."""
EXIT_CODES: Final = """
Exit codes: 0 done · 1 a fault of ours or of the service · 2 what was typed or read is malformed · 3 refused: budget,
policy or rule · 4 not found · 5 in conflict with what stands · 6 not authorised · 7 verification failed · 75 try again

Examples:

  epsilon demo

  epsilon account demo/profile.toml --json
"""
"""What :mod:`ledger.outcomes` and the rooms' commands end with."""
ROOMS: Final = ("ledger", "policy", "api", "client", "migrations", "trainer_adapter")


def main() -> None:
    """Run the command line."""
    complaint = complaint_about_rooms()
    if complaint is not None:
        typer.echo(complaint, err=True)
        sys.exit(2)
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", PIPED_COLUMNS)
    assemble()()


def complaint_about_rooms() -> str | None:
    """Say which room is missing or comes from elsewhere, if one does: others use names like `api` too."""
    home = Path(__file__).resolve().parent.parent
    for room in ROOMS:
        found = _folder_of(room)
        if found is None:
            return f"epsilon: the module '{room}' is missing from {home}; install epsilon-ledger again."
        if found != home / room:
            return (
                f"epsilon: the module '{room}' comes from {found}, which hides the one of epsilon-ledger in"
                f" {home}; take that place off PYTHONPATH or uninstall what put it there, then try again."
            )
    return None


def assemble() -> typer.Typer:
    """Build the root command from what the installed rooms bring."""
    root = typer.Typer(
        name="epsilon",
        help="A ledger for differential privacy: budgets charged, refused, refunded and proven.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_show_locals=False,
    )
    root.callback()(_root)
    groups: list[TyperInfo] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        room = entry.load()
        root.registered_commands.extend(room.registered_commands)
        groups.extend(room.registered_groups)
    for name in dict.fromkeys(str(group.name) for group in groups):
        root.add_typer(_merged([group for group in groups if group.name == name]), name=name)
    return root


def _merged(groups: list[TyperInfo]) -> typer.Typer:
    """One group of what several rooms bring under one name; the first that has a help text gives it."""
    apps = [group.typer_instance for group in groups if group.typer_instance is not None]
    helps = (app.info.help for app in apps if isinstance(app.info.help, str))
    whole = typer.Typer(help=next(helps, None), no_args_is_help=True, pretty_exceptions_show_locals=False)
    for app in apps:
        whole.registered_commands.extend(app.registered_commands)
        whole.registered_groups.extend(app.registered_groups)
    # The callback also keeps a group of one command a group.
    whole.callback(epilog=_two_examples(whole.registered_commands))(_group)
    return whole


def _two_examples(commands: list[CommandInfo]) -> str:
    """A group's own examples: the first ones of its commands, which show them all in their own help."""
    told = [re.findall(r"^  (\S.*)$", command.epilog or "", re.MULTILINE) for command in commands]
    chosen = [line for place in range(2) for lines in told for line in lines[place : place + 1]]
    return "\n\n".join(("Examples:", *(f"  {line}" for line in chosen[:2])))


def _group() -> None:
    """Hold commands."""


def _folder_of(room: str) -> Path | None:
    """Where Python finds a room: its folder, or the file of a module that is no package."""
    spec = find_spec(room)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin or room).resolve()


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        typer.echo(f"epsilon-ledger {__version__}")
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that stand before any command."""
    del version


if __name__ == "__main__":
    main()
