"""Commands are declared: what a signed command sends, or what a reading command asks; the rest is the same for all.

A declared function takes its command's own arguments. The decorator adds PROFILE and --json, to a signed command --id
and --dry-run as well, opens the profile's service, reports errors and prints the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import typer

from client.cli.arguments import AsJson, CommandId, DryRun, ProfilePath, fresh_id
from client.cli.error_report import errors_reported
from client.cli.output import print_fields, print_json, print_outcome

if TYPE_CHECKING:
    from client.service.service import Answer
    from ledger.wire.canonical_json import Object

Function = Callable[..., Any]
_PROFILE: Final = Parameter("profile", Parameter.POSITIONAL_OR_KEYWORD, annotation=ProfilePath)
_JSON: Final = Parameter("as_json", Parameter.KEYWORD_ONLY, annotation=AsJson, default=False)
_SIGNED: Final = (
    Parameter("id", Parameter.KEYWORD_ONLY, annotation=CommandId, default=""),
    Parameter("dry_run", Parameter.KEYWORD_ONLY, annotation=DryRun, default=False),
)


@dataclass(frozen=True, slots=True)
class SignedDocument:
    """A document that a command enters, with the files of other parties' detached signatures over it."""

    path: Path
    signatures: Sequence[Path] = ()


def examples(*lines: str, note: str = "") -> str:
    """The end of a command's help: lines to type, each after ``epsilon``, and a note."""
    return "\n\n".join(("\nExamples:", *(f"  epsilon {line}" for line in lines), *([note] if note else []))) + "\n"


def signed_command(app: typer.Typer, kind: str, *lines: str, note: str = "") -> Callable[[Function], Function]:
    """Declare a command that signs one command of ``kind`` and sends it.

    Args:
        app: the group that it belongs to.
        kind: one of :data:`client.http.endpoints.PATHS`.
        lines: its examples, each after ``epsilon``.
        note: a paragraph after the examples.

    The declared function returns the command's body, or a :class:`SignedDocument` that is stored first.
    """

    def declare(function: Function) -> Function:
        def run(*, profile: Path, id: str, dry_run: bool, as_json: bool, **own: Any) -> None:  # noqa: A002, ANN401 - the wire's name; arguments of any type
            name = fresh_id(kind, id)
            with errors_reported(as_json=as_json, id=name):
                answer, what = _send(profile, kind, function(**own), name, dry_run=dry_run)
            print_outcome(answer, what, as_json=as_json)

        app.command(epilog=examples(*lines, note=note))(_as_command(function, run, _SIGNED))
        return function

    return declare


def read_command(
    app: typer.Typer, *lines: str, table: Callable[[Any], None] = print_fields, note: str = ""
) -> Callable[[Function], Function]:
    """Declare a command that reads from the service and records nothing.

    The declared function gets the :class:`~client.service.service.Service` first and returns what is shown: as JSON,
    or by ``table``.
    """

    def declare(function: Function) -> Function:
        def run(*, profile: Path, as_json: bool, **own: Any) -> None:  # noqa: ANN401 - arguments of any type
            from client.profile.profile import Profile

            with errors_reported(as_json=as_json), Profile.load(profile).open() as service:
                value = function(service, **own)
            (print_json if as_json else table)(value)

        app.command(epilog=examples(*lines, note=note))(_as_command(function, run, (), skip=1))
        return function

    return declare


def _as_command(function: Function, run: Function, added: Sequence[Parameter], skip: int = 0) -> Function:
    """``run`` with the name, help and own parameters of ``function``, which typer reads from the signature."""
    own = [*inspect.signature(function).parameters.values()][skip:]
    # Names that only type checkers import stand in the annotations of the result and of what is skipped.
    named = {one.name: one.annotation for one in own}
    holder = type("Own", (), {"__annotations__": named, "__module__": function.__module__})
    hints: Mapping[str, Any] = get_type_hints(holder, include_extras=True)
    parameters = [_PROFILE, *(one.replace(annotation=hints[one.name]) for one in own), *added, _JSON]
    positional = [one for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    options = [one for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature([*positional, *options])  # type: ignore[attr-defined] # as inspect reads it
    return run


def _send(path: Path, kind: str, sent: Object | SignedDocument, name: str, *, dry_run: bool) -> tuple[Answer, str]:
    """Sign and send; the answer, and what it is about. Raises: Malformed, Refused, Unreachable, OSError."""
    from client.profile.profile import Profile
    from client.service.detached_signatures import read_document, read_signatures

    profile = Profile.load(path)
    if not isinstance(sent, SignedDocument):
        with profile.open() as service:
            return service.submit(profile.signer(), profile.actor, kind, sent, name, dry_run=dry_run), ""
    data, given = read_document(sent.path), read_signatures(sent.signatures)
    signer = profile.signer()
    with profile.open() as service:
        # A dry run stores them too: the decision is about documents that the service holds, and storing binds no one.
        stored = service.put_document(signer, data)
        others = [
            service.put_document(signer, signature.encode("ascii")).document
            for key_id, signature in given.items()
            if key_id != signer.key_id
        ]
        body: Object = {"document": stored.document, "signatures": [stored.signature, *others]}
        answer = service.submit(signer, profile.actor, kind, body, name, replaces=stored.replaces, dry_run=dry_run)
    return answer, f"{kind} {stored.document}"
