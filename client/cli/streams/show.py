"""``epsilon stream``: a TDP enters a version of a stream, and everyone who may see it reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client.cli.command_group import CommandGroup
from client.cli.output import cell, print_rows, time_text
from client.service.command_documents import SignedDocument
from ledger.command_line.printable_text import say

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

group = CommandGroup("stream", "Streams: datasets whose slices open and retire by themselves.")
_Document = Annotated[Path, typer.Argument(metavar="FILE", help="The document, JSON or YAML.")]


@group.signed_command("stream", "hospital.toml stream.yaml", "hospital.toml stream-2.json --json")
def enter(
    document: Annotated[Path, typer.Argument(metavar="FILE", help="The document, JSON or YAML.")],
) -> SignedDocument:
    """Sign and enter a version of a dataset's stream; what opens there from then on is a slice."""
    return SignedDocument(document)


def _print_stream(found: Any) -> None:  # noqa: ANN401 - the service's JSON
    say(f"{found['provider']}/{found['dataset']}: stream version {found['version']}, a slice each {found['period']}")
    whose = "record" if found["slice"]["unit"] == "record" else "person"
    say(f"  budget of one {whose} ({found['budget_epsilon']}, {found['budget_delta']}): {found['soundness']}")
    say(f"  a slice lives {found['life_days']} days; a run covers at most {found['window_max']} slices")
    say(f"  shown of one {whose} so far, whatever was reset: ε {found['odometer'] or 'beyond the budget'}")
    if found["may_open"]:
        say(f"  may open now: {', '.join(found['may_open'])}")
    windows = [("now", found["newest_window"]), *((time_text(month["at"]), month) for month in found["months"])]
    rows = [_window(when, window) for when, window in windows]
    print_rows(("when", "newest window", "slices", "runs like the last one", "binds"), rows, fold_from=4)
    slices = [
        (
            slice_["period"],
            slice_["status"].replace("_", " "),
            time_text(slice_["closes"])
            + (f" (in {slice_['alert_days']} days or less)" if slice_["alert_days"] else ""),
            cell(slice_["spent"]),
            cell(slice_["odometer"]),
        )
        for slice_ in found["slices"]
    ]
    print_rows(("period", "state", "last charge", "spent", "ε so far"), slices)


def _window(when: str, window: Any) -> tuple[str, ...]:  # noqa: ANN401 - the service's JSON
    name = f"{window['first']}..{window['last']}" if window["slices"] else "none"
    return when, name, str(window["slices"]), cell(window["runs"]), cell(window["binding"])


@group.read_command(
    "bank-a.toml did:web:hospital.example claims",
    "hospital.toml did:web:hospital.example claims --json",
    table=_print_stream,
    note="With --json it has what a calendar shows: each slice with its period, when it closes, and what was spent.",
)
def show(
    service: Service,
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The DID of the dataset's provider.")],
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="The id of the dataset.")],
) -> Object:
    """Show a stream: its windows now and in the coming months, what closes when, what was spent."""
    return service.stream(provider, dataset)
