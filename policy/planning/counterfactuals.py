"""Counterfactuals of a refused run: the smallest change that would be admitted, in steps, noise or partition.

They are computed after the refusal is committed, outside the writer. Each is the least change of its kind and was
itself decided on the same facts; people choose between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ledger.domain.gate import Check
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.planning.plan_search import blocking_checks, least_noise_admitted, most_steps_admitted
from policy.planning.what_if import WhatIf

CANDIDATES_MAX: Final = 64
"""Other partitions that are tried; the report gives the number of those left out."""


@dataclass(frozen=True, slots=True)
class Swap:
    """One partition taken for another of the same dataset."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What would pass, each by itself.

    Attributes:
        steps: the most steps that would be charged; None if none would, or the run passes as it is.
        noise: the least noise multiplier that would, to four decimals; None likewise.
        swaps: partitions that would be admitted in place of a requested one.
        untried: other partitions of the same datasets that were not tried: only so many are.
        blocked: checks that fail for every noise and number of steps.
    """

    steps: int | None
    noise: Fraction | None
    swaps: tuple[Swap, ...]
    untried: int
    blocked: tuple[Check, ...]

    def to_json(self) -> c.Object:
        """As JSON."""
        return {
            "blocked": [check.to_json() for check in self.blocked],
            "noise_multiplier": None if self.noise is None else format_number(self.noise),
            "partitions": [{"instead": swap.new, "of": swap.old} for swap in self.swaps],
            "partitions_untried": self.untried,
            "steps": self.steps,
        }


def advise(question: WhatIf) -> Advice:
    """The smallest change of each kind. Slow: it prices plans that no one has priced before."""
    if question.is_admitted:
        return Advice(None, None, (), 0, ())
    steps = most_steps_admitted(question, question.run.plan.steps)
    swaps, untried = _swaps(question)
    return Advice(steps or None, least_noise_admitted(question), swaps, untried, blocking_checks(question))


def _swaps(question: WhatIf) -> tuple[tuple[Swap, ...], int]:
    asked, facts = question.run.partitions, question.facts
    datasets = {(one.provider, one.dataset) for ref in asked if (one := facts.partitions.get(ref))}
    others = [
        one
        for ref in sorted(facts.partitions)
        if ref not in asked and not (one := facts.partitions[ref]).retired and (one.provider, one.dataset) in datasets
    ]
    tried = others[:CANDIDATES_MAX]
    found = []
    for place, ref in enumerate(asked):
        mine = facts.partitions.get(ref)
        for one in tried if mine else ():
            same = mine and (mine.provider, mine.dataset) == (one.provider, one.dataset)
            changed = (*asked[:place], one.ref, *asked[place + 1 :])
            if same and question.with_partitions(changed).is_admitted:
                found.append(Swap(ref, one.ref))
    return tuple(found), len(others) - len(tried)
