"""``epsilon dataset``: a TDP's datasets and partitions with their budgets, and a TSO's recommendations for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from client.cli.arguments import PartitionRef, read_object
from client.cli.command_group import CommandGroup
from client.cli.output import print_fields, print_rows
from client.service.command_documents import BodyWithDocuments, SignedDocument
from ledger.command_line.printable_text import say

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

group = CommandGroup("dataset", "A TDP's datasets and partitions, and a TSO's recommendations for them.")

_NO_MEMBERSHIP: Final = (
    "states no membership (which partition a person is in). Under a policy that asks for commitments no partition of "
    "this dataset opens, and a dataset is described once."
)
_Document = Annotated[Path, typer.Argument(metavar="FILE", help="The document, JSON or YAML.")]


@group.signed_command("dataset", "hospital.toml dataset.yaml", "hospital.toml dataset.json --json")
def register(document: _Document) -> SignedDocument:
    """Sign and register a dataset's description; its partitions can be opened after that."""
    from client.service.detached_signatures import read_document, require_kind

    data = read_document(document)
    require_kind(document, data, "dataset")
    # By its text, since the service parses it: it is described once, and no later command can add what is missing.
    if b"membership" not in data:
        say(f"Warning: {document} {_NO_MEMBERSHIP}", err=True)
    return SignedDocument(document)


@group.signed_command("recommendation", "tso.toml recommendation.yaml", "tso.toml recommendation-2.json --json")
def recommend(document: _Document) -> SignedDocument:
    """Sign and record a recommended budget for a dataset: a budget above it needs a reason."""
    return SignedDocument(document)


@group.signed_command(
    "partition",
    "hospital.toml partition.json --commitments 2026-q4/share/commitments-1.bin",
    "hospital.toml partition.json --id scans-2026-q4 --json",
)
def open_partition(
    body: Annotated[Path, typer.Argument(metavar="FILE", help="The partition with its budget and rule, in JSON.")],
    *,
    commitments: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Commitments, as `dataset seal` wrote them. May be repeated."),
    ] = None,
) -> Object | BodyWithDocuments:
    """Open a partition with a budget of its own, fixed for its life."""
    if not commitments:
        return read_object(body)
    committed = sum(map(_commitments_in, commitments))
    partition = read_object(body)
    records = partition.get("records")
    if isinstance(records, int) and records < committed:
        planned = f"records is {records}, and every run will be planned for so many"
        say(f"Warning: {body}: {planned}; the commitments are to {committed} different records.", err=True)
    return BodyWithDocuments(partition, "commitments", commitments)


def _commitments_in(path: Path) -> int:
    """How many a file has. Raises: Malformed, for a file that would be refused, and the refusal recorded; OSError."""
    from client.dataset_files.record_commitments import read_values
    from client.service.detached_signatures import read_document
    from ledger.wire.malformed import Malformed

    try:
        return len(read_values(read_document(path)))
    except Malformed as error:
        raise Malformed("--commitments", f"{path}: {error.rule}") from None


@group.signed_command(
    "retirement",
    "hospital.toml did:web:hospital.example/scans/2026-q4",
    "hospital.toml did:web:hospital.example/scans/2026-q4 --json",
)
def retire(partition: PartitionRef) -> Object:
    """Retire a partition: pending charges settle, new ones are refused, and its loss stays on record."""
    return {"partition": partition}


def _print_partitions(found: Any) -> None:  # noqa: ANN401 - the service's JSON
    if isinstance(found, dict):
        print_fields(found)
        return
    rows = [
        (
            partition["partition"],
            partition["budget"]["epsilon"],
            partition["budget"]["delta"],
            partition["terms"]["kind"],
            partition["unit"],
            str(partition["records"]),
            str(partition["state"]).replace("_", " "),
        )
        for partition in found
    ]
    print_rows(("partition", "ε", "δ", "rule", "unit", "records at least", "state"), rows)


@group.read_command("bank-a.toml", "bank-a.toml did:web:hospital.example/scans/2026-q4 --json", table=_print_partitions)
def show(
    service: Service,
    partition: Annotated[
        str, typer.Argument(metavar="PARTITION", help="One partition; all of them if not given.")
    ] = "",
) -> Object | list[Object]:
    """Show the partitions of datasets, or one with its rule's terms; `epsilon account` shows the budget used."""
    return service.partition(partition) if partition else [service.partition(ref) for ref in service.partitions()]
