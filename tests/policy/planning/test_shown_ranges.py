"""A consumer that plans a run over ranges learns nothing of its competitors by which slices are named to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.domain.facts import holder_of
from ledger.domain.partition_ranges import PartitionRange
from ledger.mechanisms.plan_reader import parse_plan
from policy.planning.plan_report import report
from policy.planning.shared_account import states_as_shown
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import DIGITS, SMALL, plan
from tests.factories.people import BANK_A, BANK_B
from tests.factories.stored import open_world

STEPS = (73, 76)
"""Runs of another that are shown alike."""


def _told(folder: Path, steps: tuple[int, int]) -> tuple[object, list[str]]:
    """What bank A is told of a run over two slices, on each of which bank B has a run of so many steps."""
    folder.mkdir()
    with open_world(folder, founded=False) as world:
        world.found(*world.founding_with(partitions={"w0": {}, "w1": {}}))
        for week, many in enumerate(steps):
            run = plan(noise="4", steps=many)
            (done,) = world.submit(world.charge(f"of-{week}", BANK_B, run, partitions=(f"{DIGITS}/w{week}",)))
            assert done.code.word == "pending", done
        with world.read() as facts:
            holder, now = holder_of(facts.organisations[BANK_A].node), world.clock.now
            run_ = PlannedRun(
                actor=BANK_A,
                contract=world.contracts[BANK_A],
                partitions=(),
                plan=parse_plan(SMALL),
                ranges=(PartitionRange(DIGITS, "w0", "w1"),),
            )
            question = WhatIf(facts, run_, now)
            found = report(question, 0, now - 1, lambda partitions: states_as_shown(facts, partitions, now, holder))
            exact = [room.limit.partition for room in sorted(question.rooms(run_.plan), key=lambda one: one.used)]
            return found.to_json(), exact


@pytest.mark.soak
def test_the_fullest_slices_are_those_of_what_is_shown(tmp_path: Path) -> None:
    """Whichever of two slices a competitor used a little more, the whole report is the same."""
    one, other = _told(tmp_path / "one", STEPS), _told(tmp_path / "other", (STEPS[1], STEPS[0]))
    assert one[1] != other[1]
    assert one[0] == other[0]
