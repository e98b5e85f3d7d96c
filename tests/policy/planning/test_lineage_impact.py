"""What a transfer, a publication, a collusion or a split would do, against letting it happen."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ledger.domain.decision import Rejected
from ledger.domain.facts import holder_of
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from policy.planning.account_caps import account_status, partition_bounds
from policy.planning.lineage_impact import EVENTS, exposure_changes
from tests.factories.documented import PLAN, DocumentedWorld, opened
from tests.factories.documents import contract_id
from tests.factories.memory import ref_of, snapshot
from tests.factories.people import BANKS, SRO

A, B, C, D = BANKS


def busy() -> DocumentedWorld:
    """Three banks on two partitions; a model that is meant for everyone; a coalition of the second and the third."""
    market = opened("one", "two")
    for bank, runs, where in ((A, 4, ("one",)), (B, 3, ("one", "two")), (C, 1, ("two",))):
        for place in range(runs):
            market.clock.now += 1
            assert market.charged(f"run-{BANKS.index(bank)}-{place}", PLAN, *where, bank=bank) is Code.PENDING
    digest = market.state.contract_heads[contract_id(A)]
    meant = market.decide_charge("meant", A, digest, ("two",), PLAN, recipients="everyone")
    assert meant.code is Code.PENDING
    body: c.Object = {"epsilon": "5", "members": [B, C]}
    assert not market.decide("coalition", "coalition", SRO, body).code.refused
    market.clock.now += 1
    return market


def _body(kind: str, market: DocumentedWorld) -> c.Object:
    first = "run-0-0"
    bodies: dict[str, c.Object] = {
        "acquisition": {"acquired": [B], "organisation": A},
        "collusion": {"effective": market.clock.now, "organisations": [A, C]},
        "merger": {"organisation": A, "parents": [B, C]},
        "publication": {"charge": first},
        "split": {"child": D, "organisation": B},
        "transfer": {"charge": first, "recipient": D},
    }
    return bodies[kind]


@pytest.mark.parametrize("kind", EVENTS)
def test_what_is_reported_is_what_happens(kind: str) -> None:
    """Each account that organisations stand at: its share, its cap, whether it freezes; asking changes nothing."""
    market = busy()
    before, body = snapshot(market.state), _body(kind, market)
    told = exposure_changes(market.state, kind, body, market.clock.now)
    assert told
    assert snapshot(market.state) == before
    had = dict(market.state.accounts)
    decided = market.decide(kind, "event", SRO, body)
    assert not decided.code.refused, decided.detail
    shown = {(one.partition, one.members): one for one in told}
    assert len(shown) == len(told)
    grown = {
        (ref, node.members): (ref, holder)
        for (ref, holder), account in market.state.accounts.items()
        if had.get((ref, holder)) != account
        and holder.startswith("lineage:")
        and (node := market.state.nodes[int(holder.partition(":")[2])]).members
    }
    assert set(grown) <= set(shown)
    for place, one in shown.items():
        node = next(n for n in market.state.nodes.values() if n.members == place[1])
        holder = grown.get(place, (one.partition, holder_of(node.index)))[1]
        bounds = partition_bounds(market.state, market.state.partitions[one.partition], market.clock.now)
        after = account_status(market.state, market.state.accounts[one.partition, holder], bounds)
        assert (after.used, after.over, after.epsilon_max) == (one.after.used, one.after.over, one.after.epsilon_max)
        assert (one.excess is not None) == one.after.over


def test_a_model_meant_for_everyone_costs_everyone_less() -> None:
    """The same author's other model brings all that it knows; both are shown before."""
    market = busy()
    digest = market.state.contract_heads[contract_id(A)]
    assert market.decide_charge("later", A, digest, ("two",), PLAN).code is Code.PENDING

    def told(charge: str) -> Fraction:
        found = exposure_changes(market.state, "publication", {"charge": charge}, market.clock.now)
        (mine,) = [one for one in found if one.members == (D,) and one.partition == ref_of("two")]
        assert mine.after.used.share is not None
        return mine.after.used.share

    assert told("meant") * 2 == told("later")


def test_what_would_be_refused_is_refused() -> None:
    """By the event's own words."""
    market = busy()
    with pytest.raises(Rejected, match="there is no charge none"):
        exposure_changes(market.state, "publication", {"charge": "none"}, market.clock.now)
    with pytest.raises(Rejected, match="knows all that this would bring"):
        exposure_changes(market.state, "transfer", {"charge": "meant", "recipient": A}, market.clock.now)
