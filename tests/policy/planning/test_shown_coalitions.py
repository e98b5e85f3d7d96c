"""What a member of a coalition is shown of a run: nothing of what the other members used, but what is rounded."""

from __future__ import annotations

from pathlib import Path

from ledger.domain.facts import holder_of
from ledger.domain.organisation_graph import coalitions_of
from ledger.mechanisms.plan import parse_plan
from policy.planning.plan_report import PlanReport, report
from policy.planning.shared_account import UNCERTAIN, states_as_shown
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import DIGITS, plan
from tests.factories.people import BANK_A, BANK_B, SRO
from tests.factories.stored import open_world

TIGHT = (73, 76)
"""Runs of another member that are within one step of the rounding."""
REF = f"{DIGITS}/w0"


def _told(folder: Path, theirs: int, *asked: int) -> tuple[list[PlanReport], object]:
    """The reports of runs of so many steps that bank A might make, and what counts of the coalition's account."""
    folder.mkdir()
    with open_world(folder, founded=False) as world:
        world.found(*world.founding_with(partitions={"w0": {}}))
        agreed = world.send(SRO, "coalition", {"epsilon": "0.8", "members": [BANK_A, BANK_B]}, "coalition-1")
        assert agreed.code.word == "permitted", agreed
        (done,) = world.submit(world.charge("theirs", BANK_B, plan(noise="4", steps=theirs), partitions=(REF,)))
        assert done.code.word == "pending", done
        with world.read() as facts:
            node = facts.organisations[BANK_A].node
            (coalition,) = coalitions_of(facts.nodes, node)
            shown = states_as_shown(facts, [facts.partitions[REF]], world.clock.now, holder_of(node))
            found = []
            for steps in asked:
                run = PlannedRun(
                    actor=BANK_A,
                    contract=world.contracts[BANK_A],
                    partitions=(REF,),
                    plan=parse_plan(plan(noise="4", steps=steps)),
                )
                found.append(report(WhatIf(facts, run, world.clock.now), 0, world.clock.now - 1, shown))
            return found, facts.accounts[REF, holder_of(coalition)].loss


def test_a_member_s_plan_cannot_be_told_from_another(tmp_path: Path) -> None:
    """Whole reports are the same, of a run that fits, of one that may and of one that does not."""
    (one, exact), (other, more) = (_told(tmp_path / str(steps), steps, 5, 60, 200) for steps in TIGHT)
    assert exact != more
    assert one == other
    assert [(each.decision.outcome, each.decision.detail == UNCERTAIN) for each in one] == [
        ("pending", False),
        ("pending", True),
        ("budget_exhausted", False),
    ]
