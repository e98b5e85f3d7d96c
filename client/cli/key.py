"""``epsilon key``: signing keys, from registration to rotation, revocation and recovery; grants of data keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.arguments import (
    AsJson,
    CommandId,
    DryRun,
    OptionalTime,
    ProfilePath,
    Time,
    fresh_id,
    milliseconds,
    read_object,
)
from client.cli.command_group import CommandGroup, Result
from client.cli.error_report import errors_reported
from client.cli.output import print_json, print_keys, print_outcome
from client.cli.wording.organisation_names import learn_names
from client.cli.wording.outcome_names import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client.profile.profile import Profile
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

group = CommandGroup("key", "Create, register, rotate, revoke, suspend and recover signing keys; grant data keys.")
_Keys = Annotated[list[str], typer.Argument(metavar="KEY...", help="Ids of keys, or files of public keys (JWK).")]
_Reason = Annotated[str, typer.Option(help="Why; recorded permanently.")]
_Id = Annotated[str, typer.Option("--id", help="The id that the command will have, which is signed too.")]
_Signatures = Annotated[
    list[Path] | None,
    typer.Option("--signature", metavar="FILE", help="A member's line, as `epsilon key endorse` wrote it."),
]


_Organisation = Annotated[str, typer.Argument(metavar="DID", help="The organisation.")]
_Members = Annotated[list[str], typer.Option(metavar="DID", help="A member of the quorum. May be repeated.")]
_Threshold = Annotated[int, typer.Option(min=1, help="How many members must sign.")]
_Claimed = Annotated[
    Path, typer.Argument(metavar="CLAIM", help="As `epsilon key claim-recovery` or `claim-quorum` wrote it.")
]


@group.command("bank-a.pem", "bank-a.pem > bank-a.jwk")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the private key.")],
) -> None:
    """Generate a signing key (Ed25519), readable by its owner alone, and print its public half as a JWK."""
    from client.keys.signer import Signer

    with errors_reported():
        signer = Signer.generate()
        signer.save(file)
    typer.echo(json.dumps(signer.jwk))
    typer.echo(f"Private key written to {file} (key ID {signer.key_id}). Back it up: it cannot be recovered.", err=True)


@group.command(
    'bank-a.toml --name "Bank A" --role TDC > bank-a.json',
    'hospital.toml --name "A hospital" --role TDP > hospital.json',
)
def claim(
    profile: ProfilePath,
    name: Annotated[str, typer.Option(help="The organisation's name, for people.")],
    role: Annotated[list[str], typer.Option(help="SRO, TSO, TDP, TDC or AUDITOR. May be repeated.")],
) -> None:
    """Write an organisation's registration for its SRO: name, roles, public key, and proof of possession."""
    from client.profile.profile import Profile
    from client.service.registration import registration

    with errors_reported(fields={"body.name": "--name", "body.roles": "--role"}):
        caller = Profile.load(profile)
        body = registration(caller.signer(), caller.actor, name, role)
    print_json(body)


@group.signed_command(
    "organisation",
    "sro.toml bank-a.json",
    "sro.toml sro.json",
    note="The first entry of a ledger is its SRO, which registers itself.",
)
def register(
    claimed: Annotated[Path, typer.Argument(metavar="CLAIM", help="What `epsilon key claim` wrote.")],
) -> Object:
    """Register an organisation with its signing key and roles, as the SRO."""
    return read_object(claimed)


@group.command(
    "hospital.toml release-run-1",
    "hospital.toml release-run-1 --data-key did:web:hospital.example/digits/2026-q1=digits.key",
)
def grant(
    profile: ProfilePath,
    release: Annotated[str, typer.Argument(help="The id of the key release, as the clean room reports it.")],
    data_key: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION=FILE", help="A file of 32 bytes, sealed to the clean room. May be repeated."),
    ] = None,
) -> None:
    """Verify a key release against the log's own key, and seal data keys to the clean room it names.

    With no data key it prints what is granted, as JSON: partitions, sealing key, and expiry.
    """
    from time import time_ns

    from client.profile.profile import Profile
    from client.service.key_grant_check import check, fetch, read_data_keys

    with errors_reported():
        caller = Profile.load(profile)
        actor = caller.actor
        with caller.open() as service:
            charge, proven = fetch(service, release, caller.log)
        granted = check(charge, proven, caller.log, actor, time_ns() // 1_000_000)
        keys = read_data_keys(data_key or ())
        sealed = granted.seal(keys) if keys else granted.to_json()
    print_json(sealed)


@group.read_command("sro.toml did:web:bank-a.example", "bank-a.toml did:web:bank-a.example --json", table=print_keys)
def show(service: Service, organisation: _Organisation) -> list[Object]:
    """Show every key of an organisation: from when until when it signs, whether it is suspended or revoked."""
    return service.keys_of(organisation)


@group.command(
    "bank-a.toml bank-a-2027.pem --until 2027-02-01T00:00:00Z",
    "bank-a.toml bank-a-2027.pem --starts 2027-01-01T00:00:00Z --until 2027-02-01T00:00:00Z --id rotation-2027",
)
def rotate(  # noqa: PLR0913 - one argument an option
    profile: ProfilePath,
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The new private key, as `epsilon key new` wrote it.")],
    *,
    until: Time,
    starts: OptionalTime = None,
    id: CommandId = "",  # noqa: A002 - the wire's name
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Replace the profile's signing key by a new one: the new one signs at once, or from a date; the old one until one.

    Between the two dates both sign. Name the new file in the profile before the old key retires.
    """
    from client.keys.signer import Signer
    from client.profile.profile import Profile
    from client.service.key_bodies import rotation

    name = fresh_id("key_rotation", id)
    with errors_reported(as_json=as_json, id=name):
        caller = Profile.load(profile)
        since = None if starts is None else milliseconds(starts)
        body = rotation(caller.actor, caller.signer().key_id, Signer.load(new), milliseconds(until), since)
    _send(profile, "key_rotation", body, name, dry_run=dry_run, as_json=as_json)


@group.signed_command(
    "key_revocation",
    "bank-a.toml bank-a.jwk --reason 'a laptop was stolen'",
    "sro.toml zuewJJ9_4S-CCY1--JrdurbmS9iqD3hpB-mb18NUjTw --reason 'a laptop was stolen' --id theft-1",
    note="The answer names the pending runs that are touched. Those without data keys get none: void them.",
)
def revoke(key: _Keys, *, reason: _Reason) -> Object:
    """Revoke signing keys for good: from the entry on they sign nothing. An SRO may name those of others."""
    from client.service.key_bodies import key_id_of

    return {"keys": [*map(key_id_of, key)], "reason": reason}


@group.signed_command(
    "key_suspension",
    "bank-a.toml bank-a.jwk --reason 'a laptop is missing'",
    "sro.toml zuewJJ9_4S-CCY1--JrdurbmS9iqD3hpB-mb18NUjTw --reason 'an inquiry' --json",
)
def suspend(key: _Keys, *, reason: _Reason) -> Object:
    """Suspend signing keys: they sign nothing until they are resumed."""
    from client.service.key_bodies import key_id_of

    return {"keys": [*map(key_id_of, key)], "reason": reason, "suspended": True}


@group.signed_command(
    "key_suspension",
    "bank-a.toml bank-a.jwk --reason 'the laptop was found'",
    "sro.toml zuewJJ9_4S-CCY1--JrdurbmS9iqD3hpB-mb18NUjTw --reason 'the inquiry is over' --json",
)
def resume(key: _Keys, *, reason: _Reason) -> Object:
    """Resume suspended keys: by who suspended them, or an SRO."""
    from client.service.key_bodies import key_id_of

    return {"keys": [*map(key_id_of, key)], "reason": reason, "suspended": False}


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
    "sro-new.toml --id recovery-1 --reason 'the key was stolen' > recovery.json",
    note="The profile names the new key. Nothing is sent.",
)
def claim_recovery(profile: ProfilePath, *, id: _Id, reason: _Reason) -> None:  # noqa: A002 - the wire's name
    """Write the claim of an organisation that lost its key, with proof that it has the new one."""
    from client.profile.profile import Profile
    from client.service.key_bodies import read_claim, recovery

    with errors_reported():
        caller = Profile.load(profile)
        body = recovery(caller.actor, caller.signer(), reason, id)
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
    from client.service.detached_signatures import signed
    from client.service.key_bodies import read_claim
    from ledger.wire.records import write

    claim = read_claim(read_object(claimed).get("claim"))
    typer.echo(f"You sign: {write(claim).decode()}", err=True)
    signature = signed(caller.signer(), write(claim))
    return Result(signature, str(signature["signature"]))


@group.command("sro.toml q.json", "sro.toml q.json --signature hospital.jws --signature bank-a.jws --json")
def name_quorum(
    profile: ProfilePath, claimed: _Claimed, *, signature: _Signatures = None, as_json: AsJson = False
) -> None:
    """Name the quorum of a claim; another one in force must have endorsed it."""
    _send_claim(
        profile,
        "recovery_quorum",
        ("extends_to_registered", "members", "threshold"),
        claimed,
        signature or (),
        as_json=as_json,
    )


@group.command(
    "hospital.toml recovery.json --signature hospital.jws --signature bank-a.jws", "sro.toml recovery.json --json"
)
def recover(profile: ProfilePath, claimed: _Claimed, *, signature: _Signatures = None, as_json: AsJson = False) -> None:
    """Give an organisation its new key and revoke all that it had: endorsed by its quorum, or as its SRO."""
    _send_claim(profile, "key_recovery", ("key", "organisation", "reason"), claimed, signature or (), as_json=as_json)


def _send_claim(  # noqa: PLR0913 - what is sent and how it is shown
    profile: Path, kind: str, members: tuple[str, ...], claimed: Path, signatures: Sequence[Path], *, as_json: bool
) -> None:
    from client.service.detached_signatures import read_signatures
    from client.service.key_bodies import read_claim

    with errors_reported(as_json=as_json):
        whole = read_object(claimed)
        claim = read_claim(whole.get("claim")).to_json()
        body: Object = {name: claim[name] for name in members if name in claim}
        body |= {"possession": whole["possession"]} if "possession" in whole else {}
        given = read_signatures(signatures)
        body |= {"signatures": [*given.values()]} if given else {}
    _send(profile, kind, body, str(claim["id"]), dry_run=False, as_json=as_json)


def _send(  # noqa: PLR0913 - what is sent and how it is shown
    profile: Path, kind: str, body: Object, name: str, *, dry_run: bool, as_json: bool
) -> None:
    from client.profile.profile import Profile

    with errors_reported(as_json=as_json, id=name):
        caller = Profile.load(profile)
        with caller.open() as service:
            answer = service.submit(caller.signer(), caller.actor, kind, body, name, dry_run=dry_run)
            learn_names(service, body)
    print_outcome(answer, named(kind, body), as_json=as_json)
