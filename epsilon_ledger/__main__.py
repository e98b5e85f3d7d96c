"""Assemble `epsilon`: one root command, to which each package adds its own through an entry point.

A package's `cli` modules are imported for every command, `--help` included, so they import heavy libraries inside their
functions. This module imports none of the packages.
"""

import errno
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from importlib.metadata import distribution
from importlib.util import find_spec
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command
from typer.models import CommandInfo, TyperInfo

DISTRIBUTION: Final = "epsilon-ledger"
GROUP: Final = "epsilon.commands"
HELP_COLUMNS: Final = 80
EXAMPLE_COLUMNS: Final = 74
SENTENCE_MAX: Final = 500
PIPED_COLUMNS: Final = "160"
"""The width of tables in a pipe or a file, so that names there are not folded. COLUMNS, where set, takes precedence."""
EXIT_CODES: Final = """
Exit codes: 0 done · 1 internal or server error · 2 invalid input · 3 refused: budget, policy or rule · 4 not found ·
5 conflicts with current state · 6 not authorised · 7 verification failed · 75 temporary failure, retry · 141 broken
pipe

Alone, without a service, in Python: from epsilon_ledger.local import attach

Examples:

  epsilon demo

  epsilon account demo/profile.toml --json
"""
"""The exit codes of :mod:`ledger.domain.outcomes` and of the packages' commands."""
BROKEN_PIPE: Final = 141
"""128 and the number of SIGPIPE."""
UNWRITTEN: Final = 75
INTERRUPTED: Final = 130
"""128 and the number of SIGINT: how a shell, and Typer, end an interrupted command."""
PACKAGES: Final = ("ledger", "policy", "api", "client", "migrations", "trainer_adapter")


class Group(TyperGroup):
    """A group whose help gives the whole sentence of each command, on as many lines as it takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own copies of click's classes
        """Write the list of commands."""
        shown = [(name, self.commands[name]) for name in self.list_commands(ctx) if not self.commands[name].hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(SENTENCE_MAX)) for name, command in shown])


def main() -> None:
    """Run the command line."""
    _written(_run)


def _written(run: Callable[[], None]) -> None:
    """Run what prints; where its output cannot be written, say so and end with its exit code, whatever printed it."""
    try:
        try:
            run()
        finally:
            # What is buffered is written here, and not when the interpreter ends and can only complain.
            sys.stdout.flush()
    except (OSError, SystemExit) as ended:
        # Click ends a command with 1 on a broken pipe, without a word.
        error = ended if isinstance(ended, OSError) else ended.__context__
        if not isinstance(error, OSError) or error.filename is not None or error.errno not in _UNWRITTEN:
            raise
        if isinstance(ended, SystemExit) and (error.errno != errno.EPIPE or ended.code != 1):
            raise
        # What is still buffered goes nowhere, and raises nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno == errno.EPIPE:
            sys.exit(BROKEN_PIPE)
        with suppress(OSError):
            typer.echo(f"What was printed could not be written: {error.strerror}", err=True)
        sys.exit(UNWRITTEN)


_UNWRITTEN: Final = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def _run() -> None:
    try:
        problem = installation_problem()
        if problem is not None:
            typer.echo(problem, err=True)
            sys.exit(2)
        if not sys.stdout.isatty():
            os.environ.setdefault("COLUMNS", PIPED_COLUMNS)
        completing = any(name.endswith("_COMPLETE") for name in os.environ)
        words = [word for word in sys.argv[1:] if not word.startswith("-")]
        root = assemble(None if completing else "".join(words[:1]))
        helped = not completing and _print_help(root, sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if not helped:
        root()


def _print_help(root: typer.Typer, words: list[str]) -> bool:
    """Print the help if `--help` comes last, and return whether it did; parsing the rest first would load more."""
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


def installation_problem() -> str | None:
    """Name the package that is missing or shadowed, if one is: other projects have packages called `api` too."""
    home = Path(__file__).resolve().parent.parent
    for package in PACKAGES:
        folder = _folder_of(package)
        if folder is None:
            return f"epsilon: the package '{package}' is missing from {home}; reinstall epsilon-ledger."
        if folder != home / package:
            return (
                f"epsilon: the package '{package}' comes from {folder}, which hides the one of epsilon-ledger in"
                f" {home}; remove that place from PYTHONPATH or uninstall what put it there, then retry."
            )
    return None


def assemble(only: str | None = None) -> typer.Typer:
    """Build the root command from the entry points of the installed packages.

    Args:
        only: the word after `epsilon`. Other commands are listed but not built, because building all of them takes most
            of the time of a help. None builds all.
    """
    root = typer.Typer(
        name="epsilon",
        cls=Group,
        help="A ledger for differential privacy: budgets are charged, refused, refunded and proven.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        add_completion=True,
        # Rich loads too slowly for a help; commands that print tables import it themselves.
        rich_markup_mode=None,
        context_settings={"max_content_width": HELP_COLUMNS},
        pretty_exceptions_show_locals=False,
    )
    root.callback()(_root)
    groups: list[TyperInfo] = []
    for entry in sorted(distribution(DISTRIBUTION).entry_points.select(group=GROUP), key=lambda entry: entry.name):
        package = entry.load()
        root.registered_commands.extend(
            command if only in {None, _name(command)} else _name_and_help(command)
            for command in package.registered_commands
        )
        groups.extend(package.registered_groups)
    for name in dict.fromkeys(str(group.name) for group in groups):
        whole = _merged([group for group in groups if group.name == name])
        if only not in {None, name}:
            whole.registered_commands, whole.registered_groups = [], []
        root.add_typer(whole, name=name)
        whole.registered_commands = [_with_broken_examples(command) for command in whole.registered_commands]
    root.registered_commands = [_with_broken_examples(command) for command in root.registered_commands]
    return root


def _with_broken_examples(command: CommandInfo) -> CommandInfo:
    shown = copy(command)
    shown.epilog = _break_examples(command.epilog or "")
    return shown


def _break_examples(epilog: str) -> str:
    """Break long examples as a shell reads them on, so that they can be pasted from a terminal of 80 columns."""
    return re.sub(r"^  (\S.{73,}[^\\\n])$", _broken_example, epilog, flags=re.MULTILINE)


def _broken_example(example: re.Match[str]) -> str:
    lines = [""]
    # Blanks inside quotes separate no words.
    for word in re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", example[1]):
        if len(lines[-1]) + len(word) + 1 > EXAMPLE_COLUMNS:
            lines.append("     ")
        lines[-1] = f"{lines[-1]} {word}"
    # Click keeps the lines of a paragraph that begins so as they are.
    return "\b\n " + " \\\n".join(lines)


def _name(command: CommandInfo) -> str:
    return command.name or getattr(command.callback, "__name__", "").replace("_", "-")


def _name_and_help(command: CommandInfo) -> CommandInfo:
    """A command with its name and help only."""
    return CommandInfo(name=_name(command), callback=_group, help=command.help or getdoc(command.callback))


def _merged(groups: list[TyperInfo]) -> typer.Typer:
    """One group of the commands that several packages add under one name; the first help text is the group's.

    A package of a higher layer may extend a command of a lower one: of the same name, the first is taken.
    """
    apps = [group.typer_instance for group in groups if group.typer_instance is not None]
    helps = (app.info.help for app in apps if isinstance(app.info.help, str))
    whole = typer.Typer(cls=Group, help=next(helps, None), no_args_is_help=True, pretty_exceptions_show_locals=False)
    for app in apps:
        taken = {_name(command) for command in whole.registered_commands}
        whole.registered_commands.extend(command for command in app.registered_commands if _name(command) not in taken)
        whole.registered_groups.extend(app.registered_groups)
    # The callback also keeps a group of one command a group.
    whole.callback(epilog=_break_examples(_two_examples(whole.registered_commands)))(_group)
    return whole


def _two_examples(commands: list[CommandInfo]) -> str:
    """A group's examples: the first ones of its commands."""
    examples = [re.findall(r"^  (\S.*)$", command.epilog or "", re.MULTILINE) for command in commands]
    chosen = [line for place in range(2) for lines in examples for line in lines[place : place + 1]]
    return "\n" + "\n\n".join(("Examples:", *(f"  {line}" for line in chosen[:2])))


def _group() -> None:
    """Hold commands."""


def _folder_of(package: str) -> Path | None:
    """Where Python finds a package: its folder, or the file of a module that is no package."""
    spec = find_spec(package)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin or package).resolve()


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
    """Take the options before any command."""
    del version


if __name__ == "__main__":
    main()
