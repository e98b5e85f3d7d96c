"""``epsilon key``: an organisation's signing key, its registration, and data keys handed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.service_command import AsJson, CommandId, DryRun, ProfilePath, faults_told, read_object, submit

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Object

app = typer.Typer(no_args_is_help=True, help="Signing keys made and registered; data keys handed over.")


@app.callback()
def _group() -> None:
    """Keys."""


@app.command(
    epilog="""
Examples:

  epsilon key new bank-a.pem

  epsilon key new bank-a.pem > bank-a.jwk
"""
)
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key goes; never one that is there.")],
) -> None:
    """Make a signing key (Ed25519), readable by its owner alone, and print its public half as a JWK."""
    from client.keys.signer import Signer

    with faults_told():
        signer = Signer.generate()
        signer.save(file)
    typer.echo(json.dumps(signer.jwk))
    typer.echo(f"The private key {signer.key_id} is in {file}: keep it, nobody can make it again.", err=True)


@app.command(
    epilog="""
Examples:

  epsilon key claim bank-a.toml --name "Bank A" --role TDC > bank-a.json

  epsilon key claim hospital.toml --name "A hospital" --role TDP > hospital.json
"""
)
def claim(
    profile: ProfilePath,
    name: Annotated[str, typer.Option(help="The organisation's name, for people.")],
    role: Annotated[list[str], typer.Option(help="SRO, TSO, TDP, TDC or AUDITOR. May be repeated.")],
) -> None:
    """Write what an SRO registers an organisation by: name, roles, public key, and proof that it has the key."""
    from client.profile.profile import Profile
    from ledger.domain.commands import Command, read_body
    from ledger.wire import canonical_json as c

    with faults_told():
        known = Profile.load(profile)
        signer = known.signer()
        said: Object = {"key": signer.jwk, "name": name, "organisation": known.actor, "roles": [*role]}
        body: Object = {**said, "possession": signer.sign(c.dump(said))}
        read_body(Command("organisation", "claim", known.actor, signer.key_id, body))
    typer.echo(json.dumps(body, indent=2))


@app.command(
    epilog="""
Examples:

  epsilon key register sro.toml bank-a.json

  epsilon key register sro.toml sro.json

The first entry of a book is its SRO, which registers itself.
"""
)
def register(
    profile: ProfilePath,
    claimed: Annotated[Path, typer.Argument(metavar="CLAIM", help="What `epsilon key claim` wrote.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Register an organisation with its signing key and roles, as the SRO."""
    with faults_told(as_json=as_json):
        body = read_object(claimed)
    submit(profile, "organisation", body, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon key grant hospital.toml release-run-1

  epsilon key grant hospital.toml release-run-1 --data-key did:web:hospital.example/digits/2026-q1=digits.key
"""
)
def grant(
    profile: ProfilePath,
    release: Annotated[str, typer.Argument(help="The id of the key release, as the clean room tells it.")],
    data_key: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION=FILE", help="A file of 32 bytes, sealed to the clean room. May be repeated."),
    ] = None,
) -> None:
    """Check a key release against the log's own key, and seal data keys to the clean room it names.

    With no data key it prints what is granted, as JSON: partitions, sealing key, and until when.
    """
    from time import time_ns

    from client.profile.profile import Profile
    from client.service.key_grant import check, fetch, read_data_keys

    with faults_told():
        known = Profile.load(profile)
        actor = known.actor
        with known.open() as service:
            charge, proven = fetch(service, release)
        granted = check(charge, proven, known.log, actor, time_ns() // 1_000_000)
        given = read_data_keys(data_key or ())
        typer.echo(json.dumps(granted.seal(given) if given else granted.to_json(), indent=2))
