"""``epsilon lineage``: what has become of organisations, and what one has learnt from another."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.completion import charges
from client.cli.service_command import (
    AsJson,
    CommandId,
    DryRun,
    ProfilePath,
    faults_told,
    milliseconds,
    moment_of,
    print_rows,
    shown,
    submit,
)

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Object

app = typer.Typer(no_args_is_help=True, help="Mergers, acquisitions, collusion, splits, and models handed over.")

_Into = Annotated[str, typer.Argument(metavar="DID", help="The organisation that goes on.")]
_Others = Annotated[list[str], typer.Argument(metavar="DID...", help="Organisations, each by its DID.")]
_Charge = Annotated[
    str,
    typer.Argument(metavar="CHARGE", help="The id of the charge whose model it is.", autocompletion=charges),
]
_Giver = Annotated[str, typer.Option(metavar="DID", help="Who had the model; who was charged for it, if not given.")]


@app.callback()
def _group() -> None:
    """Lineage."""


@app.command(
    epilog="""
Examples:

  epsilon lineage merge sro.toml did:web:bank-ab.example did:web:bank-a.example did:web:bank-b.example

  epsilon lineage merge sro.toml did:web:bank-ab.example did:web:bank-a.example did:web:bank-b.example --proposed

`epsilon plan merger` tells beforehand what it would make of every account.
"""
)
def merge(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    organisation: _Into,
    parents: _Others,
    proposed: Annotated[bool, typer.Option("--proposed", help="Asked for beforehand: it may be denied.")] = False,  # noqa: FBT002 - an option
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Enter a merger: one organisation goes on, and knows all that its parents knew."""
    body: Object = {"organisation": organisation, "parents": [*parents], **({"proposed": True} if proposed else {})}
    submit(profile, "merger", body, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon lineage acquire sro.toml did:web:bank-a.example did:web:fintech.example

  epsilon lineage acquire sro.toml did:web:bank-a.example did:web:fintech.example --json
"""
)
def acquire(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    organisation: _Into,
    acquired: _Others,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Enter an acquisition: the acquirer knows all that the acquired knew."""
    submit(
        profile,
        "acquisition",
        {"acquired": [*acquired], "organisation": organisation},
        id,
        as_json=as_json,
        dry_run=dry_run,
    )


@app.command(
    epilog="""
Examples:

  epsilon lineage collude sro.toml did:web:bank-a.example did:web:bank-b.example --since 2026-03-01T00:00:00Z

  epsilon lineage collude sro.toml did:web:bank-a.example did:web:bank-b.example --since 2026-03-01T00:00:00Z --json
"""
)
def collude(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    organisations: _Others,
    since: Annotated[
        datetime, typer.Option(formats=["%Y-%m-%dT%H:%M:%SZ"], metavar="TIME", help="Since when, in UTC.")
    ],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Enter a collusion that was found: they, and whoever descends from them, are one lineage since then."""
    body: Object = {"effective": milliseconds(since), "organisations": [*organisations]}
    submit(profile, "collusion", body, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon lineage split sro.toml did:web:bank-a.example did:web:bank-a-cards.example

  epsilon lineage split sro.toml did:web:bank-a.example did:web:bank-a-cards.example --json
"""
)
def split(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    organisation: Annotated[str, typer.Argument(metavar="DID", help="The organisation that is left.")],
    child: Annotated[str, typer.Argument(metavar="CHILD", help="The organisation that leaves, by its DID.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Enter a split: the child keeps all that the organisation knew until now."""
    submit(profile, "split", {"child": child, "organisation": organisation}, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon lineage transfer bank-a.toml run-1 did:web:bank-b.example

  epsilon lineage transfer sro.toml run-1 did:web:bank-c.example --giver did:web:bank-b.example
"""
)
def transfer(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    charge: _Charge,
    recipient: Annotated[str, typer.Argument(metavar="DID", help="Who gets the model.")],
    giver: _Giver = "",
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Enter the handing over of a charge's model, and of what its giver knew."""
    body: Object = {"charge": charge, "recipient": recipient, **({"giver": giver} if giver else {})}
    submit(profile, "transfer", body, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon lineage publish sro.toml run-1

  epsilon lineage publish sro.toml run-1 --giver did:web:bank-b.example --json
"""
)
def publish(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    charge: _Charge,
    giver: _Giver = "",
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Enter that a charge's model was made public: everybody, present and to come, knows what its giver knew."""
    body: Object = {"charge": charge, **({"giver": giver} if giver else {})}
    submit(profile, "publication", body, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon lineage declare sro.toml did:web:bank-a.example did:web:bank-b.example --epsilon 4

  epsilon lineage declare sro.toml did:web:bank-a.example did:web:bank-b.example --epsilon 4 --json

`epsilon plan coalitions` lists which coalitions would exceed a cap.
"""
)
def declare(  # noqa: PLR0913 - each an argument
    profile: ProfilePath,
    members: _Others,
    epsilon: Annotated[str, typer.Option(help="What all of them together may learn, at each partition's δ.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Declare a coalition: from now on its members stay under one cap together."""
    submit(profile, "coalition", {"epsilon": epsilon, "members": [*members]}, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon lineage show sro.toml did:web:bank-a.example

  epsilon lineage show bank-a.toml did:web:bank-a.example --json
"""
)
def show(
    profile: ProfilePath,
    organisation: Annotated[str, typer.Argument(metavar="DID", help="The organisation to start from.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show where an organisation stands and all that its arrows reach: nodes, who stands there, and what they know."""
    from client.profile.profile import Profile

    with faults_told(as_json=as_json), Profile.load(profile).open() as service:
        found = service.lineage(organisation)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    nodes = found.get("nodes")
    rows = [_row(one) for one in nodes if isinstance(one, dict)] if isinstance(nodes, list) else []
    print_rows(("node", "kind", "organisation", "members", "since", "knows of"), rows)
    if found.get("complete") is not True:
        typer.echo(f"These are the nearest {len(rows)}; there are more.", err=True)


def _row(node: Object) -> tuple[str, ...]:
    members, parents = node.get("members"), node.get("parents")
    return (
        shown(node.get("index")),
        shown(node.get("kind")),
        shown(node.get("organisation")),
        ", ".join(map(str, members)) if isinstance(members, list) else "",
        moment_of(node.get("time")),
        ", ".join(_arrow(one) for one in parents if isinstance(one, dict)) if isinstance(parents, list) else "",
    )


def _arrow(parent: Object) -> str:
    """A node whose knowledge comes along: all of it, or what it had when the log had so many entries."""
    before = parent.get("before")
    return f"{parent.get('node')}" if before is None else f"{parent.get('node')} before entry {before}"
