"""A partition is open only where a run may be charged: whatever closes it for everybody has a state of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.domain.facts import GLOBAL, Account
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss
from policy.planning.hypothetical_facts import HypotheticalFacts
from policy.planning.streams.slice_status import slice_status
from tests.factories.documented import opened
from tests.factories.memory import ref_of
from tests.factories.people import DAY_MS


@pytest.mark.parametrize(
    ("part", "state"),
    [("nothing", "open"), ("less", "open"), ("all", "full"), ("more", "frozen")],
)
def test_what_everyone_together_has_used(part: str, state: str) -> None:
    """At the capacity exactly nothing more fits; beyond it the account is frozen; where it has no cap, it is open."""
    for level, expected in ((1, state), (0, "open")):
        market = opened(level=level)
        partition = market.state.partitions[ref_of("one")]
        rule = read_rule(partition.terms)
        capacity = [one or 0 for one in rule.cap(partition.epsilon).capacity]
        used = {"nothing": [0] * len(capacity), "less": [max(0, one - 1) for one in capacity], "all": capacity}
        loss = Loss(tuple(used.get(part, [one + 1 for one in capacity])), (0,) * len(capacity))
        account = Account(partition.ref, GLOBAL, loss, Loss.zero(len(capacity)))
        facts = HypotheticalFacts(market.state, accounts={(partition.ref, GLOBAL): account})
        assert slice_status(facts, partition, market.clock()).status == expected


def test_age_and_retirement() -> None:
    """At its last moment a partition is open; a retired one is retired, however old; without a policy there is none."""
    market = opened(partition_age_days_max=90)
    one = market.state.partitions[ref_of("one")]
    last = one.opened + 90 * DAY_MS
    reported = [slice_status(market.state, one, at) for at in (last, last + 1)]
    assert [(each.status, each.closes) for each in reported] == [("open", last), ("past_age", last)]
    assert slice_status(market.state, replace(one, retired=True), last + 1).status == "retired"
    ungoverned = HypotheticalFacts(market.state, policies={"health": ()})
    assert slice_status(ungoverned, one, last).status == "without_policy"
