"""``epsilon contract``: parties on different machines sign the same bytes, one of them enters it for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from client.cli.service_command import AsJson, CommandId, DryRun, ProfilePath, faults_told, submit, submit_document
from client.cli.service_command import show as show_one

app = typer.Typer(no_args_is_help=True, help="Contracts between TDPs and a TDC: sign, enter, revoke.")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The contract, JSON or YAML: the same bytes for all.")]
_Contract = Annotated[
    str, typer.Argument(metavar="CONTRACT", help="The file that was entered, or the SHA-256 of its bytes.")
]


@app.callback()
def _group() -> None:
    """Contracts."""


@app.command(
    epilog="""
Examples:

  epsilon contract sign hospital.toml contract.json > hospital.jws

  epsilon contract sign hospital.toml contract.json --json

Nothing is sent. `epsilon document check` tells before whether the contract is well-formed.
"""
)
def sign(profile: ProfilePath, document: _File, *, as_json: AsJson = False) -> None:
    """Sign a contract's bytes with the profile's key, as a detached JWS for whoever enters the contract."""
    from client.profile.profile import Profile
    from client.service.detached_signatures import read_document, signed

    with faults_told(as_json=as_json):
        told = signed(Profile.load(profile).signer(), read_document(document))
    typer.echo(json.dumps(told, indent=2) if as_json else told["signature"])
    typer.echo(f"Signed contract {told['document']} with the key {told['key_id']}; nothing was sent.", err=True)


@app.command(
    epilog="""
Examples:

  epsilon contract enter bank-a.toml contract.json --signature hospital.jws

  epsilon contract enter bank-a.toml contract-2.json --signature hospital.jws --signature clinic.jws --json

A contract that is entered again with the next version amends it: all parties of both versions sign.
"""
)
def enter(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    document: _File,
    signature: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Another party's signature, as `contract sign` wrote it. May be repeated."),
    ] = None,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Sign a contract, or its next version, and enter it with the signatures of all other parties."""
    submit_document(profile, "contract", document, signature or (), id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon contract revoke hospital.toml contract.json

  epsilon contract revoke hospital.toml 5d41402abc4b2a76b9719d911017c592ae1d1f3e4b8b9a4f0c6e7d8a9b0c1d2e --json
"""
)
def revoke(
    profile: ProfilePath,
    contract: _Contract,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """End a contract for good as one of its TDPs: nothing new is charged under it."""
    from client.service.detached_signatures import digest_of

    with faults_told(as_json=as_json):
        named = digest_of(contract)
    submit(profile, "revocation", {"contract": named}, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon contract show bank-a.toml contract.json

  epsilon contract show bank-a.toml 5d41402abc4b2a76b9719d911017c592ae1d1f3e4b8b9a4f0c6e7d8a9b0c1d2e --json
"""
)
def show(profile: ProfilePath, contract: _Contract, *, as_json: AsJson = False) -> None:
    """Show a contract as it stands: parties, dates, version, and how many runs it has had."""
    from client.profile.profile import Profile
    from client.service.detached_signatures import digest_of

    with faults_told(as_json=as_json):
        named = digest_of(contract)
        with Profile.load(profile).open() as service:
            show_one(service.contract(named), as_json=as_json)
