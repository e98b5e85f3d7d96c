"""``epsilon key``: quorums that may give an organisation a new key, recovery by them, and what a stolen key signed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli import key
from client.cli.arguments import AsJson, ProfilePath, Time, milliseconds, read_object, time_of
from client.cli.command_group import Result
from client.cli.error_report import errors_reported
from client.cli.key import Organisation, Reason
from client.cli.output import cell, print_json, print_outcome, print_rows, time_text
from ledger.command_line.printable_text import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client.profile.profile import Profile
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

group = key.group
"""``epsilon key``, with these commands."""
_Id = Annotated[str, typer.Option("--id", help="The id that the command will have, which is signed too.")]
_Signatures = Annotated[
    list[Path] | None,
    typer.Option("--signature", metavar="FILE", help="A member's line, as `epsilon key endorse` wrote it."),
]
_StolenSince = Annotated[
    datetime | None,
    typer.Option(parser=time_of, metavar="TIME", help="Since when the key may be a thief's, in UTC; recorded."),
]
_Members = Annotated[list[str], typer.Option(metavar="DID", help="A member of the quorum. May be repeated.")]
_Threshold = Annotated[int, typer.Option(min=1, help="How many members must sign.")]
_Claimed = Annotated[
    Path, typer.Argument(metavar="CLAIM", help="As `epsilon key claim-recovery` or `claim-quorum` wrote it.")
]


@group.command(
    "sro.toml --member did:web:hospital.example --member did:web:bank-a.example --threshold 2 --id quorum-1 > q.json",
    "sro.toml --member did:web:hospital.example --threshold 1 --id quorum-1 > q.json",
    note="Nothing is sent; `epsilon key name-quorum` sends it.",
)
def claim_quorum(profile: ProfilePath, *, member: _Members, threshold: _Threshold, id: _Id) -> None:  # noqa: A002 - the wire's name
    """Write which organisations may give this one, and each SRO that it registers, a new key together."""
    from client.profile.profile import Profile
    from client.service.key_bodies import read_claim

    with errors_reported():
        actor = Profile.load(profile).actor
        stated: Object = {"id": id, "members": [*member], "organisation": actor, "threshold": threshold}
        claim: Object = {**stated, "extends_to_registered": True, "use": "recovery_quorum"}
        read_claim(claim)
    print_json({"claim": claim})


@group.command(
    "sro-new.toml --id recovery-1 --reason 'the key was lost' > recovery.json",
    "sro-new.toml --id recovery-1 --reason 'a theft' --stolen-since 2026-11-20T00:00:00Z > recovery.json",
    note="The profile names the new key. Nothing is sent.",
)
def claim_recovery(
    profile: ProfilePath,
    *,
    id: _Id,  # noqa: A002 - the wire's name
    reason: Reason,
    stolen_since: _StolenSince = None,
) -> None:
    """Write the claim of an organisation that lost its key, with proof that it has the new one."""
    from client.profile.profile import Profile
    from client.service.key_bodies import read_claim, recovery

    with errors_reported():
        caller = Profile.load(profile)
        since = None if stolen_since is None else milliseconds(stolen_since)
        body = recovery(caller.actor, caller.signer(), reason, id, since)
        claim: Object = {name: value for name, value in body.items() if name != "possession"}
        claim |= {"id": id, "use": "key_recovery"}
        read_claim(claim)
    print_json({"claim": claim, "possession": body["possession"]})


@group.profile_command(
    "hospital.toml recovery.json > hospital.jws",
    "bank-a.toml q.json --json",
    note="Nothing is sent. Ask the organisation by another way whether the claim is its own, before you sign it.",
)
def endorse(caller: Profile, claimed: _Claimed) -> Result:
    """Sign a claim as a member of a quorum, as a detached JWS for the organisation that sends it."""
    from client.service.detached_signatures import sign_document
    from client.service.key_bodies import read_claim
    from ledger.wire.records import write

    claim = read_claim(read_object(claimed).get("claim"))
    say(f"You sign: {write(claim).decode()}", err=True)
    signature = sign_document(caller.signer(), write(claim))
    return Result(signature, str(signature["signature"]))


@group.command("sro.toml q.json", "sro.toml q.json --signature hospital.jws --signature bank-a.jws --json")
def name_quorum(
    profile: ProfilePath, claimed: _Claimed, *, signature: _Signatures = None, as_json: AsJson = False
) -> None:
    """Name the quorum of a claim; another one in force must have endorsed it."""
    with errors_reported(as_json=as_json):
        claim, body = _read(claimed, ("extends_to_registered", "members", "threshold"), signature or ())
    key.send_command(profile, "recovery_quorum", body, str(claim["id"]), dry_run=False, as_json=as_json)


def _print_signed(decisions: Sequence[Object]) -> None:
    """What keys signed, as entries of the log."""
    names = ("index", "time", "kind", "id", "outcome", "key_id")
    rows = [
        [time_text(decision[name]) if name == "time" else cell(decision.get(name)) for name in names]
        for decision in decisions
    ]
    print_rows(("entry", "time", "kind", "id", "outcome", "signed by the key"), rows, fold_from=3)


@group.read_command(
    "sro-new.toml did:web:sro.example --since 2026-11-20T00:00:00Z",
    "bank-a.toml did:web:bank-a.example --since 2026-11-20T00:00:00Z --json",
    table=_print_signed,
    note="An SRO and an auditor see all of it, others what they see of the log.",
)
def signed(service: Service, organisation: Organisation, *, since: Time) -> list[Object]:
    """List what the keys of an organisation signed since a time, refusals included, as the log has it."""
    return service.signed_by(organisation, milliseconds(since))


@group.command(
    "hospital.toml recovery.json --signature hospital.jws --signature bank-a.jws", "sro.toml recovery.json --json"
)
def recover(profile: ProfilePath, claimed: _Claimed, *, signature: _Signatures = None, as_json: AsJson = False) -> None:
    """Give an organisation its new key and revoke all that it had: endorsed by its quorum, or as its SRO.

    Where the claim says since when the key was stolen, list what the organisation's keys have signed since.
    """
    from client.profile.profile import Profile
    from ledger.crypto.organisation_keys import parse_organisation_key

    with errors_reported(as_json=as_json):
        claim, body = _read(claimed, ("key", "organisation", "reason", "stolen_since"), signature or ())
        new = parse_organisation_key(body["key"], "claim.key").thumbprint
    with errors_reported(as_json=as_json, id=str(claim["id"])):
        caller = Profile.load(profile)
        with caller.open() as service:
            answer = service.submit(caller.signer(), caller.actor, "key_recovery", body, str(claim["id"]))
            decisions = _signed_since(service, claim)
    listed = None if decisions is None else [decision for decision in decisions if decision.get("key_id") != new]
    print_outcome(answer, as_json=as_json, extra=None if listed is None else {"signed_since_stolen": [*listed]})
    if listed is not None and not as_json:
        what = "undo what is not its own" if listed else "nothing that this profile may see"
        say(f"  signed by the keys of {claim['organisation']} since {time_text(claim['stolen_since'])}: {what}")
        if listed:
            _print_signed(listed)


def _signed_since(service: Service, claim: Object) -> list[Object] | None:
    """What an organisation's keys signed since its key was stolen; None where the claim does not say when it was.

    The recovery is recorded by then, so what fails here is a warning.
    """
    from client.http.problems import Refused, Unreachable
    from ledger.wire.malformed import Malformed

    since = claim.get("stolen_since")
    if not isinstance(since, int):
        return None
    try:
        return service.signed_by(str(claim["organisation"]), since)
    except (Refused, Unreachable, Malformed) as error:
        again = "list what was signed since by `epsilon key signed`"
        say(f"Warning: the recovery is recorded; {again}, for now it cannot be read: {error}", err=True)
        return None


def _read(path: Path, members: Sequence[str], signatures: Sequence[Path]) -> tuple[Object, Object]:
    """The claim in a file, and the body of its command: these of its members, and the files' signatures.

    Raises:
        Malformed, OSError.
    """
    from client.service.detached_signatures import read_signatures
    from client.service.key_bodies import read_claim

    whole = read_object(path)
    claim = read_claim(whole.get("claim")).to_json()
    body: Object = {name: claim[name] for name in members if name in claim}
    body |= {"possession": whole["possession"]} if "possession" in whole else {}
    given = read_signatures(signatures)
    body |= {"signatures": [*given.values()]} if given else {}
    return claim, body
