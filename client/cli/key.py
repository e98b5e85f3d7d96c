"""``epsilon key``: an organisation's signing key, its registration, and grants of data keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.arguments import ProfilePath, read_object
from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported
from client.cli.output import print_json

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Object

group = CommandGroup("key", "Create and register signing keys; grant data keys.")


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
    from ledger.commands.registry import read_body
    from ledger.domain.command import Command
    from ledger.wire import canonical_json as c

    with errors_reported():
        caller = Profile.load(profile)
        signer = caller.signer()
        claimed: Object = {"key": signer.jwk, "name": name, "organisation": caller.actor, "roles": [*role]}
        body: Object = {**claimed, "possession": signer.sign(c.dump(claimed))}
        read_body(Command("organisation", "claim", caller.actor, signer.key_id, body))
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
