"""A key release whose cap was searched on another machine, which ended one step earlier or later."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Final

import pytest

from ledger.accounting.pld_counting import count_capacity
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.book.submitted_command import Submission
from ledger.filters import read_rule
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from policy.decisions.releases import OVER_CAP_RELEASES_SINCE_MS
from tests.factories.documents import PARTITION, plan, policy
from tests.factories.people import BANK_A, BANK_B, HOUR_MS, LOG, SRO
from tests.factories.stored import StoredWorld, no_step, open_world

STEPS: Final = 100
SEARCHED: Final = "ledger.filters.reference_step_count.count_capacity"


class ReferenceWorld(StoredWorld):
    """A book with a partition whose capacities are searched for, in steps of its declared load."""

    def found(self, *submissions: Submission) -> None:
        """Found it."""
        governing = policy(self.begun, rules=["reference"], lineage={"epsilon_max": "5"})
        partitions: dict[str, dict[str, c.Json]] = {"2026-q4": {"rule": "reference", "load": plan(STEPS)}}
        super().found(*(submissions or self.founding_with(governing=governing, partitions=partitions)))


@pytest.mark.parametrize(("less", "accepted"), [(1, True), (100, False)])
def test_a_lineage_that_is_full_to_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, less: int, *, accepted: bool
) -> None:
    """Its key release verifies where a search ends a step earlier, and not where the cap is another."""
    with open_world(tmp_path, make=ReferenceWorld) as world:
        with world.read() as facts:
            (most,) = read_rule(facts.partitions[PARTITION].terms).cap(Fraction(5)).capacity
        assert most is not None
        world.clock.now = OVER_CAP_RELEASES_SINCE_MS + HOUR_MS
        runs, rest = divmod(most - STEPS, STEPS)
        sent = [world.charge("a-0", BANK_A, plan(STEPS))]
        sent += [world.charge(f"b-{number}", BANK_B, plan(STEPS)) for number in range(runs)]
        sent += [world.charge("b-rest", BANK_B, plan(rest))] if rest else []
        assert {one.code.word for one in world.submit(*sent)} == {"pending"}
        world.submit(world.release("b-0", plan(STEPS), BANK_B), world.settle("b-0", STEPS, BANK_B))
        world.clock.now += 1
        assert world.send(SRO, "transfer", {"charge": "b-0", "recipient": BANK_A}, "given").code.word == "permitted"
        (released,) = world.submit(world.release("a-0", plan(STEPS)))
        assert released.code.word == "permitted", released.detail
        world.reopen()
        assert verify_book(world.url, LOG, no_step, gate=gate).ok
        # Sound too: it is what a machine may find whose floats round otherwise.
        monkeypatch.setattr(SEARCHED, lambda *terms: count_capacity(*terms) - less)
        if accepted:
            assert verify_book(world.url, LOG, no_step, gate=gate).ok
        else:
            with pytest.raises(VerificationFailed, match=r"outcome: is permitted, but conflict follows"):
                verify_book(world.url, LOG, no_step, gate=gate)
