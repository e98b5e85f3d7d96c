"""The ε of a run over HTTP: one number from its quote to its posting, and the bound with a model's ancestry."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounts.plan_odometers import least_odometer
from ledger.accounts.run_epsilon import RunEpsilon
from ledger.commands.runs.model_ancestry import charged_body
from ledger.filters import read_rule
from ledger.mechanisms.loss import loss_of
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from ledger.wire.records import convert
from policy.cli.text_report import run_lines
from policy.planning.plan_report import report
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld
from tests.ledger.store.test_statement_counts import counted
from trainer_adapter.session.quote_report import QuoteReport


def _charged(world: ServedWorld, name: str, *base: str, steps: int | None = None) -> None:
    """A run of its own clean room that starts from the models of others, posted for so many steps."""
    room = CleanRoom()
    body = world.charge_body(world.contract, room)
    body |= {"base": list[c.Json](base)} if base else {}
    answer = world.service.submit(world.bank, BANK_A, "charge", body, name)
    assert answer.outcome == "pending"
    if steps is not None:
        _posted(world, name, room, Plan.of(parse_plan(body["plan"])), steps)


def _posted(world: ServedWorld, name: str, room: CleanRoom, plan: Plan, steps: int) -> None:
    nonce = world.service.challenge(name)
    evidence = world.attest(room, name, nonce, plan.digest)
    release: c.Object = {"charge": name, "evidence": evidence, "nonce": nonce}
    world.service.submit(room.signer, BANK_A, "key_release", release, f"key-of-{name}")
    world.service.submit(room.signer, BANK_A, "post", {"charge": name, "steps": steps}, f"post-of-{name}")


def _told(world: ServedWorld, name: str, did: str = BANK_A) -> Any:  # noqa: ANN401 - JSON
    response = world.http.get(f"/v1/charges/{name}/epsilon", headers=world.everybody.shown(did))
    assert response.status_code == 200, response.text
    return response.json()


def _plan(seed: int) -> Plan:
    """A plan that the contract and the policy permit."""
    choose = random.Random(seed)  # noqa: S311 - the same plans every time
    noise, clipping = Fraction(choose.randint(200, 900), 100), Fraction(choose.randint(1, 9), 4)
    return Plan(Fraction(1, choose.randint(15, 60)), noise, clipping, choose.randint(2, 90), 64)


@pytest.mark.parametrize("seed", range(3))
def test_every_surface_tells_one_number_whenever_the_run_stops(world: ServedWorld, seed: int) -> None:
    """That of the whole plan: of a quote, a plan, a charge before and after some of its steps are posted, on screen."""
    plan, name = _plan(seed), f"run-{seed}"
    exact = report_epsilon(plan.whole, Fraction(1, 100_000), "REPLACE_SPECIAL")
    line = RunEpsilon(
        exact.accountant, exact.delta, exact.epsilon, PARTITION, exact.relation, 1, "record", exact.version
    )
    room = CleanRoom()
    body = {**world.charge_body(world.contract, room), "plan": plan.to_json()}
    quoted: Any = world.service.quote(world.bank, BANK_A, body).body
    planned = {name: body[name] for name in ("contract", "partitions", "plan")}
    response = world.http.post("/v1/plans", json=planned, headers=world.everybody.shown(BANK_A))
    with world.book.read() as facts:
        lines = list(run_lines(report(WhatIf(facts, PlannedRun.parse(planned, BANK_A), world.clock.now), 0, 0)))
    assert quoted["run_epsilon"] == response.json()["run_epsilon"] == [line.to_json()]
    assert f"The run: {line}." in lines
    alone = world.http.post("/v1/plans?search=false", json=planned, headers=world.everybody.shown(BANK_A)).json()
    searched = {"noise_multiplier_least", "steps_most"}
    assert {name: alone[name] for name in alone.keys() - searched} == {
        name: value for name, value in response.json().items() if name not in searched
    }
    assert (alone["noise_multiplier_least"], alone["steps_most"]["steps"]) == (None, plan.steps)
    shown = QuoteReport(
        permitted=True, reasons=(), lines=convert(tuple[RunEpsilon, ...], quoted["run_epsilon"]), accounts=()
    )
    assert str(shown) == f"The run would be charged {line}."
    world.service.submit(world.bank, BANK_A, "charge", body, name)
    reported: c.Object = {"charge": name, "run_epsilon": [line.to_json()], "with_ancestry": []}
    assert _told(world, name) == _told(world, name, HOSPITAL) == reported
    _posted(world, name, room, plan, plan.steps // 2)
    assert _told(world, name) == _told(world, name, HOSPITAL) == reported


def test_a_new_charge_is_answered_without_another_read(world: ServedWorld) -> None:
    """Its ε comes with the book's own answer: nothing is read once its entry is written. Repeated, it has the same."""
    body = world.charge_body(world.contract, CleanRoom())
    with counted() as statements:
        first = world.service.submit(world.bank, BANK_A, "charge", body, "run-1")
    written = [place for place, one in enumerate(statements) if one.startswith("INSERT") and " entry" in one]
    after = [one for one in statements[written[-1] + 1 :] if one.startswith("SELECT")]
    assert (len(written), after) == (1, [])
    again = world.service.submit(world.bank, BANK_A, "charge", body, "run-1")
    assert (first.repeated, again.repeated) == (False, True)
    assert first.body["run_epsilon"] == again.body["run_epsilon"] == _told(world, "run-1")["run_epsilon"]


def test_a_model_that_starts_from_others_is_bounded_with_each_of_their_runs_once(world: ServedWorld) -> None:
    """Two of three runs start from the first: the last descends from three, whole, however few steps were posted."""
    _charged(world, "first", steps=1)
    _charged(world, "left", "first", steps=40)
    _charged(world, "right", "first", steps=40)
    _charged(world, "last", "left", "right")
    with world.book.read() as facts:
        rule = read_rule(facts.partitions[PARTITION].terms)
        prices = dict(facts.charges["last"].prices)[PARTITION]
        whole = loss_of(prices, facts.charges["last"].steps)
        plan = charged_body(facts, facts.charges["last"]).plan
    for name, runs in (("left", 2), ("last", 4)):
        reported = _told(world, name)
        (line,) = convert(tuple[RunEpsilon, ...], reported["with_ancestry"])
        plans = [plan.mechanism(plan.steps)] * runs
        accountant, least = least_odometer(rule, whole.times(runs), plans, "REPLACE_SPECIAL")
        assert (line.runs, line.accountant, line.partition) == (runs, accountant, PARTITION)
        assert line.epsilon is not None
        assert least is not None
        assert 0 <= line.epsilon - least < Fraction(1, 10**9)
        assert least <= rule.odometer(whole.times(runs))
        assert reported["run_epsilon"] == _told(world, "first")["run_epsilon"]
        assert line.epsilon > Fraction(reported["run_epsilon"][0]["epsilon"])
    assert _told(world, "first")["with_ancestry"] == []
