"""``epsilon job noise``: plans that keep a job's ε, with independent and with correlated noise; nothing is recorded.

How many bands a job gets is chosen here, one of them allowed, which is DP-SGD: so a job never has correlated noise that
leaves more than independent noise does. It gets bands only where these take a good part of the noise away: they cost a
run its resumption, and what less than that is worth no training showed (docs/correlated_noise.md).

What it prints is a table to paste into the job. A strategy is found by floating-point search, so a job holds its
numbers rather than the wish for them: then every machine that reads it charges and trains by one plan.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.plan import Plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.correlated.plan_proposals import (
    Proposal,
    check_bands,
    chosen,
    correlated,
    independent,
    proposals,
)
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.job.privacy_target import NO_CLIPPING, PrivacyTarget
from trainer_adapter.session.noise_choice import choose_plan
from trainer_adapter.session.protocol import consumer_service

_NO_TARGET: Final = "is missing: the job states its plan, and what keeps an ε is found for a job that states its ε"


@dataclass(frozen=True, slots=True)
class NoiseReport:
    """What was found, independent noise first; ``named`` if then only the number of bands that was requested."""

    job: str
    found: tuple[Proposal, ...]
    named: bool = False

    @property
    def least(self) -> Proposal:
        """The one of least error; of several the one with the fewest bands."""
        return min(self.found, key=lambda one: one.error)

    @property
    def chosen(self) -> Proposal:
        """The one to train with; the one that was requested by its number of bands, whatever it leaves."""
        return self.found[-1] if self.named else chosen(self.found)

    def to_json(self) -> c.Object:
        """For programs."""
        return {
            "charge": self.job,
            "chosen": self.chosen.bands,
            "least": self.least.bands,
            "proposals": [one.to_json() for one in self.found],
        }

    def in_words(self) -> str:
        """For people."""
        first, least = self.found[0], self.least
        rows = [
            f"  {one.bands:>6}  {one.plan.steps:>7}  {format_number(one.plan.noise_multiplier):>16}"
            f"  {one.error / first.error:>10.3f}"
            for one in self.found
        ]
        lines = [
            f"{self.job}: plans of one ε, and the noise that each leaves in a prefix sum beside DP-SGD, of 1 band:",
            "   bands   rounds  noise multiplier       beside",
            *rows,
        ]
        one = self.chosen
        if isinstance(one.plan, CorrelatedPlan):
            verb = "leave least" if one is least else "leave more than independent noise"
            lines += [f"{one.bands} bands {verb}. In place of [train.privacy], and without [train.resume]:", ""]
            lines += [as_toml(one.plan.to_json(), "train.plan")]
        elif one is least:
            lines += ["Independent noise leaves least: keep [train.privacy] as it is."]
        else:
            lines += [
                f"{least.bands} bands leave least, but more than two thirds: keep [train.privacy] as it is,",
                f"or see the plan with --bands {least.bands}.",
            ]
        return "\n".join([*lines, "Nothing was recorded."])


def report_noise(path: Path, bands: int | None = None) -> NoiseReport:
    """What keeps the ε of a job, with several numbers of bands or the one named.

    Raises:
        Malformed, Refused, Unreachable, OSError.
    """
    assignment = Assignment.load(path, lambda target, _: target.placeholder)
    target = assignment.target
    if target is None:
        raise Malformed("train.privacy", _NO_TARGET)
    if target.clipping_norm is None:
        raise Malformed("train.privacy.clipping_norm", NO_CLIPPING)
    check_bands(target, bands or 2)
    with consumer_service(assignment) as service:

        def choose(part: PrivacyTarget) -> Plan:
            return Plan.of(choose_plan(part, assignment, service))

        if bands is None:
            return NoiseReport(assignment.id, tuple(proposals(target, choose)))
        both = independent(target, choose), correlated(target, bands, choose)
        return NoiseReport(assignment.id, both, named=True)


def as_toml(table: c.Object, name: str) -> str:
    """A table of strings, integers, lists of them and further tables, as TOML."""
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines = [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items() if key not in inner)]
    parts = [as_toml(value, f"{name}.{key}") for key, value in inner.items()]
    return "\n".join([*lines, "", *parts])
