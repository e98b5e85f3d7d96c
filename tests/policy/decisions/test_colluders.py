"""Colluders are one lineage and no organisation: what one of them signs is not the other's to charge under."""

from __future__ import annotations

import pytest

from ledger.commands.runs.settlement import Settle
from ledger.domain.command import Command
from ledger.domain.gate import Request
from ledger.wire import canonical_json as c
from policy.decisions.charges import MOVED_ALONG_SINCE_MS, check_consumer
from policy.decisions.documents_in_force import read_contract
from policy.decisions.request import Case
from tests.factories.documented import PLAN, DocumentedWorld, opened
from tests.factories.people import BANKS, LATE, SRO

SIGNER, OTHER, THIRD = BANKS[:3]


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


@pytest.mark.parametrize("event", ["merger", "acquisition", "split"])
def test_who_is_moved_along_with_a_colluder_has_no_contract_of_those_it_came_to(event: str) -> None:
    """One of two colluders merges with a third bank: to the other, contracts of before and after it are a stranger's.

    They are so too for the one that merged, as the graph does not tell the two apart; each goes on with its own.
    """
    market = colluding()
    known = market.ask(PLAN, bank=THIRD).run.contract
    assert not market.charged("known", PLAN, bank=THIRD).refused
    joined: dict[str, c.Object] = {
        "merger": {"organisation": THIRD, "parents": [SIGNER]},
        "acquisition": {"organisation": THIRD, "acquired": [SIGNER]},
        "split": {"organisation": THIRD, "child": SIGNER},
    }
    own = {bank: market.ask(PLAN, bank=bank).run.contract for bank in (SIGNER, OTHER)}
    assert not market.decide(event, f"{event}-1", SRO, joined[event]).code.refused
    later = market.contract_of(THIRD, version=2)
    for digest in (known, later):
        refused = market.ask(PLAN, bank=OTHER, digest=digest).decision
        assert "actor_not_consumer" in {one.code for one in refused.checks if not one.passed}
    assert market.ask(PLAN, bank=THIRD, digest=later).is_admitted
    for bank, digest in own.items():
        assert market.ask(PLAN, bank=bank, digest=digest).is_admitted


@pytest.mark.parametrize(("before_ms", "permitted", "accepted"), [(1, True, True), (0, True, False), (1, False, False)])
def test_a_charge_that_was_permitted_to_who_was_moved_along_replays(
    before_ms: int, *, permitted: bool, accepted: bool
) -> None:
    """Until a date, and not at it; a charge of today is refused whatever the clock says."""
    market = colluding()
    contract = market.ask(PLAN, bank=THIRD).run.contract
    merger: c.Object = {"organisation": THIRD, "parents": [SIGNER]}
    assert not market.decide("merger", "merger-1", SRO, merger).code.refused
    command = Command("charge", "later", OTHER, "-" * 43, {})
    case = Case(Request(command, Settle("later"), MOVED_ALONG_SINCE_MS - before_ms, permitted=permitted), market.state)
    check_consumer(case, market.state.contracts[contract], read_contract(market.state.documents[contract]))
    assert [one.passed for one in case.checks] == [accepted]
