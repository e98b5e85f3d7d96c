"""``epsilon charge`` and ``epsilon quote``: get the decision on a run, charge it, settle it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from client.cli.arguments import (
    AsJson,
    ChargeId,
    CommandId,
    DryRun,
    OptionalTime,
    ProfilePath,
    fresh_id,
    milliseconds,
    read_object,
)
from client.cli.command_group import TOP_LEVEL, CommandGroup, Result
from client.cli.error_report import errors_reported
from client.cli.output import epsilon_lines, print_fields, print_outcome

if TYPE_CHECKING:
    from datetime import datetime

    from client.profile.profile import Profile
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

group = CommandGroup("charge", "Charges: make one, show its state, settle it.")

_Body = Annotated[Path, typer.Argument(metavar="CHARGE", help="The body of a charge, in JSON.")]
_Contract = Annotated[
    str, typer.Option("--contract", metavar="CONTRACT", help="A contract's file or SHA-256, where CHARGE names none.")
]


@TOP_LEVEL.profile_command(
    "bank-a.toml charge.json",
    "bank-a.toml charge.json --contract contract.json --deadline 2026-12-01T00:00:00Z --json",
)
def quote(caller: Profile, charge: _Body, contract: _Contract = "", deadline: OptionalTime = None) -> Result:
    """Get the decision that a charge would get now; nothing is recorded."""
    body = _body(charge, contract, deadline)
    with caller.open() as service:
        answer = service.quote(caller.signer(), caller.actor, body)
    lines = [f"  {line}" for line in epsilon_lines(answer.body.get("run_epsilon"))]
    return Result(answer.body, "\n".join([f"The charge would be {answer.outcome}.", *lines]))


@group.command(
    "bank-a.toml charge.json --id run-1",
    "bank-a.toml charge.json --contract contract.json --deadline 2026-12-01T00:00:00Z --json",
    note="`epsilon train` makes its own charge; this is for clean rooms that train by other means.",
)
def make(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    charge: _Body,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    contract: _Contract = "",
    deadline: OptionalTime = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Charge a run before it starts: it counts in full until it is posted or voided, or its deadline passes."""
    from client.profile.profile import Profile

    name = fresh_id("charge", id)
    with errors_reported(as_json=as_json, id=name):
        body, caller = _body(charge, contract, deadline), Profile.load(profile)
        with caller.open() as service:
            before = _accounts(service, caller.actor, body)
            answer = service.submit(caller.signer(), caller.actor, "charge", body, name, dry_run=dry_run)
            after = {} if answer.index is None else _accounts(service, caller.actor, body)
    shown: Any = [
        {**{field: one[field] for field in _SHOWN}, "share_before": before.get(key, {}).get("share", "0 %")}
        for key, one in after.items()
    ]
    print_outcome(answer, as_json=as_json, extra={"accounts": shown})
    if not as_json:
        for line in (*epsilon_lines(answer.body.get("run_epsilon")), *map(_account_line, shown)):
            typer.echo(f"  {line}")


_SHOWN: Final = ("binding", "closed", "name", "partition", "runs_like_the_last", "share")


def _accounts(service: Service, actor: str, body: Object) -> dict[tuple[str, str], Any]:
    """Everyone's account and the actor's own of each partition of a charge; those that cannot be read are left out."""
    from client.http.problems import Refused, Unreachable
    from ledger.domain.facts import GLOBAL
    from ledger.wire.malformed import Malformed

    named: Any = body.get("partitions")
    found: dict[tuple[str, str], Any] = {}
    for ref in [one for one in named if isinstance(one, str)] if isinstance(named, list) else []:
        try:
            accounts: Any = service.accounts(ref)["accounts"]
        except (Malformed, Refused, Unreachable):
            continue
        own = (one for one in accounts if one["holder"] == GLOBAL or actor in one["organisations"])
        found.update({(ref, one["holder"]): {**one, "partition": ref} for one in own})
    return found


def _account_line(one: Any) -> str:  # noqa: ANN401 - JSON
    runs = one["runs_like_the_last"]
    fits = "" if runs is None else f"; {runs} more runs like it fit"
    binds = one["closed"] or one["binding"]
    bound = f" ({binds})" if binds else ""
    used = f"{one['share_before']} used before, {one['share']} now"
    return f"{one['partition']}, account of {one['name']}: {used}{fits}{bound}"


def _print_charge(shown: Object) -> None:
    lines = {name: shown[name] for name in ("run_epsilon", "with_ancestry")}
    print_fields({name: value for name, value in shown.items() if name not in lines})
    for name, value in lines.items():
        title = "The run" if name == "run_epsilon" else "The run with all runs that its model descends from"
        for line in epsilon_lines(value):
            typer.echo(f"{title}: {line}")


@group.read_command("bank-a.toml run-1", "hospital.toml run-1 --json", table=_print_charge)
def show(service: Service, charge: ChargeId) -> Object:
    """Show a charge: its state, steps and deadline, and the ε of the whole run."""
    return {**service.charge(charge), **service.run_epsilon(charge)}


@group.command("bank-a.toml run-1 80 --room room.pem", "bank-a.toml run-1 0 --room room.pem --json")
def post(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    charge: ChargeId,
    steps: Annotated[int, typer.Argument(min=0, help="The steps that began; the rest returns to the budget.")],
    room: Annotated[Path, typer.Option(metavar="FILE", help="The clean room's own signing key, as a PEM file.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Settle a charge for the steps that ran, as the clean room that ran it."""
    from client.http.access_tokens import CleanRoomCredentials
    from client.keys.signer import Signer
    from client.profile.profile import Profile

    name = fresh_id("post", id)
    with errors_reported(as_json=as_json, id=name):
        caller, signer = Profile.load(profile), Signer.load(room)
        with caller.open() as service:
            clean_room = service.as_caller(CleanRoomCredentials(signer, caller.log.origin))
            actor = str(clean_room.charge(charge)["actor"])
            answer = clean_room.submit(signer, actor, "post", {"charge": charge, "steps": steps}, name, dry_run=dry_run)
    print_outcome(answer, as_json=as_json)


@group.signed_command("void", "bank-a.toml run-1", "hospital.toml run-1 --json")
def void(charge: ChargeId) -> Object:
    """Void a charge while its key is not released: all of it returns to the budget."""
    return {"charge": charge}


def _body(charge: Path, contract: str, deadline: datetime | None) -> Object:
    """A charge's body, completed from the command line. Raises: Malformed, OSError."""
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
