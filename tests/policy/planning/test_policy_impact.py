"""What a policy would change, against entering it and looking."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.checks.field_readers import format_time
from policy.planning.account_caps import accounts_over_cap, partition_bounds
from policy.planning.policy_impact import Impact, impact
from tests.factories.documented import PLAN, DocumentedWorld, opened, policy_bytes, policy_document
from tests.factories.documents import NOW, contract_id, dense_plan
from tests.factories.memory import ref_of, snapshot
from tests.factories.people import ATTESTER, BANKS, DAY_MS, SRO


def charged(*banks: int) -> DocumentedWorld:
    """Two partitions, one of them charged by these banks; the last run stays pending."""
    market, order = opened("one", "two"), banks or (0, 1, 0, 1)
    for place, bank in enumerate(order):
        assert market.charged(f"run-{place}", PLAN, bank=BANKS[bank]) is Code.PENDING
        assert place == len(order) - 1 or market.post(f"run-{place}", 40).code is Code.POSTED
    return market


def seen(market: DocumentedWorld, **changes: Any) -> Impact:  # noqa: ANN401 - whatever a policy holds
    """The impact of the next version, checked against what stands once it was entered."""
    data, before = policy_bytes(2, **changes), snapshot(market.state)
    reported = impact(market.state, data, market.clock.now, market.state.charges)
    assert market.state == before, "asking changes nothing"
    old = {ref: partition_bounds(market.state, one, reported.at) for ref, one in market.state.partitions.items()}
    market.enter(policy_document(2, **changes), "policy-2", SRO, SRO)
    new = {ref: partition_bounds(market.state, one, reported.at) for ref, one in market.state.partitions.items()}
    assert not reported.refused
    assert {one.name for one in reported.partitions} == {ref for ref in old if old[ref] != new[ref]}
    for one in reported.partitions:
        was, will = old[one.name], new[one.name]
        assert (one.before, one.after) == (was, will)
    return reported


def test_a_policy_that_changes_nothing_has_no_impact() -> None:
    """The same again under the next number: only the number, and no account."""
    reported = seen(charged())
    assert [one.name for one in reported.fields] == ["version"]
    assert (reported.accounts, reported.contracts, reported.pending) == ((), (), ())
    assert [one.name for one in reported.partitions] == [ref_of("one"), ref_of("two")], "they are under another version"


def test_a_lower_cap_freezes_whom_it_freezes() -> None:
    """Each account told frozen is refused the smallest run afterwards, for want of room; each other is not."""
    market = charged(1, 0, 0, 0, 0)
    reported = seen(market, lineage={"epsilon_max": "2.8"})
    nodes = [holder_of(market.state.organisations[bank].node) for bank in BANKS]
    assert [one.after.holder for one in reported.accounts] == sorted(nodes[:2])
    assert [one.before.over for one in reported.accounts] == [False, False]
    assert sorted(one.freezes for one in reported.accounts) == [False, True]
    for bank, holder in zip(BANKS[:2], nodes, strict=False):
        (mine,) = (one for one in reported.accounts if one.after.holder == holder)
        code = market.charged(f"after-{bank[8:14]}", dense_plan(1, "100"), bank=bank)
        assert (code is Code.BUDGET_EXHAUSTED) == mine.freezes
    assert {one.charge: one.frozen for one in reported.pending} == {"run-4": True}
    assert [one.name for one in reported.contracts] == [contract_id(bank) for bank in sorted(BANKS)]
    before, after = reported.contracts[0].before.to_json(), reported.contracts[0].after.to_json()
    assert (before["lineage_epsilon_max"], before["run_epsilon_max"]) == ("5", "2")
    assert after == {**before, "lineage_epsilon_max": "2.8"}


def test_a_cap_without_room_is_reported_as_such() -> None:
    """No order of the partition is open under it: no share, and every later run is denied."""
    market = charged()
    reported = seen(market, lineage={"epsilon_max": "0.5"})
    assert [(one.after.used.share, one.after.used, one.freezes) for one in reported.accounts] == [
        (None, "no room at all", True)
    ] * 2
    assert market.charged("after", dense_plan(1, "100")) is Code.POLICY_DENIED


def test_a_level_raised_caps_the_global_account() -> None:
    """From watched to capped; over it, the account is frozen, and thaws by no policy of Level 0 afterwards."""
    market = opened(level=0, partition_age_days_max=None, lineage={"epsilon_max": "5"})
    for bank in BANKS[:2]:
        while market.charged(f"run-{market.index}", PLAN, bank=bank) is Code.PENDING:
            pass
    reported = seen(market, partition_age_days_max=30)
    (everyone,) = (one for one in reported.accounts if one.after.holder == GLOBAL)
    assert (everyone.before.epsilon_max, everyone.before.over) == (None, False)
    assert (everyone.freezes, everyone.thaws) == (True, False)
    assert [one for one in reported.accounts if one.freezes] == [everyone]
    assert market.charged("more", dense_plan(1, "100"), bank=BANKS[2]) is Code.BUDGET_EXHAUSTED
    (change,) = reported.partitions
    assert change.after is not None
    assert change.after.to_json()["closes"] == NOW + 30 * DAY_MS


def test_a_quota_freezes_whom_it_freezes() -> None:
    """Who used more than that share of everyone's capacity takes nothing more; who used less goes on."""
    market = charged(1, 0, 0, 0, 0)
    reported = seen(market, quota={"share_max": "0.25"})
    nodes = [holder_of(market.state.organisations[bank].node) for bank in BANKS]
    over = {one.after.holder for one in reported.accounts if one.freezes}
    assert over == {nodes[0]}
    assert {one.after.holder for one in reported.accounts} == set(nodes[:2])
    assert market.charged("after-a", dense_plan(1, "100")) is Code.BUDGET_EXHAUSTED
    assert market.charged("after-b", dense_plan(1, "100"), bank=BANKS[1]) is Code.PENDING
    assert {one.holder for one in accounts_over_cap(market.state, market.clock.now)} == over


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"run": {"epsilon_max": "2.5", "noise_multiplier_min": "50"}}, "noise_multiplier_min", "50"),
        ({"run": {"epsilon_max": "2.5", "probability_max": "0.001"}}, "probability_max", "0.001"),
        ({"run": {"epsilon_max": "2.5", "steps_max": 7}}, "steps_max", 7),
        ({"run": {"epsilon_max": "2.5", "delta_max": "0.000001"}}, "delta_max", "0.000001"),
        ({"lineage": {"epsilon_max": "5", "delta_max": "0.000001"}}, "delta_max", "0.000001"),
        ({"mechanisms": ["laplace"]}, "mechanisms", ["laplace"]),
        ({"pipeline": True}, "pipeline", True),
    ],
)
def test_each_bound_on_a_run_is_told_of_the_contracts_that_it_binds(
    changes: dict[str, Any], field: str, value: c.Json
) -> None:
    """A run that was charged before is denied afterwards, and every contract is told the bound that denies it."""
    market = charged()
    reported = seen(market, **changes)
    assert [one.name for one in reported.contracts] == [contract_id(bank) for bank in sorted(BANKS)]
    for one in reported.contracts:
        before = one.before.to_json()
        assert one.after.to_json() == {**before, field: value}
        assert before[field] != value
    assert market.charged("after", PLAN) is Code.POLICY_DENIED


def test_a_named_coalition_closes_its_members_until_it_is_declared() -> None:
    """Who may charge nothing is told by name; not once a coalition with the same members is declared."""
    market, named = charged(), {"epsilon_max": "4", "members": [BANKS[0], BANKS[1]], "name": "banks"}
    reported = seen(market, coalitions=[named])
    assert reported.undeclared == (f"banks: {BANKS[0]}, {BANKS[1]}",)
    assert market.charged("after", PLAN) is Code.POLICY_DENIED
    body: Any = {"epsilon": "4", "members": [BANKS[0], BANKS[1]]}
    assert not market.decide("coalition", "declared", SRO, body).code.refused
    assert impact(market.state, policy_bytes(3, coalitions=[named]), market.clock.now, ()).undeclared == ()


def test_a_later_policy_is_compared_at_its_own_moment() -> None:
    """With what stands at that time, a contract that has ended by then left out."""
    market = charged()
    market.contract_of(BANKS[0], version=2, ends=format_time(NOW + 5 * DAY_MS))
    reported = seen(market, effective=format_time(NOW + 10 * DAY_MS), run={"epsilon_max": "1.5"})
    assert reported.at == NOW + 10 * DAY_MS
    assert [one.name for one in reported.contracts] == [contract_id(bank) for bank in sorted(BANKS[1:])]
    before, after = reported.contracts[0].before.to_json(), reported.contracts[0].after.to_json()
    assert after == {**before, "run_epsilon_max": "1.5"}
    assert reported.accounts == ()


def test_pending_charges_are_told_what_changes_for_them() -> None:
    """Their key would need other evidence; their model would stay sealed. A settled charge is not touched."""
    reported = seen(charged(), level=2, model_release=False, partition_age_days_max=None)
    assert [(one.charge, one.attestation, one.sealed, one.frozen) for one in reported.pending] == [
        ("run-3", False, True, False)
    ]
    market = charged()
    policy = impact(market.state, policy_bytes(), market.clock.now, ()).fields
    assert policy == ()
    claims = {"attesters": _attesters(), "claims": {"swname": "another-trainer"}}
    reported = seen(market, attestation=claims)
    assert [(one.charge, one.attestation, one.sealed) for one in reported.pending] == [("run-3", True, False)]


def _attesters() -> Any:  # noqa: ANN401 - as the scene has it
    from tests.factories.decision_scene import POLICY

    attesters = POLICY["attestation"]["attesters"]
    assert attesters[0]["issuer"] == ATTESTER
    return attesters


def test_what_would_not_be_entered_is_reported_with_the_checks() -> None:
    """A number out of order, and another issuer; no policy at all is a named error."""
    market = charged()
    reported = impact(market.state, policy_bytes(4, issuer="did:web:other.example"), market.clock.now, ())
    assert [check.code for check in reported.refused] == ["version_not_next", "issuer_changed"]
    with pytest.raises(Malformed):
        impact(market.state, b"{}", market.clock.now, ())


def test_another_domain_touches_nothing_here() -> None:
    """Its own partitions only."""
    reported = impact(charged().state, policy_bytes(1, domain="finance"), NOW, ("run-3",))
    assert (reported.partitions, reported.contracts, reported.accounts, reported.pending, reported.datasets) == (
        (),
        (),
        (),
        (),
        (),
    )
    shown = reported.to_json()
    assert shown["policy"] == "policy health-policy version 1"
