"""Assemble `epsilon`: one root command, to which each room adds its own through an entry point.

A room's `cli` module is imported for every command, `--help` included, so it keeps heavy imports inside its
functions. This module imports no room.
"""

import os
import re
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.main import get_command
from typer.models import CommandInfo, TyperInfo

DISTRIBUTION: Final = "epsilon-ledger"
GROUP: Final = "epsilon.commands"
COLUMNS_MAX: Final = 160
PIPED_COLUMNS: Final = str(COLUMNS_MAX)
"""A pipe or a file has no edge to wrap at: names in a table are kept whole there. COLUMNS, where set, comes first."""
EXIT_CODES: Final = """
Exit codes: 0 done · 1 a fault of ours or of the service · 2 what was typed or read is malformed · 3 refused: budget,
policy or rule · 4 not found · 5 in conflict with what stands · 6 not authorised · 7 verification failed · 75 try
again · 141 whoever read the output left

Examples:

  epsilon demo

  epsilon account demo/profile.toml --json
"""
"""What :mod:`ledger.domain.outcomes` and the rooms' commands end with."""
ROOMS: Final = ("ledger", "policy", "api", "client", "migrations", "trainer_adapter")


def main() -> None:
    """Run the command line."""
    complaint = complaint_about_rooms()
    if complaint is not None:
        typer.echo(complaint, err=True)
        sys.exit(2)
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", PIPED_COLUMNS)
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    root = assemble(None if completing else "".join(words[:1]))
    if completing or not _told(root, sys.argv[1:]):
        root()


def _told(root: typer.Typer, words: list[str]) -> bool:
    """Tell the help that is asked for, and whether any was: parsing first would load what reads values."""
    if not words or words.pop() != "--help":
        return False
    command: Any = get_command(root)
    context = command.context_class(command, info_name="epsilon", **command.context_settings)
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            return False
        context = command.context_class(command, info_name=word, parent=context)
    typer.echo(command.get_help(context))
    return True


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


def assemble(only: str | None = None) -> typer.Typer:
    """Build the root command from what the installed rooms bring.

    Args:
        only: the word that stands after `epsilon`. What stands under other words is then named and explained, but not
            built: building all takes longer than all else that a help does. None builds all.
    """
    root = typer.Typer(
        name="epsilon",
        help="A ledger for differential privacy: budgets charged, refused, refunded and proven.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        add_completion=True,
        # Rich takes longer to load than a help may take; tables, where commands print them, are Rich's.
        rich_markup_mode=None,
        context_settings={"max_content_width": COLUMNS_MAX},
        pretty_exceptions_show_locals=False,
    )
    root.callback()(_root)
    groups: list[TyperInfo] = []
    for entry in sorted(distribution(DISTRIBUTION).entry_points.select(group=GROUP), key=lambda entry: entry.name):
        room = entry.load()
        root.registered_commands.extend(
            one if only in {None, _name(one)} else _named(one) for one in room.registered_commands
        )
        groups.extend(room.registered_groups)
    for name in dict.fromkeys(str(group.name) for group in groups):
        whole = _merged([group for group in groups if group.name == name])
        if only not in {None, name}:
            whole.registered_commands, whole.registered_groups = [], []
        root.add_typer(whole, name=name)
    return root


def _name(command: CommandInfo) -> str:
    return command.name or getattr(command.callback, "__name__", "").replace("_", "-")


def _named(command: CommandInfo) -> CommandInfo:
    """A command's name and what it does, without how it is called."""
    return CommandInfo(name=_name(command), callback=_group, help=command.help or getdoc(command.callback))


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
    return "\n" + "\n\n".join(("Examples:", *(f"  {line}" for line in chosen[:2])))


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
        typer.echo(f"{DISTRIBUTION} {distribution(DISTRIBUTION).version}")
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
