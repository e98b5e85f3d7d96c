"""``epsilon charge`` and ``epsilon quote``: get the decision on a run, charge it, settle it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client.cli.arguments import (
    AsJson,
    ChargeId,
    CommandId,
    DryRun,
    OptionalTime,
    ProfilePath,
    fresh_id,
)
from client.cli.command_group import TOP_LEVEL, CommandGroup
from client.cli.error_report import errors_reported
from client.cli.output import epsilon_lines, print_fields, print_json, print_outcome
from client.cli.planned_run.charge_file import Body, Changes, Contract, Noise, Partitions, Steps, read_charge
from client.cli.wording.refunds import refund_lines
from ledger.command_line.printable_text import printable, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client.service.answers import Answer
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

group = CommandGroup("charge", "Charges: make one, show its state, settle it.")

QUOTE_MS = 86_400_000
"""The deadline of a quote that names none: so many milliseconds from now."""


@TOP_LEVEL.command(
    "bank-a.toml charge.json --contract contract.yaml",
    "bank-a.toml charge.json --contract contract.yaml --noise 4 --steps 80 --json",
)
def quote(  # noqa: PLR0913 - each an option
    profile: ProfilePath,
    charge: Body,
    *,
    contract: Contract = "",
    deadline: OptionalTime = None,
    noise: Noise = "",
    steps: Steps = None,
    partition: Partitions = None,
    as_json: AsJson = False,
) -> None:
    """Preview a run: its ε, the budget used, the runs that remain."""
    from client.cli.planned_run.refusal_advice import Attempt, advised, named_partitions
    from client.keys.clean_room_keys import RoomKeys
    from client.profile.profile import Profile
    from client.service.named_ranges import fix_ranges

    changes = Changes(contract, deadline, noise, steps, tuple(partition or ()))
    with errors_reported(as_json=as_json, fields=changes.typed(charge)):
        caller = Profile.load(profile)
        signer, body = caller.signer(), read_charge(charge, changes)
        with caller.open() as service:
            named = named_partitions(body)
            body = fix_ranges(body, service)
            request: Object = {
                "clean_room": RoomKeys.generate().public,
                "deadline": int(service.clock() * 1000) + QUOTE_MS,
                **body,
            }
            again = Attempt(("quote", profile), charge, changes, named, body)
            answer = advised(service, lambda: service.quote(signer, caller.actor, request), again)
            report = None if as_json else service.plan_report(body)
    if report is None:
        for warning in answer.warnings:
            say(f"Warning: {printable(warning)}", err=True)
        print_json(answer.body)
        return
    from client.cli.planned_run.plan_answer import permitted_lines

    for line in permitted_lines(report):
        say(line)


@group.command(
    "bank-a.toml charge.json --contract contract.yaml --deadline 2026-12-01T00:00:00Z --id run-1",
    "bank-a.toml charge.json --contract contract.yaml --deadline 2026-12-01T00:00:00Z --room room.pem --json",
    note="`epsilon train` makes its own charge; this is for clean rooms that train by other means.",
)
def make(  # noqa: PLR0913 - each an option
    profile: ProfilePath,
    charge: Body,
    *,
    contract: Contract = "",
    deadline: OptionalTime = None,
    noise: Noise = "",
    steps: Steps = None,
    partition: Partitions = None,
    room: Annotated[
        Path | None,
        typer.Option("--room", metavar="FILE", help="The clean room's signing key; made if there is no file."),
    ] = None,
    id: CommandId = "",  # noqa: A002 - the wire's name
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Charge a run before it starts; it counts in full until it is settled."""
    from client.cli.planned_run.account_lines import account_lines, accounts_of, changed_accounts, shown_partitions
    from client.cli.planned_run.refusal_advice import Attempt, advised, named_partitions
    from client.profile.profile import Profile
    from client.service.named_ranges import fix_ranges
    from ledger.wire.malformed import Malformed

    name = fresh_id("charge", id)
    changes = Changes(contract, deadline, noise, steps, tuple(partition or ()))
    with errors_reported(as_json=as_json, id=name, fields=changes.typed(charge)), ExitStack() as kept:
        caller = Profile.load(profile)
        signer, body = caller.signer(), read_charge(charge, changes)
        if "deadline" not in body:
            raise Malformed("--deadline", "is missing: say until when the run is over, as 2026-01-31T00:00:00Z")
        room_keys: Object = {}
        if "clean_room" not in body:
            place = room or Path(f"{name}.room.pem")
            room_keys = {"clean_room": kept.enter_context(_room_keys(place, dry_run=dry_run))}
        elif room is not None:
            raise Malformed("--room", f"names keys, and {charge} has a clean room's: leave one of them out")
        with caller.open() as service:
            named = named_partitions(body)
            body = fix_ranges(body, service)
            sent = {**body, **room_keys}

            def send() -> Answer:
                return service.submit(signer, caller.actor, "charge", sent, name, dry_run=dry_run)

            refs = shown_partitions(service, body)
            before = accounts_of(service, caller.actor, refs)
            more = (*(("--room", room) if room else ()), *(("--dry-run",) if dry_run else ()))
            answer = advised(service, send, Attempt(("charge", "make", profile), charge, changes, named, body, more))
            after = {} if answer.index is None else accounts_of(service, caller.actor, refs)
    shown: Any = changed_accounts(before, after)
    print_outcome(answer, as_json=as_json, extra={"accounts": shown})
    if not as_json:
        for line in (*epsilon_lines(answer.body.get("run_epsilon")), *account_lines(answer.body, shown)):
            say(f"  {line}")


@contextmanager
def _room_keys(path: Path, *, dry_run: bool) -> Iterator[Object]:
    """The public keys of the clean room in a file, made if it is not there: a retry finds them, as its id is the same.

    Keys that were made for a charge that the service did not make are removed.

    Raises:
        Malformed, OSError.
    """
    from client.http.problems import Refused
    from client.keys.clean_room_keys import RoomKeys
    from ledger.domain.exit_codes import ExitCode

    if dry_run or path.exists():
        yield (RoomKeys.load(path) if path.exists() else RoomKeys.generate()).public
        return
    keys = RoomKeys.generate()
    written = keys.save(path)
    try:
        yield keys.public
    except Refused as refused:
        if refused.exit_code not in {ExitCode.INTERNAL_ERROR, ExitCode.RETRY}:
            for file in written:
                file.unlink()
        raise
    say(f"The clean room's keys: {written[0]} signs its commands, {written[1]} opens its data keys.", err=True)


def _print_charge(shown: Object) -> None:
    lines = {name: shown[name] for name in ("run_epsilon", "with_ancestry")}
    print_fields({name: value for name, value in shown.items() if name not in {*lines, "returned"}})
    for line in refund_lines(shown.get("leases"), shown.get("returned")):
        say(line)
    for name, value in lines.items():
        title = "The run" if name == "run_epsilon" else "The run with all runs that its model descends from"
        for line in epsilon_lines(value):
            say(f"{title}: {line}")


@group.read_command("bank-a.toml run-1", "hospital.toml run-1 --json", table=_print_charge)
def show(service: Service, charge: ChargeId) -> Object:
    """Show a charge: its state, steps and deadline, leased steps that came back, and the ε of the whole run."""
    return {**service.charge(charge), **service.run_epsilon(charge)}


@group.command(
    "bank-a.toml run-1 80 --room room.pem",
    "bank-a.toml run-1 0 --room room.pem --json",
    note="A run that leases its steps is posted for its live generation, and every leased step counts.",
)
def post(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    charge: ChargeId,
    steps: Annotated[
        int, typer.Argument(metavar="STEPS", min=0, help="The steps that began; the rest returns to the budget.")
    ],
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
            charged = clean_room.charge(charge)
            body: Object = {"charge": charge, "steps": steps, **_live_generation(charged)}
            answer = clean_room.submit(signer, str(charged["actor"]), "post", body, name, dry_run=dry_run)
    print_outcome(answer, f"post of {charge}", as_json=as_json)


def _live_generation(charge: Object) -> Object:
    """What the post of a run that leases its steps names beside them, by the charge as the service shows it."""
    leases = charge.get("leases")
    if not isinstance(leases, dict) or charge.get("key_release") is None:
        return {}
    newest = leases.get("newest")
    return {"generation": leases["generation"], **({} if newest is None else {"lease": newest})}


@group.signed_command("void", "bank-a.toml run-1", "hospital.toml run-1 --json")
def void(charge: ChargeId) -> Object:
    """Void a charge while its key is not released: all of it returns to the budget."""
    return {"charge": charge}
