"""``epsilon dataset``: what a TDP offers, its partitions with their budgets, and what a TSO recommends for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.service_command import (
    AsJson,
    CommandId,
    DryRun,
    ProfilePath,
    faults_told,
    read_object,
    submit,
    submit_document,
)
from client.cli.service_command import show as show_one

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Object

app = typer.Typer(no_args_is_help=True, help="A TDP's datasets and partitions, and a TSO's recommendations for them.")

_Document = Annotated[Path, typer.Argument(metavar="FILE", help="The document, JSON or YAML.")]
_Ref = Annotated[str, typer.Argument(metavar="PARTITION", help="provider/dataset/partition.")]


@app.callback()
def _group() -> None:
    """Datasets."""


@app.command(
    epilog="""
Examples:

  epsilon dataset register hospital.toml dataset.yaml

  epsilon dataset register hospital.toml dataset.json --json
"""
)
def register(
    profile: ProfilePath,
    document: _Document,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Sign a dataset's description and enter it; only then can a partition of it be opened."""
    submit_document(profile, "dataset", document, (), id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon dataset recommend tso.toml recommendation.yaml

  epsilon dataset recommend tso.toml recommendation-2.json --json
"""
)
def recommend(
    profile: ProfilePath,
    document: _Document,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Sign a recommendation of a budget and enter it: a budget above it needs a reason."""
    submit_document(profile, "recommendation", document, (), id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon dataset open-partition hospital.toml partition.json

  epsilon dataset open-partition hospital.toml partition.json --id scans-2026-q4 --json
"""
)
def open_partition(
    profile: ProfilePath,
    body: Annotated[Path, typer.Argument(metavar="FILE", help="The partition with its budget and rule, in JSON.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Open a partition with a budget of its own, fixed for its life."""
    with faults_told(as_json=as_json):
        known = read_object(body)
    submit(profile, "partition", known, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon dataset retire hospital.toml did:web:hospital.example/scans/2026-q4

  epsilon dataset retire hospital.toml did:web:hospital.example/scans/2026-q4 --json
"""
)
def retire(
    profile: ProfilePath,
    partition: _Ref,
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Retire a partition: what is pending settles, nothing new is taken, and its loss stays on record."""
    submit(profile, "retirement", {"partition": partition}, id, as_json=as_json, dry_run=dry_run)


@app.command(
    epilog="""
Examples:

  epsilon dataset show bank-a.toml

  epsilon dataset show bank-a.toml did:web:hospital.example/scans/2026-q4 --json
"""
)
def show(
    profile: ProfilePath,
    partition: Annotated[
        str, typer.Argument(metavar="PARTITION", help="One partition; all of them if not given.")
    ] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Show the partitions of datasets, or one with its rule's terms; `epsilon account` tells what is used of them."""
    from client.profile.profile import Profile

    with faults_told(as_json=as_json):
        with Profile.load(profile).open() as service:
            found = [service.partition(ref) for ref in ([partition] if partition else service.partitions())]
        if partition:
            show_one(found[0], as_json=as_json)
        elif as_json:
            typer.echo(json.dumps(found, indent=2))
        else:
            _print(found)


def _print(found: list[Object]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("partition", "ε", "δ", "rule", "unit", "records at least", "state")
    table.columns[0].overflow = "fold"
    for one in found:
        budget, terms = one["budget"], one["terms"]
        assert isinstance(budget, dict)
        assert isinstance(terms, dict)
        state = "retired" if one["retired"] else "open"
        told = (budget["epsilon"], budget["delta"], terms["kind"], one["unit"], one["records"], state)
        table.add_row(str(one["partition"]), *map(str, told))
    Console().print(table)
