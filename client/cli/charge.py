"""``epsilon charge`` and ``epsilon quote``: ask what a run would get, charge it, settle it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.completion import charges
from client.cli.service_command import (
    AsJson,
    CommandId,
    DryRun,
    Moment,
    ProfilePath,
    faults_told,
    fresh_id,
    milliseconds,
    submit,
    tell,
)
from client.cli.service_command import show as show_one

if TYPE_CHECKING:
    from datetime import datetime

    from ledger.wire.canonical_json import Object

app = typer.Typer(no_args_is_help=True, help="Charges: make one, see where it stands, settle it.")

_Body = Annotated[Path, typer.Argument(metavar="CHARGE", help="The body of a charge, in JSON.")]
_Contract = Annotated[
    str, typer.Option("--contract", metavar="CONTRACT", help="A contract's file or SHA-256, where CHARGE names none.")
]
_Charge = Annotated[str, typer.Argument(metavar="ID", help="The id of the charge.", autocompletion=charges)]


@app.callback()
def _group() -> None:
    """Charges."""


def quote(
    profile: ProfilePath,
    charge: _Body,
    contract: _Contract = "",
    deadline: Moment = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Ask for the decision that a charge would get now; nothing is recorded."""
    from client.profile.profile import Profile

    with faults_told(as_json=as_json):
        known = Profile.load(profile)
        body = _body(charge, contract, deadline)
        with known.open() as service:
            answer = service.quote(known.signer(), known.actor, body)
        typer.echo(json.dumps(answer.body, indent=2) if as_json else f"The charge would be {answer.outcome}.")


@app.command(
    epilog="""
Examples:

  epsilon charge make bank-a.toml charge.json --id run-1

  epsilon charge make bank-a.toml charge.json --contract contract.json --deadline 2026-12-01T00:00:00Z --json

`epsilon train` makes its own charge; this is for clean rooms that train by other means.
"""
)
def make(  # noqa: PLR0913 - each an option
    profile: ProfilePath,
    charge: _Body,
    contract: _Contract = "",
    deadline: Moment = None,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Charge a run before it starts: it counts in full until it is posted or voided, or its deadline passes."""
    with faults_told(as_json=as_json):
        body = _body(charge, contract, deadline)
    submit(profile, "charge", body, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon charge show bank-a.toml run-1

  epsilon charge show hospital.toml run-1 --json
"""
)
def show(profile: ProfilePath, charge: _Charge, *, as_json: AsJson = False) -> None:
    """Show where a charge stands: pending, posted or voided, for how many steps, until when."""
    from client.profile.profile import Profile

    with faults_told(as_json=as_json), Profile.load(profile).open() as service:
        show_one(service.charge(charge), as_json=as_json)


@app.command(
    epilog="""
Examples:

  epsilon charge post bank-a.toml run-1 80 --room room.pem

  epsilon charge post bank-a.toml run-1 0 --room room.pem --json
"""
)
def post(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    charge: _Charge,
    steps: Annotated[int, typer.Argument(min=0, help="The steps that began; the rest goes back to headroom.")],
    room: Annotated[Path, typer.Option(metavar="FILE", help="The clean room's own signing key, as a PEM file.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Settle a charge for what ran, as the clean room that ran it."""
    from client.http.access_tokens import CleanRoomCredentials
    from client.keys.signer import Signer
    from client.profile.profile import Profile

    name = fresh_id("post", id)
    with faults_told(as_json=as_json, id=name):
        known, signer = Profile.load(profile), Signer.load(room)
        with known.open() as service:
            own = service.as_caller(CleanRoomCredentials(signer, known.log.origin))
            actor = str(own.charge(charge)["actor"])
            answer = own.submit(signer, actor, "post", {"charge": charge, "steps": steps}, name, dry_run=dry_run)
        tell(answer, as_json=as_json)


@app.command(
    epilog="""
Examples:

  epsilon charge void bank-a.toml run-1

  epsilon charge void hospital.toml run-1 --json
"""
)
def void(
    profile: ProfilePath,
    charge: _Charge,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Settle a charge for nothing, while its key is not released: all of it goes back to headroom."""
    submit(profile, "void", {"charge": charge}, id, as_json=as_json, dry_run=dry_run)


def _body(charge: Path, contract: str, deadline: datetime | None) -> Object:
    """A charge's body, completed from the command line. Raises: Malformed, OSError."""
    from client.cli.service_command import read_object
    from client.service.detached_signatures import digest_of
    from ledger.wire.malformed import Malformed

    body = read_object(charge)
    given: Object = {}
    if contract:
        given["contract"] = digest_of(contract)
    if deadline is not None:
        given["deadline"] = milliseconds(deadline)
    for field, value in given.items():
        if body.get(field, value) != value:
            raise Malformed(f"{charge}: {field}", f"says another {field} than --{field}")
    return {**body, **given}
