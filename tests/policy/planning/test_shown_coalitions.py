"""What a member of a coalition is shown of a run: nothing of what the other members used, but what is rounded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ledger.domain.facts import Partition, holder_of
from ledger.mechanisms.plan_reader import parse_plan
from policy.planning.plan_report import PlanReport, ShownOn, report
from policy.planning.shared_account import UNCERTAIN, ShownStates, states_as_shown
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import DIGITS, plan
from tests.factories.people import BANK_A, BANK_B, SRO
from tests.factories.stored import open_world

TIGHT = (73, 76)
"""Runs of another member that are within one step of the rounding."""
REF = f"{DIGITS}/w0"


def _told(folder: Path, theirs: int) -> tuple[list[PlanReport], int]:
    """The reports of runs that bank A might make, one step more than surely fits among them; and what fits in truth."""
    folder.mkdir()
    with open_world(folder, founded=False) as world:
        world.found(*world.founding_with(partitions={"w0": {}}))
        agreed = world.send(SRO, "coalition", {"epsilon": "3", "members": [BANK_A, BANK_B]}, "coalition-1")
        assert agreed.code.word == "permitted", agreed
        (done,) = world.submit(world.charge("theirs", BANK_B, plan(noise="4", steps=theirs), partitions=(REF,)))
        assert done.code.word == "pending", done
        with world.read() as facts:
            holder, now = holder_of(facts.organisations[BANK_A].node), world.clock.now

            def rounded(partitions: Sequence[Partition]) -> ShownStates | None:
                return states_as_shown(facts, partitions, now, holder)

            def told(steps: int, shown_on: ShownOn | None) -> PlanReport:
                requested = parse_plan(plan(noise="4", steps=steps))
                run = PlannedRun(actor=BANK_A, contract=world.contracts[BANK_A], partitions=(REF,), plan=requested)
                return report(WhatIf(facts, run, now), 0, now - 1, shown_on)

            most = told(5, rounded).steps_most.steps
            return [told(steps, rounded) for steps in (5, most, most + 1)], told(5, None).steps_most.steps


def test_a_member_s_plan_cannot_be_told_from_another(tmp_path: Path) -> None:
    """Whole reports are the same, of runs that fit, the longest among them, and of one step more, which may."""
    (one, most), (other, fewer) = (_told(tmp_path / str(steps), steps) for steps in TIGHT)
    assert one == other
    assert one[0].steps_most.steps < fewer < most
    assert [(each.decision.outcome, each.decision.detail == UNCERTAIN) for each in one] == [
        ("pending", False),
        ("pending", False),
        ("pending", True),
    ]
