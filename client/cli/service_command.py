"""What every command that asks a service shares: its arguments, how it is answered, and how its faults are told.

Data go to stdout, everything else to stderr. With ``--json`` a fault is data too: one object with ``code``, ``detail``,
``exit_code``, ``field``, ``id``, ``index`` and ``reasons``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

if TYPE_CHECKING:
    from client.http.problems import Refused
    from client.service.service import Answer
    from ledger.wire.canonical_json import Json, Object

EXIT_BUG: Final = 1
EXIT_USAGE: Final = 2
EXIT_REFUSED: Final = 3
EXIT_NOT_FOUND: Final = 4
EXIT_CONFLICT: Final = 5
EXIT_NOT_AUTHORISED: Final = 6
EXIT_RETRY: Final = 75

_NEXT: Final = {
    EXIT_BUG: "The service failed: tell its operator, then run the command again.",
    EXIT_USAGE: "Nothing was recorded: mend what is named and run the command again.",
    EXIT_NOT_FOUND: "Nothing was recorded: check the name, and that this organisation may see it.",
    EXIT_CONFLICT: "Nothing was recorded: look at what stands with a `show` command, or ask under another --id.",
    EXIT_NOT_AUTHORISED: "Nothing was recorded: check the profile's actor and key, and what its role may ask for.",
    EXIT_RETRY: "Run the command again in a moment.",
}
_RECORDED: Final = "This is entry {index}, and final for its id: change what is named and ask again under a new --id."
_DENIED: Final = "Nothing was recorded: change what is named and ask again."
_UNKNOWN: Final = "Whether it was recorded is unknown: run it again with --id {id}, which keeps it the same command."
_NEXT_BY_CODE: Final = {
    "login_failed": "Nobody is logged in: run `epsilon login` again, or tell whoever keeps the issuer.",
    "login_needed": "Nothing was recorded: log in and run the command again.",
    "no_key": "Nothing was recorded: run the command with an organisation's profile, which names its key.",
    "signature_missing": "Nothing was recorded: have it signed (`epsilon contract sign`) and give each file with "
    "--signature.",
    "token_invalid": "Nothing was recorded: check the profile; a person runs `epsilon login` again.",
}
_FILE: Final = "Nothing was recorded: check the file and run the command again."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

ProfilePath = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile in TOML, with a table named client.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs instead of words for people.")]
CommandId = Annotated[
    str, typer.Option("--id", metavar="ID", help="The command's id, made here if not given; the same id asks once.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what it would get, and record nothing.")]
Moment = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%dT%H:%M:%SZ"], metavar="TIME", help="In UTC: 2026-01-31T00:00:00Z.")
]
"""A time on the command line; :func:`milliseconds` reads it."""


def milliseconds(moment: datetime) -> int:
    """Unix milliseconds of a :data:`Moment`."""
    return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def fresh_id(kind: str, given: str = "") -> str:
    """The id that was given, or one that nobody has yet; made here, so that it can be told if no answer comes."""
    import secrets

    return given or f"{kind}-{secrets.token_hex(8)}"


def read_object(path: Path) -> Object:
    """A file that holds one JSON object, no larger than a command. Raises: Malformed, OSError."""
    from ledger.domain.commands import COMMAND_BYTES_MAX
    from ledger.wire.canonical_json import parse
    from ledger.wire.malformed import Malformed

    found = parse(read_bytes(path, COMMAND_BYTES_MAX), COMMAND_BYTES_MAX, str(path))
    if not isinstance(found, dict):
        raise Malformed(str(path), "must be an object")
    return found


def read_bytes(path: Path, most: int) -> bytes:
    """A file's bytes, one more than ``most`` at most, so that a reader refuses what is too long. Raises: OSError."""
    with path.open("rb") as file:
        return file.read(most + 1)


def submit(path: Path, kind: str, body: Object, given_id: str, *, as_json: bool, dry_run: bool = False) -> None:  # noqa: PLR0913 - what a command is given
    """Sign a command as the profile says, send it, and tell what became of it, or what would."""
    from client.profile.profile import Profile

    name = fresh_id(kind, given_id)
    with faults_told(as_json=as_json, id=name):
        profile = Profile.load(path)
        with profile.open() as service:
            answer = service.submit(profile.signer(), profile.actor, kind, body, name, dry_run=dry_run)
        tell(answer, as_json=as_json)


def submit_document(  # noqa: PLR0913 - what a command is given
    path: Path,
    kind: str,
    document: Path,
    others: Sequence[Path],
    given_id: str,
    *,
    as_json: bool,
    dry_run: bool = False,
) -> None:
    """Store a document, the profile's signature over it and those of others, and enter it, or tell what it would get.

    A dry run stores them too: the decision is about what the service holds, and what is stored binds nobody.
    """
    from client.profile.profile import Profile
    from client.service.detached_signatures import read_document, read_signatures

    name = fresh_id(kind, given_id)
    with faults_told(as_json=as_json, id=name):
        profile = Profile.load(path)
        data, given = read_document(document), read_signatures(others)
        signer = profile.signer()
        with profile.open() as service:
            stored = service.put_document(signer, data)
            # A signature is a document of its own: who carries it to the service need not be who made it.
            rest = [
                service.put_document(signer, one.encode("ascii")).document
                for key, one in given.items()
                if key != signer.key_id
            ]
            body: Object = {"document": stored.document, "signatures": [stored.signature, *rest]}
            answer = service.submit(signer, profile.actor, kind, body, name, replaces=stored.replaces, dry_run=dry_run)
        tell(answer, f"{kind} {stored.document}", as_json=as_json)


def tell(answer: Answer, what: str = "", *, as_json: bool, extra: Object | None = None) -> None:
    """What the service did, or would: a sentence, or the whole answer with its receipt and what is told beside it."""
    if as_json:
        known: Object = {
            "body": answer.body,
            "id": answer.id,
            "index": answer.index,
            "outcome": answer.outcome,
            "receipt": answer.receipt,
            "repeated": answer.repeated,
            **(extra or {}),
        }
        typer.echo(json.dumps(known, indent=2))
        return
    if answer.index is None:
        typer.echo(f"{what or answer.id}: it would be {answer.outcome}; nothing was recorded")
        return
    before = ", recorded before" if answer.repeated else ""
    typer.echo(f"{what or answer.id}: {answer.outcome}, entry {answer.index}, id {answer.id}{before}")


def show(found: Object, *, as_json: bool) -> None:
    """One thing as it stands: a table of its fields, or JSON."""
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("field", "value")
    table.columns[1].overflow = "fold"
    for name, value in found.items():
        table.add_row(name, Text(shown(value)))
    Console().print(table)


def print_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout; long values are folded, never cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*names)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def moment_of(value: Json) -> str:
    """A time of the service's, in milliseconds, as people read it."""
    if not isinstance(value, int):
        return "-"
    return (_EPOCH + timedelta(milliseconds=value)).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(value: Json) -> str:
    """A value for a table's cell."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Ending = Callable[[Exception, int, str], tuple[int, str]]
"""From a fault, its exit code and what to do next, to what they are where entries were recorded before it."""
TellFault = Callable[["Object"], None]


def _told_as_before(_fault: Exception, code: int, then: str) -> tuple[int, str]:
    return code, then


def print_fault(told: Object) -> None:
    """A fault for programs: one object on stdout."""
    typer.echo(json.dumps(told, indent=2, sort_keys=True))


@contextmanager
def faults_told(
    *,
    as_json: bool = False,
    id: str = "",  # noqa: A002 - the wire's name
    ending: Ending = _told_as_before,
    printed: TellFault = print_fault,
) -> Iterator[None]:
    """Tell a fault in one sentence, its reasons, and what to do next.

    Args:
        as_json: tell programs too, by ``printed``.
        id: of the command that is sent, where one is.
        ending: of a command that sends several.
        printed: writes the fault's object to stdout.
    """
    from client.http.problems import Refused, Unreachable
    from ledger.wire.malformed import Malformed

    try:
        yield
    except (Refused, Unreachable, Malformed, OSError) as fault:
        code, then = ending(fault, *_ends_with(fault, id))
        _end(code, _told(fault, id), then, printed if as_json else None)


def _ends_with(fault: Exception, name: str) -> tuple[int, str]:
    """The exit code, and what to do next."""
    from client.http.problems import Refused, Unreachable
    from ledger.wire.malformed import Malformed

    if isinstance(fault, Refused):
        return fault.exit_code, _next_of(fault, name)
    if isinstance(fault, Unreachable):
        return fault.exit_code, _UNKNOWN.format(id=name) if name else _NEXT[EXIT_RETRY]
    if isinstance(fault, Malformed):
        return EXIT_USAGE, _NEXT[EXIT_USAGE]
    return EXIT_NOT_FOUND if isinstance(fault, FileNotFoundError) else EXIT_USAGE, _FILE


def _told(fault: Exception, name: str) -> Object:
    from client.http.problems import Refused, Unreachable
    from ledger.wire.malformed import Malformed

    if isinstance(fault, Refused):
        return _problem(fault)
    if isinstance(fault, Unreachable):
        return {"code": "unreachable", "detail": str(fault), "id": name}
    if isinstance(fault, Malformed):
        return {"code": "malformed", "detail": str(fault), "field": fault.field}
    assert isinstance(fault, OSError)
    # Not every fault of the system is a file's.
    where, what = str(fault.filename or ""), fault.strerror or str(fault)
    return {"code": "file", "detail": f"{where}: {what}" if where else what, "field": where}


def _problem(fault: Refused) -> Object:
    return {
        "code": fault.code,
        "detail": fault.detail or fault.title or f"HTTP status {fault.status}",
        "field": fault.field,
        "id": fault.id,
        "index": fault.index,
        "reasons": [{"code": one.code, "detail": one.detail} for one in fault.reasons],
    }


def _next_of(fault: Refused, name: str) -> str:
    if fault.exit_code == EXIT_REFUSED:
        return _DENIED if fault.index is None else _RECORDED.format(index=fault.index)
    if fault.code in _NEXT_BY_CODE:
        return _NEXT_BY_CODE[fault.code]
    if name and fault.exit_code in {EXIT_BUG, EXIT_RETRY}:
        return _UNKNOWN.format(id=name)
    return _NEXT[fault.exit_code]


def _end(code: int, told: Object, then: str, printed: TellFault | None) -> NoReturn:
    typer.echo(f"{told['code']}: {told['detail']}", err=True)
    reasons = told.get("reasons")
    for reason in reasons if isinstance(reasons, list) else []:
        assert isinstance(reason, dict)
        typer.echo(f"  {reason['code']}: {reason['detail']}", err=True)
    typer.echo(then, err=True)
    if printed is not None:
        empty: Object = {"field": "", "id": "", "index": None, "reasons": []}
        printed({**empty, **told, "exit_code": code})
    # The fault is told: what follows it is not.
    raise typer.Exit(code) from None
