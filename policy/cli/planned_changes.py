"""The changes that ``epsilon plan run`` makes to a charge's file, and the smallest changes that would pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.command_line.shell_commands import epsilon_command

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Object
    from policy.planning.plan_report import Advice

Epochs = Annotated[str, typer.Option(help="Replace the plan's steps by this many epochs.")]
Noise = Annotated[str, typer.Option(metavar="NUMBER", help="A noise multiplier, instead of the plan's.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps, instead of the plan's.")]
Partitions = Annotated[
    list[str] | None, typer.Option(metavar="REF", help="A partition, instead of the file's. May be repeated.")
]
_DP_SGD: Final = "dp_sgd"


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes to the run on the command line; empty where an option is omitted."""

    epochs: str = ""
    noise: str = ""
    steps: int | None = None
    partitions: Sequence[str] = ()

    def words(self) -> list[str]:
        """The options, as they are typed."""
        options = {"--epochs": self.epochs, "--noise": self.noise, "--steps": self.steps}
        words = [word for option, value in options.items() if value for word in (option, str(value))]
        return words + [word for ref in self.partitions for word in ("--partition", ref)]

    def applied(self, body: Object) -> Object:
        """A charge's body with these changes. Raises: Malformed, if they do not apply to it."""
        from ledger.wire.malformed import Malformed

        if self.epochs and self.steps:
            raise Malformed("--epochs", "sets the steps, as --steps does: leave one of them out")
        new: Object = {**body, **({"partitions": [*self.partitions]} if self.partitions else {})}
        plan = body.get("plan")
        changed = {"--epochs": self.epochs, "--noise": self.noise, "--steps": self.steps}
        for option in (name for name, value in changed.items() if value):
            if not isinstance(plan, dict) or plan.get("kind") != _DP_SGD:
                raise Malformed(option, f"is for a plan of kind {_DP_SGD!r}")
            new = {**new, "plan": self._plan(plan)}
        return new

    def _plan(self, plan: Object) -> Object:
        """Raises: Malformed."""
        from ledger.mechanisms.plan import Plan
        from ledger.wire.exact_numbers import parse_positive
        from ledger.wire.records import convert
        from policy.planning.plan_search import for_epochs

        new: Object = {**plan, **({"noise_multiplier": self.noise} if self.noise else {})}
        if self.steps:
            new["steps"] = self.steps
        if not self.epochs:
            return new
        return for_epochs(convert(Plan, new, "plan"), parse_positive(self.epochs, "--epochs")).to_json()


def named_partitions(body: Object) -> list[str]:
    """The partitions that a charge's body names, before its ranges are resolved."""
    partitions = body.get("partitions")
    return [item for item in partitions if isinstance(item, str)] if isinstance(partitions, list) else []


def passing_lines(
    advice: Advice | None, body: Object, changes: Changes, typed: Sequence[str | Path], options: Mapping[str, object]
) -> Iterator[str]:
    """The checks that no change of the plan passes, and each smallest change that would pass, with its command.

    Args:
        advice: None for a run that would be charged.
        body: the charge's body with the changes, before its ranges are resolved.
        typed: the command with its arguments, and ``options`` its other options; those that are None are left out.
    """
    from ledger.command_line.missing_fields import missing_field
    from ledger.command_line.verbosity import plain

    if advice is None:
        return
    for check in advice.blocked:
        yield f"No noise and no number of steps passes this: {plain(check.text)}"
        yield from missing_field(check.code)
    plan = body.get("plan")
    may_change_plan = isinstance(plan, dict) and plan.get("kind") == _DP_SGD
    words = [word for option, value in options.items() if value is not None for word in (option, str(value))]
    for sentence, changed in _changes_that_pass(advice, changes, named_partitions(body)):
        possible = may_change_plan or changed.partitions != changes.partitions
        command = epsilon_command(*typed, *words, *changed.words()) if possible else f"edit {typed[-1]}"
        yield f"Would pass: {sentence}"
        yield f"  {command}"


def _changes_that_pass(advice: Advice, changes: Changes, partitions: Sequence[str]) -> Iterator[tuple[str, Changes]]:
    from ledger.wire.exact_numbers import format_number

    if advice.noise_multiplier is not None:
        noise = format_number(advice.noise_multiplier)
        yield f"a noise multiplier of at least {noise}", replace(changes, noise=noise)
    if advice.steps is not None:
        yield f"at most {advice.steps} steps", replace(changes, steps=advice.steps, epochs="")
    for swap in advice.partitions:
        refs = tuple(swap.instead if ref == swap.of else ref for ref in partitions)
        yield f"the partition {swap.instead} instead of {swap.of}", replace(changes, partitions=refs)
