"""``epsilon policy``, an SRO's part: publish a policy, order an account's reset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.asking import AsJson, CommandId, ProfilePath, submit, submit_document

if TYPE_CHECKING:
    from ledger.canonical import Object

app = typer.Typer(no_args_is_help=True, help="An SRO's policies: publish one, and what one would change.")


@app.callback()
def _group() -> None:
    """An SRO's policies."""


@app.command(
    epilog="""
Examples:

  epsilon policy publish sro.toml policy.yaml

  epsilon policy publish sro.toml policy-2.json --id health-2 --json
"""
)
def publish(
    profile: ProfilePath,
    document: Annotated[Path, typer.Argument(metavar="FILE", help="A policy or its next version, JSON or YAML.")],
    id: CommandId = "",  # noqa: A002 - the wire's name
    *,
    as_json: AsJson = False,
) -> None:
    """Sign a policy and enter it: it binds from the time it names on."""
    submit_document(profile, "policy", document, (), id, as_json=as_json)


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
    as_json: AsJson = False,
) -> None:
    """Reset an account by the SRO's order: its lifetime odometer keeps counting, and the entry says who and why."""
    body: Object = {"holder": holder, "partition": partition, "reason": reason}
    submit(profile, "decree", body, id, as_json=as_json)
