"""What a merger would do, against letting it happen."""

from __future__ import annotations

from itertools import combinations

import pytest

from ledger.domain.facts import holder_of
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from policy.planning.account_caps import account_status, partition_bounds
from policy.planning.merger_impact import merged_accounts
from tests.factories.documented import PLAN, DocumentedWorld, opened
from tests.factories.memory import ref_of, snapshot
from tests.factories.people import BANKS, SRO, STRANGER


def busy() -> DocumentedWorld:
    """Three banks on two partitions, two of them heavily on the first; a coalition of the first and the third."""
    market = opened("one", "two")
    for bank, runs, where in ((0, 5, ("one",)), (1, 4, ("one", "two")), (2, 1, ("two",))):
        for place in range(runs):
            assert market.charged(f"run-{bank}-{place}", PLAN, *where, bank=BANKS[bank]) is Code.PENDING
    body: c.Object = {"epsilon": "5", "members": [BANKS[0], BANKS[2]]}
    assert not market.decide("coalition", "coalition", SRO, body).code.refused
    return market


@pytest.mark.parametrize("pair", list(combinations(range(4), 2)))
def test_what_is_reported_is_what_happens(pair: tuple[int, int]) -> None:
    """Every account of the union and of coalitions that follow: its share, its cap, and whether it is frozen."""
    market = busy()
    before, names = snapshot(market.state), [BANKS[place] for place in pair]
    reported = merged_accounts(market.state, names, market.clock.now)
    assert market.state == before, "asking changes nothing"
    for one in reported:
        for place, name in enumerate(names if one.coalition is None else ()):
            account = market.state.accounts.get((one.partition, holder_of(market.state.organisations[name].node)))
            assert (one.before[place].used.share == 0) == (account is None)
    decided = market.merge(names[0], tuple(names[1:]))
    assert not decided.code.refused, decided.detail
    node = market.state.organisations[names[0]].node
    assert node == market.index - 1
    for one in reported:
        holder = holder_of(node if one.coalition is None else one.coalition)
        account = market.state.accounts[one.partition, holder]
        bounds = partition_bounds(market.state, market.state.partitions[one.partition], market.clock.now)
        assert account_status(market.state, account, bounds).used.share == one.after.used.share
        assert bounds is not None
        assert one.coalition is not None or one.after.epsilon_max == bounds.lineage_epsilon_max
        share, excess = one.after.used.share, one.excess
        assert one.after.over == (share is not None and share > 1)
        assert (excess and excess.share) == (share - 1 if share and one.after.over else None)
    assert {one.partition for one in reported if one.coalition is None} == {
        ref for ref, holder in market.state.accounts if holder == holder_of(node)
    }


def test_the_heavy_two_would_be_frozen_and_the_light_would_not() -> None:
    """On the first partition alone, by so much; shown with its numbers."""
    market = busy()
    reported = merged_accounts(market.state, BANKS[:2], market.clock.now)
    over = [one for one in reported if one.after.over]
    assert [(one.partition, one.coalition) for one in over if one.coalition is None] == [(ref_of("one"), None)]
    assert not [one for one in merged_accounts(market.state, BANKS[2:4], market.clock.now) if one.after.over]
    shown = over[0].to_json()
    assert str(shown["excess"]).endswith(" %")
    assert not [one for one in over[0].before if one.over]


def test_an_organisation_nobody_knows_is_named() -> None:
    """As a lookup that fails."""
    with pytest.raises(KeyError, match=STRANGER):
        merged_accounts(busy().state, (STRANGER, BANKS[0]), 0)
