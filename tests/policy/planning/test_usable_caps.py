"""Caps under which nothing could run, against charging everything that could."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from ledger.domain.facts import Partition
from ledger.domain.outcomes import Code
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.run_plan import RunPlan
from policy.checks.field_readers import format_time
from policy.documents import ContractDocument, Policy
from policy.documents.stated_caps import NamedCap
from policy.planning.usable_caps import CapReport, coalition_caps, contract_caps, policy_caps, report_cap
from tests.factories.documented import PLAN, DocumentedWorld, opened, policy_document
from tests.factories.documents import NOW, contract, dense_plan
from tests.factories.memory import ref_of
from tests.factories.people import BANKS, DAY_MS

LOAD = parse_plan(PLAN)
BLACK_BOX = {"delta": "0.5", "epsilon": "1", "kind": "black_box", "relation": "REPLACE_SPECIAL", "v": 1}


def _declared(_: Partition) -> RunPlan | None:
    return LOAD


def _undeclared(_: Partition) -> RunPlan | None:
    return None


def _report(market: DocumentedWorld, epsilon: str, declared: RunPlan | None, share: str = "") -> CapReport:
    named = NamedCap(Fraction(epsilon), "a document", Fraction(share) if share else None)
    return report_cap(market.state.partitions[ref_of("one")], named, declared)


@pytest.mark.parametrize("epsilon", ["0.2", "0.9", "1.4", "2", "3", "6"])
def test_what_is_told_of_a_cap_is_what_a_charge_gets(epsilon: str) -> None:
    """The declared plan cut to the steps that are told is charged under such a contract; one more is refused."""
    market = opened(lineage={"epsilon_max": "6"}, run={"epsilon_max": "6"})
    reported = _report(market, epsilon, LOAD)
    digest = market.contract_of(BANKS[0], version=2, lineage={"epsilon_max": epsilon}, run={"epsilon_max": "6"})
    assert reported.steps is not None
    more = market.ask({**PLAN, "steps": reported.steps + 1}, digest=digest)
    assert reported.fits == (reported.steps == LOAD.steps)
    assert reported.fits or not more.is_admitted
    assert reported.usable == (reported.steps > 0)
    if reported.steps:
        assert market.ask({**PLAN, "steps": reported.steps}, digest=digest).is_admitted


def test_the_least_epsilon_is_where_the_plan_begins_to_fit() -> None:
    """To a thousandth of the budget; with a quota, of the same share; beyond the budget there is none."""
    market = opened(lineage={"epsilon_max": "6"})
    for share in ("", "0.5"):
        least = _report(market, "0.3", LOAD, share).least_epsilon
        assert least is not None
        assert _report(market, str(least), LOAD, share).fits
        below = _report(market, str(least - Fraction(1, 100)), LOAD, share)
        assert not below.fits
    loud = parse_plan(dense_plan(4_000, "1"))
    assert _report(market, "6", loud).least_epsilon is None


def test_an_open_order_is_not_yet_a_usable_one() -> None:
    """Between the least ε of an order and that of the plan the cap is open, and holds no step of the plan."""
    market = opened()
    loud = parse_plan(dense_plan(3, "0.5", "1"))
    reported = _report(market, "2.5", None)
    assert (reported.usable, reported.fits, reported.steps) == (True, True, None)
    with_plan = _report(market, "2.5", loud)
    assert not with_plan.usable
    assert "not one step of the declared plan can ever be admitted" in with_plan.text
    closed = _report(market, "0.001", None)
    assert not closed.usable
    assert closed.least_epsilon is not None
    assert _report(market, str(closed.least_epsilon), None).usable
    assert "no run can ever be admitted" in closed.text


def test_each_document_is_read_for_its_own_caps() -> None:
    """A policy's lineage cap, quota and coalitions; a contract's, or what binds it more; a coalition's."""
    market = opened("one", "two")
    coalition = {"epsilon_max": "0.001", "members": [BANKS[0], BANKS[1]], "name": "both"}
    policy = policy_document(2, coalitions=[coalition], lineage={"epsilon_max": "0.002"}, quota={"share_max": "0.3"})
    found = list(policy_caps(market.state, Policy.of(policy), NOW, _undeclared))
    assert [(one.partition, one.source.rpartition(", ")[2]) for one in found] == [
        (ref_of(name), what) for name in ("one", "two") for what in ("lineage", "coalition both", "quota")
    ]
    assert [one.usable for one in found] == [False, False, True] * 2
    assert all(one.partition in one.text for one in found)
    ends = "2027-12-31T00:00:00Z"
    document = ContractDocument.of(contract(BANKS[0], starts=NOW, ends=ends, lineage={"epsilon_max": "0.001"}))
    of_contract = list(contract_caps(market.state, document, NOW + DAY_MS, _declared))
    assert [*contract_caps(market.state, document, NOW + 91 * DAY_MS, _declared)] == [], "they are past their age"
    assert [one.usable for one in of_contract if "lineage" in one.source] == [False, False]
    assert [one.source.rpartition(", ")[2] for one in of_contract] == ["lineage", "one run"] * 2
    assert all("contract" in one.source for one in of_contract)
    assert not any(one.usable for one in coalition_caps(market.state, Fraction(1, 1000), NOW, _undeclared))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"epsilon_max": "2.5"}, "the declared plan of 40 steps fits"),
        ({"epsilon_max": "0.4"}, "the whole plan fits from ε"),
        (
            {"epsilon_max": "0.001"},
            "not one step of the declared plan can ever be admitted; the whole plan fits from ε",
        ),
        ({"epsilon_max": "2.5", "steps_max": 7}, "7 of the declared plan's 40 steps fit; a run has at most 7 steps"),
        ({"epsilon_max": "2.5", "noise_multiplier_min": "2.1"}, "the noise multiplier must be at least 2.1"),
        ({"epsilon_max": "2.5", "probability_max": "0.01"}, "a probability of at most 0.01"),
        ({"epsilon_max": "2.5", "mechanisms": ["laplace"]}, "poisson_gaussian is not permitted"),
        ({"epsilon_max": "2.5", "delta_max": "0.000001"}, "a run's δ may be at most 0.000001"),
    ],
)
def test_what_is_told_of_one_run_is_what_a_charge_gets(limits: dict[str, Any], said: str) -> None:
    """As many steps as are told are charged under a contract with these limits of a run, and not one more."""
    market = opened(lineage={"epsilon_max": "6"}, run={"epsilon_max": "6"})
    ends = format_time(NOW + 300 * DAY_MS)
    document = ContractDocument.of(contract(BANKS[0], starts=NOW, ends=ends, version=2, runs_max=1_000, run=limits))
    _, reported = contract_caps(market.state, document, NOW, _declared)
    digest = market.contract_of(BANKS[0], version=2, run=limits)
    assert said in reported.text
    assert reported.steps is not None
    assert (reported.fits, reported.usable) == (reported.steps == LOAD.steps, reported.steps > 0)
    admitted = [steps for steps in (reported.steps, reported.steps + 1) if 0 < steps <= LOAD.steps]
    for steps in admitted:
        assert market.ask({**PLAN, "steps": steps}, digest=digest).is_admitted == (steps == reported.steps)
    if reported.least_epsilon is not None:
        enough = market.contract_of(
            BANKS[0], version=3, run={**limits, "epsilon_max": str(float(reported.least_epsilon))}
        )
        assert market.ask(PLAN, digest=enough).is_admitted


def test_a_dead_contract_is_still_entered_and_charges_nothing() -> None:
    """What the report says of it comes true: the decision itself stays as in books of before."""
    market = opened()
    market.contract_of(BANKS[0], version=2, lineage={"epsilon_max": "0.001"})
    assert market.charged("run", PLAN) is Code.POLICY_DENIED


def test_a_plan_without_a_price_is_reported() -> None:
    """Under a rule that cannot price the declared plan nothing of it runs."""
    market = opened()
    odd = parse_plan({"kind": "mechanism", "mechanism": BLACK_BOX, "v": 1})
    reported = _report(market, "6", odd)
    assert not reported.usable
