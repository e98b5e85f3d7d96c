"""``epsilon model``: what a finished model was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.cli.arguments import ChargeId
from client.cli.command_group import CommandGroup
from client.cli.output import cell, epsilon_lines, objects, print_rows
from ledger.command_line.printable_text import say

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Json, Object

group = CommandGroup("model", "Models: what was taken of whose data for one, and what it cost.")


def print_stages(shown: Object) -> None:
    """A table of stages and partitions, and the run's own ε below it."""
    model = shown["model"] or "none: its post names no model"
    say(f"Charge {shown['charge']}, {shown['state']}; model {model}")
    rows = [
        (
            cell(stage["stage"]),
            cell(stage["name"] or stage["kind"]),
            cell(stage["kind"]),
            ", ".join(_columns_of(stage, price["partition"])),
            cell(price["partition"]),
            cell(price["epsilon"]) if price["epsilon"] is not None else "no finite one",
            "not posted yet" if stage["began"] is None else ("yes" if stage["began"] else "no"),
        )
        for stage in objects(shown["stages"])
        for price in objects(stage["of"])
    ]
    print_rows(("stage", "name", "kind", "columns", "of", "ε alone", "began"), rows, fold_from=3)
    for line in epsilon_lines(shown["run_epsilon"]):
        say(f"All together, composed once: {line}")


def _columns_of(stage: Object, partition: Json) -> list[str]:
    """What a stage read of one partition, by its own names, and what a model gave."""
    sources = objects(stage["sources"])
    owned = {cell(source["column"]) for source in sources}
    columns = stage["columns"] if isinstance(stage["columns"], list) else []
    own = [
        cell(source["column"]) if source["name"] == source["column"] else f"{source['column']} ({source['name']})"
        for source in sources
        if source["partition"] == partition
    ]
    return [*own, *(cell(column) for column in columns if cell(column) not in owned)]


@group.read_command("auditor.toml run-1", "hospital.toml run-1 --json", table=print_stages)
def show(service: Service, charge: ChargeId) -> Object:
    """Show what a charge's model was made of: which statistics, training and metrics, of whose data, at which ε."""
    from client.service.charged_stages import charged_stages

    return charged_stages(service, charge)
