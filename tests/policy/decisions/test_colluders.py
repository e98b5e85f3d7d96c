"""Colluders are one lineage and no organisation: what one of them signs is not the other's to charge under."""

from __future__ import annotations

from ledger.wire import canonical_json as c
from tests.factories.documented import PLAN, DocumentedWorld, opened
from tests.factories.people import BANKS, LATE, SRO

SIGNER, OTHER = BANKS[:2]


def colluding() -> DocumentedWorld:
    """Two banks that were found to collude, and a contract that one of them signed afterwards."""
    market = opened()
    body: c.Object = {"effective": market.clock(), "organisations": [SIGNER, OTHER]}
    assert not market.decide("collusion", "collusion-1", SRO, body).code.refused
    market.contract_of(SIGNER, version=2)
    return market


def test_a_colluder_charges_under_its_own_contract_alone() -> None:
    """The signer's run is admitted, the other's is refused for this and nothing else."""
    market = colluding()
    head = market.ask(PLAN, bank=SIGNER).run.contract
    assert market.ask(PLAN, bank=SIGNER, digest=head).is_admitted
    refused = market.ask(PLAN, bank=OTHER, digest=head).decision
    assert [one.code for one in refused.checks if not one.passed] == ["actor_not_consumer"]


def test_what_was_signed_before_they_colluded_stays_with_its_signer() -> None:
    """Each goes on with its own past."""
    market = colluding()
    earlier = market.ask(PLAN, bank=OTHER).run.contract
    assert market.ask(PLAN, bank=OTHER, digest=earlier).is_admitted
    assert not market.ask(PLAN, bank=SIGNER, digest=earlier).is_admitted


def test_who_split_off_before_a_contract_was_signed_does_not_charge_under_it() -> None:
    """What its parent signed before is its own too; what it signs afterwards is not."""
    market = opened()
    market.register(LATE, "TDC")
    assert not market.charged("known", PLAN, bank=SIGNER).refused
    earlier = market.ask(PLAN, bank=SIGNER).run.contract
    assert not market.decide("split", "split-1", SRO, {"organisation": SIGNER, "child": LATE}).code.refused
    assert market.ask(PLAN, bank=LATE, digest=earlier).is_admitted
    later = market.contract_of(SIGNER, version=2)
    assert market.ask(PLAN, bank=SIGNER, digest=later).is_admitted
    refused = market.ask(PLAN, bank=LATE, digest=later).decision
    assert [one.code for one in refused.checks if not one.passed] == ["actor_not_consumer"]
