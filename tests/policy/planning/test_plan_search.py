"""What is told to people who plan, against counting one by one through the gate and the rules."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ledger.domain.outcomes import Code
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from policy.planning.plan_search import (
    RUNS_MAX,
    blocking_checks,
    for_epochs,
    least_noise_admitted,
    most_steps_admitted,
    runs_that_fit,
)
from tests.factories.documented import PLAN, DocumentedWorld, opened
from tests.factories.documents import dense_plan
from tests.factories.people import BANKS

UNIT = Fraction(1, 10_000)


def test_the_steps_told_pass_and_one_more_does_not() -> None:
    """By the run's cap in the contract while the accounts have room."""
    market = opened()
    question = market.ask(dense_plan(4_000))
    steps = most_steps_admitted(question)
    assert market.ask(dense_plan(steps)).is_admitted
    more = market.ask(dense_plan(steps + 1)).decision
    assert not more.permit
    assert more.binding is not None
    assert more.binding.code == "run_above_contract"
    assert market.charged("a", dense_plan(steps + 1)) is Code.POLICY_DENIED
    assert market.charged("b", dense_plan(steps)) is Code.PENDING


def test_steps_are_those_that_counting_finds() -> None:
    """One by one from the first that fails, where the lineage's account is nearly full."""
    market = opened()
    while market.charged(f"run-{market.index}", PLAN) is Code.PENDING:
        pass
    found = most_steps_admitted(market.ask(PLAN))
    counted = next(steps for steps in range(1, 41) if not market.ask(dense_plan(steps)).is_admitted) - 1
    assert 0 < found == counted < 40
    assert market.charged("more", dense_plan(found + 1)) is Code.BUDGET_EXHAUSTED
    assert market.charged("last", dense_plan(found)) is Code.PENDING
    assert most_steps_admitted(market.ask(dense_plan(1))) == 0


def test_steps_asked_up_to_a_limit_are_not_more() -> None:
    """A run that passes whole is told whole."""
    assert most_steps_admitted(opened().ask(PLAN), 7) == 7


@pytest.mark.parametrize("full", [False, True])
def test_the_noise_told_passes_and_less_does_not(full: bool) -> None:  # noqa: FBT001 - both cases
    """Bound by the run's cap, and by an account that is nearly full."""
    market = opened()
    while full and market.charged(f"run-{market.index}", PLAN) is Code.PENDING:
        pass
    noise = least_noise_admitted(market.ask(PLAN))
    assert noise is not None
    assert (noise > 2) == full
    plans = [dense_plan(40, f"{float(multiplier):.4f}".rstrip("0").rstrip(".")) for multiplier in (noise, noise - UNIT)]
    assert [market.ask(plan).is_admitted for plan in plans] == [True, False]
    denied = market.ask(plans[1]).decision
    assert denied.binding is not None
    assert denied.binding.code == ("no_room" if full else "run_above_contract")


def test_runs_are_those_that_are_charged_one_after_another() -> None:
    """As many as told are pending, and the next gets the decision that was told for it."""
    market = opened("one", "two")
    for bank, partitions in ((BANKS[0], ("one",)), (BANKS[1], ("one", "two"))):
        told = runs_that_fit(market.ask(PLAN, *partitions, bank=bank))
        assert told.more == min(one.runs for one in told.accounts)
        got = [market.charged(f"{bank[8:14]}-{place}", PLAN, *partitions, bank=bank) for place in range(told.more + 1)]
        assert got == [Code.PENDING] * told.more + [Code.BUDGET_EXHAUSTED]
        assert told.binding is not None
        assert told.binding.code == "no_room"


def test_a_contract_may_hold_fewer_runs_than_the_accounts() -> None:
    """The contract's count binds, and the decision on the run after the last says so."""
    market = opened()
    digest = market.contract_of(BANKS[0], version=2, runs_max=2)
    told = runs_that_fit(market.ask(dense_plan(1, "8"), digest=digest))
    assert (told.more, told.binding and told.binding.code) == (2, "runs_exhausted")
    assert min(one.runs for one in told.accounts) > 2
    assert max(one.runs for one in told.accounts) < RUNS_MAX


def test_what_no_run_can_mend_is_told_as_such() -> None:
    """A contract that has ended: no steps, no noise, no runs."""
    market = opened()
    market.clock.now += 301 * 86_400_000
    question = market.ask(PLAN)
    assert (most_steps_admitted(question), least_noise_admitted(question)) == (0, None)
    told = runs_that_fit(question)
    assert (told.more, told.binding and told.binding.code, question.decide().code) == (
        0,
        "contract_ended",
        Code.POLICY_DENIED,
    )


def test_a_run_without_a_finite_price_is_no_share_of_a_capacity() -> None:
    """Of each account it is infinite, and not all of it; what was used before is a share."""
    market = opened()
    assert market.charged("before", PLAN) is Code.PENDING
    told = runs_that_fit(market.ask(dense_plan(1_000, "0.05", "0.5"))).accounts
    assert [(one.used_after, one.runs) for one in told] == [("infinite", 0)] * 2
    assert all(one.used.endswith(" %") and one.used != "0.0 %" for one in told)


def test_other_mechanisms_are_planned_too() -> None:
    """Laplace noise answers once: the least that the contract's ε permits, and all or nothing of steps."""
    market = opened()
    whole: c.Object = {"kind": "laplace", "noise_multiplier": "0.25", "v": 1}
    question = market.ask({"kind": "mechanism", "mechanism": whole, "v": 1})
    assert not question.is_admitted
    assert most_steps_admitted(question) == 0
    noise = least_noise_admitted(question)
    assert noise is not None
    assert noise <= Fraction(1, 2)


def test_a_decision_lists_every_check_and_the_one_that_binds() -> None:
    """Of a permit it is the account that is fullest afterwards; each account is told with its numbers."""
    market: DocumentedWorld = opened()
    decision = market.ask(PLAN).decision
    assert decision.permit
    assert all(check.passed for check in decision.checks)
    rooms = [check for check in decision.checks if check.code == "no_room"]
    assert [check.source for check in rooms] == ["global", f"lineage:{market.state.organisations[BANKS[0]].node}"]
    assert decision.binding == rooms[1], "the lineage's cap is the tighter one"
    assert "the cap of ε 6 is the partition's" in rooms[0].text
    assert "the cap of ε 5 is that of policy health-policy version 1" in rooms[1].text
    assert " <= " in rooms[0].text


def test_epochs_are_expected_passes() -> None:
    """The fewest steps that make so many, and back."""
    plan = parse_plan(PLAN)
    assert isinstance(plan, Plan)
    assert plan.steps * plan.sampling_probability == 4
    assert for_epochs(plan, Fraction(5)).steps == 50
    assert for_epochs(plan, Fraction(101, 20)).steps == 51


def test_bounds_on_the_plan_itself_are_found_too() -> None:
    """The policy says how many steps and how little noise a run may have, whatever its ε is."""
    market = opened(run={"epsilon_max": "2.5", "noise_multiplier_min": "3.5", "steps_max": 25})
    assert least_noise_admitted(market.ask(dense_plan(20))) == Fraction(7, 2)
    assert most_steps_admitted(market.ask(dense_plan(400, "4"))) == 25
    assert (most_steps_admitted(market.ask(dense_plan(20))), least_noise_admitted(market.ask(dense_plan(30)))) == (
        0,
        None,
    )
    assert not blocking_checks(market.ask(dense_plan(400))), "with fewer steps and more noise it would pass"
