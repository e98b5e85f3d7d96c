"""Counterfactuals of a refused run: the smallest change that would be admitted, in steps, noise or partition.

They are computed after the refusal is committed, outside the writer. Each is the least change of its kind and was
itself decided on the same facts; people choose between them.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final

from msgspec import structs

from ledger.domain.gate import Check
from ledger.wire.field_types import Ref
from ledger.wire.records import Record
from policy.planning.plan_search import blocking_checks, least_noise_admitted, most_steps_admitted
from policy.planning.reported_values import Natural
from policy.planning.what_if import WhatIf

CANDIDATES_MAX: Final = 64
"""Other partitions that are tried; the report gives the number of those left out."""


class Swap(Record, frozen=True):
    """Another partition of the same dataset, in place of a requested one."""

    instead: Ref
    of: Ref


class Advice(Record, frozen=True):
    """What would pass, each by itself.

    Attributes:
        blocked: checks that fail for every noise and number of steps.
        noise_multiplier: the least that would be charged, to four decimals; None if none would, or the run passes.
        partitions: those that would be admitted in place of a requested one.
        partitions_untried: other partitions of the same datasets that were not tried: only so many are.
        steps: the most steps that would be charged; None likewise.
    """

    blocked: tuple[Check, ...]
    noise_multiplier: Fraction | None
    partitions: tuple[Swap, ...]
    partitions_untried: Natural
    steps: Natural | None


def advise(question: WhatIf) -> Advice:
    """The smallest change of each kind. Slow: it prices plans that no one has priced before."""
    if question.is_admitted:
        return Advice((), None, (), 0, None)
    steps = most_steps_admitted(question, question.run.plan.steps)
    swaps, untried = _swaps(question)
    return Advice(blocking_checks(question), least_noise_admitted(question), swaps, untried, steps or None)


def _swaps(question: WhatIf) -> tuple[tuple[Swap, ...], int]:
    requested, facts = question.run.partitions, question.facts
    datasets = {(one.provider, one.dataset) for ref in requested if (one := facts.partitions.get(ref))}
    others = [
        one
        for ref in sorted(facts.partitions)
        if ref not in requested
        and not (one := facts.partitions[ref]).retired
        and (one.provider, one.dataset) in datasets
    ]
    tried = others[:CANDIDATES_MAX]
    found = []
    for place, ref in enumerate(requested):
        mine = facts.partitions.get(ref)
        for one in tried if mine else ():
            same = mine and (mine.provider, mine.dataset) == (one.provider, one.dataset)
            changed = (*requested[:place], one.ref, *requested[place + 1 :])
            if same and replace(question, run=structs.replace(question.run, partitions=changed)).is_admitted:
                found.append(Swap(instead=one.ref, of=ref))
    return tuple(found), len(others) - len(tried)
