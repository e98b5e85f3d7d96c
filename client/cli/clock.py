"""``epsilon clock sign`` and ``correct``: SROs take the log's time back after the service's clock was far ahead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from client.cli.arguments import AsJson, DryRun, ProfilePath
from client.cli.command_group import CommandGroup, Result
from client.cli.error_report import errors_reported
from client.cli.output import print_outcome
from ledger.command_line.printable_text import say

if TYPE_CHECKING:
    from client.profile.profile import Profile
    from ledger.wire.canonical_json import Object

_KIND: Final = "clock_correction"
_Id = Annotated[str, typer.Option("--id", help="The id of the correction, the same for all who sign.")]
_Ahead = Annotated[int, typer.Option(metavar="MS", help="The time of the newest entry, in Unix milliseconds.")]
_Time = Annotated[int, typer.Option(metavar="MS", help="The time from which entries go on, in Unix milliseconds.")]
_Reason = Annotated[str, typer.Option(help="Why; recorded permanently.")]
_EXAMPLE: Final = 'sro.toml --id back-1 --ahead 2110360000000 --time 1795000000000 --reason "clock set to 2036"'

group = CommandGroup("clock", "The clock of a service: accept it after a jump, or take the log's time back.")


def _claim(id: str, ahead: int, time: int, reason: str) -> bytes:  # noqa: A002 - the wire's name
    """What every SRO signs. Raises: Malformed."""
    from ledger.commands.governance.clock_correction import ClockClaim
    from ledger.wire.records import convert, write

    stated = {"ahead": ahead, "id": id, "kind": _KIND, "reason": reason, "time": time}
    return write(convert(ClockClaim, stated, "correction"))


@group.profile_command(f"{_EXAMPLE} > market.jws", f"{_EXAMPLE} --json", note="Nothing is sent.")
def sign(caller: Profile, *, id: _Id, ahead: _Ahead, time: _Time, reason: _Reason) -> Result:  # noqa: A002 - the wire's name
    """Sign a clock correction with the profile's key, as a detached JWS for the SRO that sends it."""
    from client.service.detached_signatures import sign_document

    signature = sign_document(caller.signer(), _claim(id, ahead, time, reason))
    say(f"Signed the correction {id} with key {signature['key_id']}; nothing was sent.", err=True)
    return Result(signature, str(signature["signature"]))


@group.command(_EXAMPLE, f"{_EXAMPLE} --signature market.jws --json")
def correct(  # noqa: PLR0913 - one argument an option
    profile: ProfilePath,
    *,
    id: _Id,  # noqa: A002 - the wire's name
    ahead: _Ahead,
    time: _Time,
    reason: _Reason,
    signature: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Another SRO's signature, as `clock sign` wrote it. May be repeated."),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take the log's time back, signed by every SRO with an open partition: nothing that time has closed reopens."""
    from client.profile.profile import Profile
    from client.service.detached_signatures import read_signatures

    with errors_reported(as_json=as_json, id=id):
        caller, given = Profile.load(profile), read_signatures(signature or ())
        signer = caller.signer()
        signatures = [*given.values(), signer.sign(_claim(id, ahead, time, reason))]
        body: Object = {"ahead": ahead, "reason": reason, "signatures": [*signatures], "time": time}
        with caller.open() as service:
            answer = service.submit(signer, caller.actor, _KIND, body, id, dry_run=dry_run)
    print_outcome(answer, as_json=as_json)
