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
from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported
from client.cli.output import print_json, print_keys, print_outcome
from client.cli.wording.organisation_names import learn_names
from client.cli.wording.outcome_names import subject_of

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

group = CommandGroup("key", "Create, register, rotate, revoke, suspend and recover signing keys; grant data keys.")
_Keys = Annotated[list[str], typer.Argument(metavar="KEY...", help="Ids of keys, or files of public keys (JWK).")]
Reason = Annotated[str, typer.Option(help="Why; recorded permanently.")]
Organisation = Annotated[str, typer.Argument(metavar="DID", help="The organisation.")]


@group.command("bank-a.pem", "bank-a.pem > bank-a.jwk")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the private key.")],
) -> None:
    """Generate a signing key (Ed25519), readable by its owner alone, and print its public half as a JWK."""
    from client.keys.signer import Signer

    with errors_reported():
        signer = Signer.generate()
        signer.save(file)
    typer.echo(f"Private key written to {file} (key ID {signer.key_id}). Back it up: it cannot be recovered.", err=True)
    public = json.dumps(signer.jwk)
    try:
        typer.echo(public)
    except OSError:
        # The private key is there, and no command prints the public half of one.
        typer.echo(f"Its public half could not be written where it was to go: {public}", err=True)
        raise


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
    from client.service.key_grant_check import check, fetch, fetch_openings, read_data_keys

    with errors_reported():
        caller = Profile.load(profile)
        actor = caller.actor
        keys = read_data_keys(data_key or ())
        with caller.open() as service:
            charge, proven = fetch(service, release, caller.log)
            openings = fetch_openings(service, charge, keys, caller.log)
        granted = check(charge, proven, caller.log, actor, time_ns() // 1_000_000, openings)
        sealed = granted.seal(keys) if keys else granted.to_json()
    print_json(sealed)


@group.read_command("sro.toml did:web:bank-a.example", "bank-a.toml did:web:bank-a.example --json", table=print_keys)
def show(service: Service, organisation: Organisation) -> list[Object]:
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
    send_command(profile, "key_rotation", body, name, dry_run=dry_run, as_json=as_json)


@group.signed_command(
    "key_revocation",
    "bank-a.toml bank-a.jwk --reason 'a laptop was stolen'",
    "sro.toml zuewJJ9_4S-CCY1--JrdurbmS9iqD3hpB-mb18NUjTw --reason 'a laptop was stolen' --id theft-1",
    note="The answer names the pending runs that are touched. Those without data keys get none: void them.",
)
def revoke(key: _Keys, *, reason: Reason) -> Object:
    """Revoke signing keys for good: from the entry on they sign nothing. An SRO may name those of others."""
    from client.service.key_bodies import key_id_of

    return {"keys": [*map(key_id_of, key)], "reason": reason}


@group.signed_command(
    "key_suspension",
    "bank-a.toml bank-a.jwk --reason 'a laptop is missing'",
    "sro.toml zuewJJ9_4S-CCY1--JrdurbmS9iqD3hpB-mb18NUjTw --reason 'an inquiry' --json",
)
def suspend(key: _Keys, *, reason: Reason) -> Object:
    """Suspend signing keys: they sign nothing until they are resumed."""
    from client.service.key_bodies import key_id_of

    return {"keys": [*map(key_id_of, key)], "reason": reason, "suspended": True}


@group.signed_command(
    "key_suspension",
    "bank-a.toml bank-a.jwk --reason 'the laptop was found'",
    "sro.toml zuewJJ9_4S-CCY1--JrdurbmS9iqD3hpB-mb18NUjTw --reason 'the inquiry is over' --json",
)
def resume(key: _Keys, *, reason: Reason) -> Object:
    """Resume suspended keys: by who suspended them, or an SRO."""
    from client.service.key_bodies import key_id_of

    return {"keys": [*map(key_id_of, key)], "reason": reason, "suspended": False}


def send_command(  # noqa: PLR0913 - what is sent and how it is shown
    profile: Path, kind: str, body: Object, name: str, *, dry_run: bool, as_json: bool
) -> None:
    """Sign and send a command under the id ``name``, and print its outcome."""
    from client.profile.profile import Profile

    with errors_reported(as_json=as_json, id=name):
        caller = Profile.load(profile)
        with caller.open() as service:
            answer = service.submit(caller.signer(), caller.actor, kind, body, name, dry_run=dry_run)
            learn_names(service, body)
    print_outcome(answer, subject_of(kind, body), as_json=as_json)
