"""``epsilon policy``, what asks a service: publish a policy, show it, order an account's reset."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.service_command import (
    AsJson,
    CommandId,
    DryRun,
    ProfilePath,
    faults_told,
    fresh_id,
    moment_of,
    print_rows,
    shown,
    submit,
    tell,
)

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Object

app = typer.Typer(no_args_is_help=True, help="An SRO's policies: publish one, and what one would change.")


@app.callback()
def _group() -> None:
    """An SRO's policies."""


@app.command(
    epilog="""
Examples:

  epsilon policy publish sro.toml policy.yaml

  epsilon policy publish sro.toml policy-2.json --dry-run --json

What it would change is shown first, and confirmed on a terminal. Elsewhere a policy that changes what stands, an open
partition, a contract, an account or a pending charge, needs --yes.
"""
)
def publish(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    document: Annotated[Path, typer.Argument(metavar="FILE", help="A policy or its next version, JSON or YAML.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Publish without being asked.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would change, and nothing else.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a policy would change; then sign it and enter it: it binds from the time it names on."""
    from client.profile.profile import Profile
    from client.service.detached_signatures import read_document

    name = fresh_id("policy", id)
    with faults_told(as_json=as_json, id=name):
        known, data = Profile.load(profile), read_document(document)
        signer = known.signer()
        with known.open() as service:
            impact = service.policy_impact(data)
            if dry_run:
                _show_impact(impact, as_json=as_json, to_stderr=False)
                return
            if not as_json:
                _show_impact(impact, as_json=False, to_stderr=True)
            if not yes:
                _confirm(impact)
            stored = service.put_document(signer, data)
            body: Object = {"document": stored.document, "signatures": [stored.signature]}
            # It replaces what it was shown against: were another published meanwhile, this one is refused.
            replaces = impact.get("replaces")
            tag = replaces if isinstance(replaces, str) else None
            answer = service.submit(signer, known.actor, "policy", body, name, replaces=tag)
        tell(answer, f"policy {stored.document}", as_json=as_json, extra={"impact": impact})


def _show_impact(impact: Object, *, as_json: bool, to_stderr: bool) -> None:
    from rich.console import Console

    from client.cli.impact import print_impact

    if as_json:
        typer.echo(json.dumps(impact, indent=2))
    else:
        print_impact(impact, Console(stderr=to_stderr))


def _confirm(impact: Object) -> None:
    """Raises: Malformed, unless somebody says yes, or nothing that stands changes and nobody is there to ask."""
    from client.cli.impact import touched
    from ledger.wire.malformed import Malformed

    if sys.stdin.isatty():
        # Not the library's own question, which would put a blank on stdout.
        typer.echo("Publish it? [y/N] ", nl=False, err=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise Malformed("--yes", "was not said: the policy is not published")
    elif touched(impact):
        raise Malformed("--yes", "must be given where nobody can be asked: the policy changes what stands already")


@app.command(
    epilog="""
Examples:

  epsilon policy show bank-a.toml health

  epsilon policy show bank-a.toml health --json
"""
)
def show(
    profile: ProfilePath,
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="The domain that it governs.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show every version of a domain's policy: from when on it binds, who issued it, and its document."""
    from client.profile.profile import Profile

    with faults_told(as_json=as_json), Profile.load(profile).open() as service:
        found = service.policy(domain)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    versions = found.get("versions")
    rows = [one for one in versions if isinstance(one, dict)] if isinstance(versions, list) else []
    print_rows(("version", "effective", "issuer", "document", "entry"), [_row(one) for one in rows])


def _row(version: Object) -> tuple[str, ...]:
    told = {**version, "effective": moment_of(version.get("effective"))}
    return tuple(shown(told.get(name)) for name in ("version", "effective", "issuer", "document", "index"))


@app.command(
    epilog="""
Examples:

  epsilon policy decree sro.toml did:web:hospital.example/scans/2026-q4 lineage:3 --reason "order 12 of 2026"

  epsilon policy decree sro.toml did:web:hospital.example/scans/2026-q4 global --reason "order 13 of 2026" --json
"""
)
def decree(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="provider/dataset/partition.")],
    holder: Annotated[str, typer.Argument(metavar="HOLDER", help="global or lineage:N, as `epsilon account` has it.")],
    reason: Annotated[str, typer.Option(help="Why, on record for ever.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Reset an account by the SRO's order: its lifetime odometer keeps counting, and the entry says who and why."""
    body: Object = {"holder": holder, "partition": partition, "reason": reason}
    submit(profile, "decree", body, id, as_json=as_json, dry_run=dry_run)
