"""What a refused run may be instead: the smallest changes that would pass, each with the command that makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from client.cli.planned_run.charge_file import DP_SGD, Changes
from client.cli.planned_run.plan_answer import blocked_lines, changes_that_pass
from client.http.problems import Refused, Unreachable
from ledger.command_line.shell_commands import epsilon_command
from ledger.domain.exit_codes import ExitCode
from ledger.domain.outcomes import Code

if TYPE_CHECKING:
    from client.service.answers import Answer
    from client.service.service import Service
    from ledger.wire.canonical_json import Object


@dataclass(frozen=True, slots=True)
class Attempt:
    """A command as it was typed, of which a refusal says how it would pass.

    Attributes:
        words: the command with its profile. file: the charge's. changes: its options that change the file.
        partitions: as the file or the options name them, ranges by their names.
        body: of the charge, with its ranges resolved.
        more: its other options.
    """

    words: Sequence[str | Path]
    file: Path
    changes: Changes
    partitions: Sequence[str]
    body: Object
    more: Sequence[str | Path] = ()

    def command(self, changed: Changes) -> str:
        """The command with other changes."""
        given: list[str | Path] = ["--contract", changed.contract] if changed.contract else []
        if changed.deadline is not None:
            given += ["--deadline", changed.deadline.strftime("%Y-%m-%dT%H:%M:%SZ")]
        return epsilon_command(*self.words, self.file, *given, *changed.words(), *self.more)

    @property
    def may_change_plan(self) -> bool:
        """Whether the command's options change its kind of plan."""
        plan = self.body.get("plan")
        return isinstance(plan, dict) and plan.get("kind") == DP_SGD


def named_partitions(body: Object) -> list[str]:
    """The partitions that a charge's body names, before its ranges are resolved."""
    named = body.get("partitions")
    return [ref for ref in named if isinstance(ref, str)] if isinstance(named, list) else []


def advised(service: Service, send: Callable[[], Answer], attempt: Attempt) -> Answer:
    """The answer; a refusal says which smallest changes would pass, with the command for each. Raises: Refused."""
    body, contract = attempt.body, attempt.changes.contract
    try:
        return send()
    except Refused as refused:
        if refused.exit_code == ExitCode.REFUSED:
            refused.advice = _advice(service, attempt)
        if (digest := body.get("contract")) != contract:
            refused.detail = refused.detail.replace(f"contract {digest}", f"contract {contract} ({digest})")
        if refused.code == Code.CONFLICT.word and "clean_room" in body and "key is in use" in refused.detail:
            refused.detail = f"{attempt.file}: clean_room: {refused.detail}"
            refused.next_step = f"Nothing was recorded: leave clean_room out of {attempt.file}, and new keys are made."
        raise


def _advice(service: Service, attempt: Attempt) -> tuple[str, ...]:
    try:
        report = service.plan_report(attempt.body)
    except (Refused, Unreachable):
        # The refusal itself is what has to be reported.
        return ()
    lines = [*blocked_lines(report)]
    for sentence, changed in changes_that_pass(report, attempt.changes, attempt.partitions):
        lines.append(f"would pass: {sentence}")
        changes_plan = (changed.noise, changed.steps) != (attempt.changes.noise, attempt.changes.steps)
        possible = attempt.may_change_plan or not changes_plan
        lines.append(f"  {attempt.command(changed)}" if possible else f"  edit {attempt.file}")
    return tuple(lines)
