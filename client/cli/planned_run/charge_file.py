"""The file of a charge, completed and changed from the command line; it holds no keys, so it can be used again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from client.cli.arguments import milliseconds, read_object
from client.cli.error_report import BODY
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed

Body = Annotated[Path, typer.Argument(metavar="CHARGE", help="A run: its partitions and plan, in JSON.")]
Contract = Annotated[str, typer.Option("--contract", metavar="CONTRACT", help="A contract's file or SHA-256.")]
Noise = Annotated[str, typer.Option("--noise", metavar="NUMBER", help="A noise multiplier, instead of the plan's.")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Steps, instead of the plan's.")]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="REF", help="A partition, instead of the file's. May be repeated."),
]
DP_SGD: Final = "dp_sgd"
"""The kind of plan that options change."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What the command line says beside the file; empty where it says nothing."""

    contract: str = ""
    deadline: datetime | None = None
    noise: str = ""
    steps: int | None = None
    partitions: Sequence[str] = ()

    def words(self) -> list[str]:
        """Options that change the plan, as they are typed."""
        options = [*(("--noise", self.noise) if self.noise else ())]
        options += ["--steps", str(self.steps)] if self.steps else []
        return options + [word for ref in self.partitions for word in ("--partition", ref)]

    def typed(self, file: Path) -> dict[str, str]:
        """How the user typed each field that the service names: as an option, or in the file."""
        options = {
            "body.plan.noise_multiplier": ("--noise", self.noise),
            "body.plan.steps": ("--steps", self.steps),
            "body.partitions": ("--partition", self.partitions),
        }
        own = {"id": "--id", "key": "--room", "body.contract": "--contract", "body.deadline": "--deadline"}
        return {**own, **{field: word for field, (word, given) in options.items() if given}, BODY: str(file)}


def read_charge(path: Path, changes: Changes) -> Object:
    """A charge's body without what it lacks still. Raises: Malformed, OSError."""
    from client.service.detached_signatures import digest_of

    body = read_object(path)
    given: Object = {}
    if changes.contract:
        try:
            given["contract"] = digest_of(changes.contract)
        except Malformed as error:
            raise Malformed(error.field.replace("document", "--contract"), error.rule) from None
    if changes.deadline is not None:
        given["deadline"] = milliseconds(changes.deadline)
    for field, value in given.items():
        if body.get(field, value) != value:
            raise Malformed(f"{path}: {field}", f"says another {field} than --{field}")
    body |= given
    if changes.noise or changes.steps:
        body["plan"] = _changed_plan(path, body.get("plan"), changes)
    if changes.partitions:
        body["partitions"] = [*changes.partitions]
    if "contract" not in body:
        raise Malformed("--contract", "is missing: name the contract's file or its SHA-256")
    return body


def _changed_plan(path: Path, plan: object, changes: Changes) -> Object:
    if not isinstance(plan, dict) or plan.get("kind") != DP_SGD:
        raise Malformed("--noise" if changes.noise else "--steps", f"changes a plan of kind {DP_SGD!r}: edit {path}")
    new: Object = {**plan}
    if changes.noise:
        new["noise_multiplier"] = changes.noise
    if changes.steps:
        new["steps"] = changes.steps
    return new
