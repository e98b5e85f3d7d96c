"""Groups of commands, declared: what a signed command sends, what another one shows; the rest is the same for all.

A declared function takes its command's own arguments. Its decorator adds PROFILE and --json, to a signed command --id
and --dry-run as well, opens the profile's service, reports errors and prints the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

import typer

from client.cli.arguments import AsJson, CommandId, DryRun, ProfilePath, Yes, fresh_id
from client.cli.error_report import errors_reported, typed_names
from client.cli.output import print_exposures, print_fields, print_json, print_outcome
from client.cli.wording.confirmation import confirm
from client.cli.wording.organisation_names import learn_names
from client.cli.wording.outcome_names import named_document, subject_of
from client.service.command_documents import BodyWithDocuments, Sent, SignedDocument
from ledger.command_line.printable_text import say
from ledger.command_line.verbosity import HELP, set_verbose

if TYPE_CHECKING:
    from client.service.answers import Answer
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
_PROFILE: Final = (Parameter("profile", Parameter.POSITIONAL_OR_KEYWORD, annotation=ProfilePath),)
_JSON: Final = (Parameter("as_json", Parameter.KEYWORD_ONLY, annotation=AsJson, default=False),)
_SIGNED: Final = (
    Parameter("id", Parameter.KEYWORD_ONLY, annotation=CommandId, default=""),
    Parameter("dry_run", Parameter.KEYWORD_ONLY, annotation=DryRun, default=False),
    *_JSON,
)
_VERBOSE: Final = (
    Parameter(
        "verbose",
        Parameter.KEYWORD_ONLY,
        annotation=Annotated[bool, typer.Option("--verbose", help=HELP)],
        default=False,
    ),
)
_YES: Final = Parameter("yes", Parameter.KEYWORD_ONLY, annotation=Yes, default=False)
Preview = Callable[["Service", "Object"], "list[Object]"]
"""The accounts that a command's body would change, as the service reports them."""


class Result(NamedTuple):
    """What a command did: a value for programs, and a sentence for people."""

    value: object
    text: str


class CommandGroup:
    """The commands under one word after ``epsilon``, or under none; examples are given as their arguments alone."""

    def __init__(self, name: str = "", purpose: str | None = None) -> None:
        """A group of no commands, with its name and help."""
        self.name = name
        self.app = typer.Typer(no_args_is_help=True, help=purpose, pretty_exceptions_show_locals=False)

    def command(self, *examples: str, note: str = "") -> Decorator:
        """Declare a command that does everything itself; ``note`` is a paragraph after the examples."""

        def declare(function: Function) -> Function:
            self.add(function, function, examples, note)
            return function

        return declare

    def profile_command(self, *examples: str, note: str = "") -> Decorator:
        """Declare a command whose function gets the :class:`~client.profile.profile.Profile`, and returns a Result."""

        def declare(function: Function) -> Function:
            def run(*, profile: Path, as_json: bool, **own: Any) -> None:  # noqa: ANN401 - arguments of any type
                from client.profile.profile import Profile

                with errors_reported(as_json=as_json):
                    result: Result = function(Profile.load(profile), **own)
                if as_json:
                    print_json(result.value)
                else:
                    say(result.text)

            self.add(function, as_command(function, run, before=_PROFILE, after=_JSON, skip=1), examples, note)
            return function

        return declare

    def read_command(self, *examples: str, table: Callable[[Any], None] = print_fields, note: str = "") -> Decorator:
        """Declare a command that reads from the service and records nothing.

        The declared function gets the :class:`~client.service.service.Service` first and returns what is shown: as
        JSON, or by ``table``.
        """

        def declare(function: Function) -> Function:
            def run(*, profile: Path, as_json: bool, **own: Any) -> None:  # noqa: ANN401 - arguments of any type
                from client.profile.profile import Profile

                with errors_reported(as_json=as_json), Profile.load(profile).open() as service:
                    value = function(service, **own)
                    if not as_json:
                        learn_names(service, value)
                (print_json if as_json else table)(value)

            self.add(function, as_command(function, run, before=_PROFILE, after=_JSON, skip=1), examples, note)
            return function

        return declare

    def signed_command(
        self, kind: str, *examples: str, note: str = "", preview: Preview | None = None, question: str = ""
    ) -> Decorator:
        """Declare a command that signs one command of ``kind``, one of :data:`ledger.commands.registry.PATHS`.

        The declared function returns the command's body, or a :class:`SignedDocument` that is stored first.

        Args:
            preview: the accounts that a body would change, which are shown first.
            question: to confirm before it is sent, if any of them would change; such a command takes --yes.
        """
        own_options = (_YES, *_SIGNED) if question else _SIGNED

        def declare(function: Function) -> Function:
            def run(
                *,
                profile: Path,
                id: str,  # noqa: A002 - the wire's name
                dry_run: bool,
                as_json: bool,
                yes: bool = False,
                **own: Any,  # noqa: ANN401 - arguments of any type
            ) -> None:
                name = fresh_id(kind, id)
                fields = typed_names(inspect.signature(run).parameters.values(), own)
                with errors_reported(as_json=as_json, id=name, fields=fields):
                    sent = function(**own)
                    if preview is not None:
                        _show_first(profile, kind, sent, preview, "" if yes or dry_run else question, quiet=as_json)
                    answer, what = _send(profile, kind, sent, name, dry_run=dry_run)
                print_outcome(answer, what, as_json=as_json)

            self.add(function, as_command(function, run, before=_PROFILE, after=own_options), examples, note)
            return function

        return declare

    def add(self, function: Function, run: Function, examples: Sequence[str], note: str) -> None:
        """Add a command that calls ``run``, with examples and a paragraph after them."""
        words = " ".join(filter(None, ("epsilon", self.name, function.__name__.replace("_", "-"))))
        lines = ["\nExamples:", *(f"  {words} {example}".rstrip() for example in examples), *([note] if note else [])]
        self.app.command(epilog="\n\n".join(lines) + "\n")(_with_verbose(run))


TOP_LEVEL: Final = CommandGroup()
"""The commands under no group."""


def as_command(  # noqa: PLR0913 - what a signature is made of
    function: Function,
    run: Function,
    *,
    before: Sequence[Parameter] = (),
    after: Sequence[Parameter] = (),
    skip: int = 0,
    types: Mapping[str, Any] = MappingProxyType({}),
) -> Function:
    """``run`` with the name, help and parameters of ``function``, which typer reads from the signature.

    Args:
        function: the declared function.
        run: what the command line calls, with all parameters by name.
        before: parameters of ``run`` before those of the function.
        after: parameters of ``run`` after those of the function.
        skip: how many of the function's first parameters ``run`` supplies itself.
        types: by name, the annotation of a parameter whose argument ``run`` converts.
    """
    own = [*inspect.signature(function).parameters.values()][skip:]
    # The other annotations hold names that only type checkers import.
    named = {parameter.name: types.get(parameter.name, parameter.annotation) for parameter in own}
    holder = type("Own", (), {"__annotations__": named, "__module__": function.__module__})
    hints = get_type_hints(holder, include_extras=True)
    parameters = [*before, *(parameter.replace(annotation=hints[parameter.name]) for parameter in own), *after]
    parameters.sort(key=lambda parameter: parameter.kind)
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # `inspect` reads this attribute (PEP 362), which the type of a function does not declare.
    described: Any = run
    described.__signature__ = inspect.Signature(parameters)
    return run


def _with_verbose(run: Function) -> Function:
    """A command that takes --verbose beside its own options, unless it declares that itself."""
    if "verbose" in inspect.signature(run).parameters:
        return run

    def verbosely(*, verbose: bool, **own: Any) -> None:  # noqa: ANN401 - arguments of any type
        set_verbose(wanted=verbose)
        run(**own)

    return as_command(run, verbosely, after=_VERBOSE)


def _show_first(  # noqa: PLR0913 - what is sent and what is confirmed
    path: Path,
    kind: str,
    sent: Sent,
    preview: Preview,
    question: str,
    *,
    quiet: bool,
) -> None:
    """Show what a command would change, and prompt to confirm.

    Raises:
        Malformed: unless it is confirmed. Unreachable, OSError.
    """
    from client.http.problems import Refused
    from client.profile.profile import Profile

    assert not isinstance(sent, SignedDocument | BodyWithDocuments)
    profile = Profile.load(path)
    signer = profile.signer()
    with profile.open() as service:
        try:
            if question:
                service.submit(signer, profile.actor, kind, sent, dry_run=True)
            changes = preview(service, sent)
            learn_names(service, changes)
        except Refused:
            # A command that would be refused, or whose preview is denied, gets its own answer.
            return
    if not quiet:
        print_exposures(changes)
    if question:
        required = "accounts of organisations grow, for good" if changes else ""
        confirm(question, "was not confirmed: nothing was recorded", required=required)


def _send(path: Path, kind: str, sent: Sent, name: str, *, dry_run: bool) -> tuple[Answer, str]:
    """Sign and send; the answer, and what it is about. Raises: Malformed, Refused, Unreachable, OSError."""
    from client.profile.profile import Profile
    from client.service.command_documents import submit_signed_document, submit_with_documents

    profile = Profile.load(path)
    # Files are read before anything is sent.
    if isinstance(sent, BodyWithDocuments):
        files, signer = sent.read(), profile.signer()
        with profile.open() as service:
            answer, body = submit_with_documents(
                service, signer, profile.actor, kind, sent, data=files, id=name, dry_run=dry_run
            )
        return answer, subject_of(kind, body)
    if isinstance(sent, SignedDocument):
        data, signer = sent.read(kind), profile.signer()
        with profile.open() as service:
            answer, digest = submit_signed_document(
                service, signer, profile.actor, kind, sent, data=data, id=name, dry_run=dry_run
            )
        return answer, named_document(kind, sent.path, digest)
    with profile.open() as service:
        answer = service.submit(profile.signer(), profile.actor, kind, sent, name, dry_run=dry_run)
        learn_names(service, sent)
        return answer, subject_of(kind, sent)
