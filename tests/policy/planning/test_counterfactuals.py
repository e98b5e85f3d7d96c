"""What would have passed: each change told passes, and less of it does not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from msgspec import structs

from ledger.accounts.run_epsilon import run_epsilon
from ledger.commands.runs.charge_entry import OWN, MakeCharge
from ledger.domain.outcomes import Code
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.planning.hypothetical_facts import with_policy_throughout
from policy.planning.plan_report import CANDIDATES_MAX, Swap, advise
from policy.planning.plan_search import least_noise_admitted, most_steps_admitted
from policy.planning.what_if import PlannedCharge, PlannedRun
from tests.factories.documented import PLAN, DocumentedWorld, opened, policy_bytes, policy_document
from tests.factories.documents import dense_plan
from tests.factories.memory import ref_of, snapshot
from tests.factories.people import BANKS, HOSPITAL, SRO


def exhausted() -> DocumentedWorld:
    """One partition's lineage account is full; two others are not, one of them retired."""
    market = opened("one", "other", "retired")
    assert not market.decide("retirement", "retire", HOSPITAL, {"partition": ref_of("retired")}).code.refused
    while market.charged(f"run-{market.index}", PLAN) is Code.PENDING:
        pass
    return market


def test_each_change_told_passes_and_less_of_it_does_not() -> None:
    """Fewer steps, more noise, another partition of the same dataset, each by itself."""
    market = exhausted()
    advice = advise(market.ask(PLAN))
    assert advice.steps is not None
    assert advice.noise_multiplier is not None
    assert [market.ask(dense_plan(steps)).is_admitted for steps in (advice.steps, advice.steps + 1)] == [True, False]
    less = advice.noise_multiplier - Fraction(1, 10_000)
    noises = [dense_plan(40, format_number(noise)) for noise in (advice.noise_multiplier, less)]
    assert [market.ask(plan).is_admitted for plan in noises] == [True, False]
    assert advice.partitions == (Swap(instead=ref_of("other"), of=ref_of("one")),)
    assert (advice.partitions_untried, advice.blocked) == (0, ())
    assert market.charged("moved", PLAN, "other") is Code.PENDING


def test_a_run_that_passes_needs_no_change() -> None:
    """Nothing is told to change."""
    advice = advise(opened().ask(PLAN))
    assert (advice.steps, advice.noise_multiplier, advice.partitions, advice.blocked) == (None, None, (), ())


def test_what_no_change_mends_is_named() -> None:
    """A mechanism that the policy does not permit: the check, and no steps, noise or partition."""
    market = opened("one", "other")
    market.enter(policy_document(2, mechanisms=["gaussian"]), "policy-2", SRO, SRO)
    advice = advise(market.ask(PLAN))
    assert (advice.steps, advice.noise_multiplier, advice.partitions) == (None, None, ())
    assert [check.code for check in advice.blocked] == ["mechanism_not_permitted"]
    shown = advice.to_json()
    assert shown["blocked"] == [check.to_json() for check in advice.blocked]


def test_only_so_many_partitions_are_tried_and_the_rest_are_counted() -> None:
    """Work is bounded, and what was left out is said."""
    market = exhausted()
    model = market.state.partitions[ref_of("other")]
    for place in range(CANDIDATES_MAX + 3):
        ref = ref_of(f"more-{place:03}")
        market.state.partitions[ref] = replace(model, ref=ref)
    advice = advise(market.ask(PLAN))
    assert len(advice.partitions) == CANDIDATES_MAX
    assert advice.partitions_untried == 4


def test_a_refused_charge_can_be_asked_about_afterwards() -> None:
    """From the body of the command itself, with all that it fixed."""
    market = exhausted()
    question = market.ask(PLAN)
    body = structs.replace(question.body(question.run.plan), recipients=(BANKS[1],), base=("run-0",))
    assert PlannedRun.of(BANKS[0], body) == structs.replace(question.run, recipients=(BANKS[1],), base=("run-0",))


def test_a_decision_can_be_made_again_under_another_policy_and_on_earlier_facts() -> None:
    """The same run: denied by the policy that stands, permitted by another, and by the facts as they were."""
    market = opened()
    early = snapshot(market.state)
    market.enter(policy_document(2, run={"epsilon_max": "0.1"}), "policy-2", SRO, SRO)
    question = market.ask(PLAN)
    binding = question.decision.binding
    assert binding is not None
    assert (binding.code, binding.source) == ("run_above_policy", "policy health-policy version 2")
    policy, facts = with_policy_throughout(market.state, policy_bytes(7, run={"epsilon_max": "2.25"}))
    again = replace(question, facts=facts).decision
    assert again.permit
    assert {check.source for check in again.checks if check.code == "run_above_policy"} == {policy.source}
    before = replace(question, facts=early).decision
    assert before.permit
    assert {check.source for check in before.checks if check.code == "run_above_policy"} == {
        "policy health-policy version 1"
    }


def test_a_planned_run_is_decided_by_all_that_its_charge_states() -> None:
    """All but the keys of its clean room and its deadline, which differ between equal charges."""
    assert {*PlannedCharge.__struct_fields__, *OWN} == {*MakeCharge.__struct_fields__}


def _gaussian(noise: str, times: int) -> c.Object:
    """So many answers with Gaussian noise: what groups of records lose by them has a closed form."""
    step: c.Object = {"kind": "gaussian", "noise_multiplier": noise, "v": 1}
    whole: c.Object = {"count": times, "kind": "self_composed", "mechanism": step, "v": 1}
    return {"kind": "mechanism", "mechanism": whole, "v": 1}


def test_a_run_over_a_join_is_planned_at_the_price_of_its_charge() -> None:
    """With three records of a unit: its ε, its decision, and the least noise and the most steps that are found."""
    market = opened(mechanisms=["gaussian"])
    alone = market.ask(_gaussian("12", 4))
    joined = replace(alone, run=structs.replace(alone.run, unit_records_max=3))
    (line,) = joined.run_epsilon
    assert line == run_epsilon(market.state.partitions[ref_of("one")], joined.body(joined.run.plan))
    assert line.epsilon is not None
    assert line.epsilon > 2 * (alone.run_epsilon[0].epsilon or 0)
    steps, noise = most_steps_admitted(joined), least_noise_admitted(joined)
    assert 0 < steps <= 4
    assert most_steps_admitted(alone) == 4
    assert noise is not None
    less = noise - Fraction(1, 10_000)
    plans = [_gaussian(format_number(one), 4) for one in (noise, less)]
    assert [joined.with_plan(parse_plan(one)).is_admitted for one in plans] == [True, False]


def test_a_policy_that_asks_for_a_pipeline_is_planned_under() -> None:
    """A planned run that names what its clean room would run is permitted, as its charge would be."""
    market = opened(pipeline=True)
    question = market.ask(PLAN)
    binding = question.decision.binding
    assert binding is not None
    assert (question.decision.permit, binding.code) == (False, "pipeline_not_named")
    named = replace(question, run=structs.replace(question.run, pipeline="f" * 64))
    assert named.decision.permit
    assert PlannedRun.of(BANKS[0], named.body(named.run.plan)) == named.run


def test_a_policy_that_asks_for_step_leases_is_planned_under() -> None:
    """A planned run that would lease its steps is permitted, as its charge would be; one that would not is refused."""
    market = opened(step_leases=True, refund="never")
    question = market.ask(PLAN)
    binding = question.decision.binding
    assert binding is not None
    assert (question.decision.permit, binding.code) == (False, "leases_not_asked")
    leased = replace(question, run=structs.replace(question.run, step_leases=True))
    assert leased.decision.permit
    assert PlannedRun.of(BANKS[0], leased.body(leased.run.plan)) == leased.run
