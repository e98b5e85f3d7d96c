"""How a command that calls the service reports an error: a sentence, its reasons, what to do next, and an exit code.

Data go to stdout, everything else to stderr. With ``--json`` an error is data too: one object with ``code``,
``detail``, ``exit_code``, ``field``, ``id``, ``index`` and ``reasons``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import typer
from typer.models import ArgumentInfo, OptionInfo

from ledger.command_line.printable_text import printable, say
from ledger.command_line.verbosity import plain
from ledger.domain.exit_codes import ExitCode, describe_error, exit_code_of
from ledger.files.state_folder import NoStateFolder

if TYPE_CHECKING:
    from client.http.problems import Refused
    from ledger.wire.canonical_json import Object


_NEXT: Final = {
    ExitCode.INTERNAL_ERROR: "Server error: report it to the service's operator, then retry.",
    ExitCode.INVALID: "Nothing was recorded: fix the field named above and retry.",
    ExitCode.NOT_FOUND: "Nothing was recorded: check the name, and that this organisation may see it.",
    ExitCode.CONFLICT: "Nothing was recorded: read the current state with a `show` command, or retry with "
    "another --id.",
    ExitCode.NOT_AUTHORISED: "Nothing was recorded: check the profile's actor and key, and what its role may do.",
    ExitCode.RETRY: "Retry in a moment.",
    ExitCode.VERIFICATION_FAILED: "Nothing that this service answers is proven, whether it recorded anything included.",
}
_RECORDED: Final = "Refusal logged as entry {index}. Retry with a new --id after changing the fields above."
_DENIED: Final = "Nothing was recorded: change the fields above and retry."
_UNKNOWN: Final = "It is unknown whether this was recorded: retry with --id {id}, which repeats the same command."
_NEXT_BY_CODE: Final = {
    "login_failed": "Not logged in: run `epsilon login` again, or report it to the issuer's operator.",
    "login_needed": "Nothing was recorded: log in and retry.",
    "no_key": "Nothing was recorded: use an organisation's profile, which names its key.",
    "signature_missing": "Nothing was recorded: have it signed (`epsilon contract sign`) and give each file with "
    "--signature.",
    "token_invalid": "Nothing was recorded: check the profile; a person runs `epsilon login` again.",
}
_EDITED: Final = (
    "Nothing was recorded: the claim was changed after it was signed; write it again (`epsilon key claim`)."
)
_AGREED: Final = (
    "Nothing was recorded: have the recipient sign (`epsilon lineage agree`) and give its file with --agreement, or "
    "have an SRO enter the transfer."
)
_COMMITTED: Final = (
    "Seal the records again with the key of this provider's other partitions (--commitment-key), and open the "
    "partition under a new --id."
)
_FILE: Final = "Nothing was recorded: check the file and retry."
_HOMELESS: Final = "Nothing was recorded: set one of them and retry."
_THERE: Final = "Nothing was recorded: nothing is overwritten, so name a file that is not there yet."

BODY: Final = "body"
"""The field of a command that a file holds."""
Ending = Callable[[Exception, int, str], tuple[int, str]]
"""From an error, its exit code and the next step, to what they are where entries were recorded before it."""
ErrorPrinter = Callable[["Object"], None]


def _single(_error: Exception, code: int, step: str) -> tuple[int, str]:
    return code, step


def print_error(error: Object) -> None:
    """An error for programs: one object on stdout."""
    say(json.dumps(error, indent=2, sort_keys=True))


@contextmanager
def errors_reported(
    *,
    as_json: bool = False,
    id: str = "",  # noqa: A002 - the wire's name
    ending: Ending = _single,
    printer: ErrorPrinter = print_error,
    fields: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[None]:
    """Report an error of the block and end the program with its exit code.

    Args:
        as_json: also print the error's object, by ``printer``.
        id: of the command that is sent, where there is one.
        ending: for a block that sends several commands.
        printer: writes the object to stdout.
        fields: fields as the service names them, by how the user typed them.
    """
    from client.http.problems import Refused, Unreachable
    from ledger.wire.malformed import Malformed

    try:
        yield
    except (Refused, Unreachable, Malformed, OSError) as error:
        code, step = ending(error, exit_code_of(error) or ExitCode.INTERNAL_ERROR, _next_step(error, id))
        report = _report(error, id)
        detail = _as_typed(str(report["detail"]), str(report.get("field", "")), fields)
        reasons = error.reasons if isinstance(error, Refused) else ()
        # A sentence that is made of the reasons is not printed twice.
        several = len(reasons) > 1 and detail == "; ".join(reason.detail for reason in reasons)
        others = (reason.code for reason in reasons if reason.detail == detail and reason.code != report["code"])
        same = "".join(f" ({other})" for other in others)
        say(f"{report['code']}{same}: {f'{len(reasons)} reasons' if several else printable(plain(detail))}", err=True)
        for reason in reasons:
            if reason.detail != detail:
                say(f"  {reason.code}: {printable(plain(reason.detail))}", err=True)
        for line in error.advice if isinstance(error, Refused) else ():
            say(f"  {line}", err=True)
        say(step, err=True)
        if as_json:
            printer({"field": "", "id": "", "index": None, "reasons": [], **report, "exit_code": code})
        raise typer.Exit(code) from None


def _as_typed(detail: str, field: str, fields: Mapping[str, str]) -> str:
    """A sentence that begins with a field's name, with the name that the user typed; a member after its file."""
    for name, typed in fields.items():
        if not detail.startswith(name):
            continue
        if field == name or field.startswith(f"{name}["):
            return typed + detail.removeprefix(name)
        if field.startswith(f"{name}."):
            return f"{typed}{': ' if name == BODY else '.'}{detail.removeprefix(f'{name}.')}"
    return detail.removeprefix(f"{BODY}.") if field.startswith(f"{BODY}.") else detail


def _next_step(error: Exception, name: str) -> str:
    """What to do next."""
    from client.http.problems import Refused, Unreachable
    from ledger.wire.malformed import Malformed

    if isinstance(error, Refused):
        return _after_refusal(error, name)
    if isinstance(error, Unreachable):
        return _UNKNOWN.format(id=name) if name else _NEXT[ExitCode.RETRY]
    if isinstance(error, FileExistsError | NoStateFolder):
        return _THERE if isinstance(error, FileExistsError) else _HOMELESS
    return _NEXT[exit_code_of(error) or ExitCode.INVALID] if isinstance(error, Malformed) else _FILE


def _after_refusal(error: Refused, name: str) -> str:
    other_key = any(reason.code == "commitments_key_changed" for reason in error.reasons)
    unagreed = error.field.startswith("body.agreement")
    if own := error.next_step or (_COMMITTED if other_key else _AGREED if unagreed else ""):
        return own
    if error.exit_code == ExitCode.REFUSED:
        return _DENIED if error.index is None else _RECORDED.format(index=error.index)
    if error.code == "signature_invalid" and error.detail.startswith("possession"):
        return _EDITED
    if error.code in _NEXT_BY_CODE:
        return _NEXT_BY_CODE[error.code]
    if name and error.exit_code in {ExitCode.INTERNAL_ERROR, ExitCode.RETRY}:
        return _UNKNOWN.format(id=name)
    return _NEXT[error.exit_code]


def _report(error: Exception, name: str) -> Object:
    from client.http.problems import Refused, Unreachable
    from ledger.wire.malformed import Malformed

    if isinstance(error, Refused):
        return {
            "code": error.code,
            "detail": error.detail or error.title or f"HTTP status {error.status}",
            "field": error.field,
            "id": error.id,
            "index": error.index,
            "reasons": [{"code": reason.code, "detail": reason.detail} for reason in error.reasons],
        }
    if isinstance(error, Unreachable):
        return {"code": "unreachable", "detail": describe_error(error), "id": name}
    code, field = (
        ("malformed", error.field) if isinstance(error, Malformed) else ("file", getattr(error, "filename", ""))
    )
    code = "environment" if isinstance(error, NoStateFolder) else code
    # An error of the operating system need not concern a file.
    return {"code": code, "detail": describe_error(error), "field": str(field or "")}


def typed_names(parameters: Iterable[Parameter], given: Mapping[str, object]) -> dict[str, str]:
    """How the user typed each field that the service names.

    Args:
        parameters: of the command; each is annotated with typer's own description of it.
        given: the command's own arguments by name; a file among them that is no option holds the body.
    """
    typed: dict[str, str] = {}
    file = ""
    for parameter in parameters:
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(info, OptionInfo):
                long = (name for name in info.param_decls or () if name.startswith("--"))
                word = next(long, f"--{parameter.name.replace('_', '-')}")
            elif isinstance(info, ArgumentInfo):
                word = info.metavar or parameter.name.upper()
                if isinstance(given.get(parameter.name), Path):
                    file = file or str(given[parameter.name])
            else:
                continue
            # A word that may be repeated fills a list, whose name is the plural.
            keys = (parameter.name, f"{BODY}.{parameter.name}", f"{BODY}.{parameter.name}s")
            typed |= dict.fromkeys(keys if parameter.name in given else keys[:1], word)
    return {**typed, BODY: file} if file else typed
