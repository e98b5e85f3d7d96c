"""What plans and reports show of caps on a slice is what a charge to it is decided by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from ledger.domain.facts import holder_of
from ledger.wire import canonical_json as c
from policy.decisions.documents_in_force import SLICE_CAPS_SINCE_MS, binding, binding_until, read_contract, read_policy
from policy.decisions.last_run import LastRun, LastRunBounds
from policy.documents import ContractDocument
from policy.planning.account_caps import account_status, partition_bounds
from policy.planning.account_figures import PartitionFigures
from policy.planning.coalition_search import coalitions
from policy.planning.plan_search import most_steps_admitted
from policy.planning.policy_impact import impact
from policy.planning.usable_caps import coalition_caps, contract_caps, policy_caps
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import plan, policy
from tests.factories.people import BANK_A, BANK_B, SRO
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.book.governed import words
from tests.ledger.book.slice_world import DIGITS, found_slices, from_the_date, over

FIRST = f"{DIGITS}/first"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """Two slices that a person may both be in, the caps of a lineage 4 and of a run 1, and a coalition's 3.6."""
    with open_world(tmp_path, founded=False) as found:
        found_slices(found, {"level": 0, "lineage": {"epsilon_max": "4"}, "run": {"epsilon_max": "1"}})
        declared = found.send(SRO, "coalition", {"members": [BANK_A, BANK_B], "epsilon": "3.6"}, "both")
        assert declared.code.word == "permitted"
        yield found


@pytest.mark.parametrize(("since", "parts"), [(False, 1), (True, 2)])
def test_bounds_are_parts_from_the_date_on(world: StoredWorld, since: bool, parts: int) -> None:  # noqa: FBT001 - a case
    """Of a partition and of its accounts; the coalitions that are searched for; and until when they hold."""
    if since:
        from_the_date(world)
    with world.read() as facts:
        slice_, now = facts.partitions[FIRST], world.clock.now
        bounds, binds = partition_bounds(facts, slice_, now), binding(facts, slice_, now)
        assert bounds is not None
        assert binds is not None
        assert (bounds.run_epsilon_max, bounds.appearances_max) == (Fraction(1, parts), parts)
        assert bounds.lineage_epsilon_max == min(Fraction(4, parts), slice_.epsilon)
        assert (binding_until(facts, slice_, binds, now) > SLICE_CAPS_SINCE_MS) is since
        searched = [found.epsilon_max for found in coalitions(facts, now, [FIRST], Fraction(4))]
        assert searched == [min(Fraction(4, parts), slice_.epsilon)]
    assert over(world, "one", plan(30, "4")).code.word == "pending"
    with world.read() as facts:
        node = max(number for number, one in facts.nodes.items() if one.epsilon is not None)
        status = account_status(facts, facts.accounts[FIRST, holder_of(node)], bounds)
        assert status.epsilon_max == min(Fraction("3.6") / parts, slice_.epsilon)
        figures = PartitionFigures.at(facts, slice_, now, None).of(holder_of(node))
        assert ("ε 1.8" in str(figures.binding)) is since


def test_the_impact_of_a_policy_shows_the_part_of_a_contract(tmp_path: Path) -> None:
    """The δ of a run that a contract states with its ε: group privacy leaves each of two slices δ/(1 + exp(ε/2))."""
    governing: dict[str, Any] = {"level": 0, "lineage": {"epsilon_max": "4"}, "run": {"epsilon_max": "1"}}
    with open_world(tmp_path, founded=False) as world:
        found_slices(world, governing, agreed={"run": {"delta_max": "0.00001", "epsilon_max": "1"}})
        from_the_date(world)
        stricter = policy(world.clock.now, **{**governing, "lineage": {"epsilon_max": "3"}}, version=2)
        with world.read() as facts:
            reported = impact(facts, c.dump(stricter), world.clock.now, ())
    (most,) = {side.delta_max for change in reported.contracts for side in (change.before, change.after)}
    assert most is not None
    assert math.isclose(most, 1e-5 / (1 + math.exp(0.5)), rel_tol=1e-5)


def test_usable_caps_are_of_a_slice(world: StoredWorld) -> None:
    """Those of a contract, of a policy and of a coalition, each with the stream's name."""
    from_the_date(world)
    with world.read() as facts:
        now = world.clock.now
        signed: ContractDocument = read_contract(facts.documents[world.contracts[BANK_A]])
        enacted = read_policy(facts.documents[facts.policies["health"][-1].document])
        stated = [cap for cap in contract_caps(facts, signed, now, lambda _: None) if cap.partition == FIRST]
        assert [cap.epsilon for cap in stated] == [2]
        assert "for one of 2 slices of stream digits of" in stated[0].source
        (lineage,) = [cap for cap in policy_caps(facts, enacted, now, lambda _: None) if cap.partition == FIRST]
        assert lineage.epsilon == 2
        assert lineage.source.endswith("that a person may be in")
        (both,) = [cap for cap in coalition_caps(facts, Fraction(5), now, lambda _: None) if cap.partition == FIRST]
        assert (both.epsilon, both.text.startswith("the coalition, for one of 2 slices")) == (Fraction("2.5"), True)


def test_a_plan_finds_the_steps_that_a_charge_gets(world: StoredWorld) -> None:
    """The most steps are charged and one more is not; a run like the last one is barred by the part of its cap."""
    assert over(world, "last", plan(100, "4")).code.word == "pending"
    from_the_date(world)
    with world.read() as facts:
        named = {"dataset": DIGITS, "first": "first", "last": "second"}
        body = {"contract": world.contracts[BANK_A], "partitions": [], "plan": plan(1, "4"), "ranges": [named]}
        steps = most_steps_admitted(WhatIf(facts, PlannedRun.parse(body, BANK_A), world.clock.now), 100)
        slice_, charged = facts.partitions[FIRST], facts.charges["last"]
        binds = binding(facts, slice_, world.clock.now)
        assert binds is not None
        last = LastRun(facts.accounts[FIRST, holder_of(charged.author)].loss, PlannedRun.parse(body, BANK_A).plan)
        again = LastRunBounds(facts, slice_, binds, None, world.clock.now)
        assert again.why_none(last) == ""
        longer = PlannedRun.parse({**body, "plan": plan(100, "4")}, BANK_A).plan
        barred = again.why_none(LastRun(last.loss, longer))
        assert (
            "one run has an ε of at most 0.5, and such a run 0.7132, by policy health-policy version 1, for" in barred
        )
    assert 0 < steps < 100
    assert words([over(world, "more", plan(steps + 1, "4")), over(world, "most", plan(steps, "4"))]) == [
        "policy_denied",
        "pending",
    ]
