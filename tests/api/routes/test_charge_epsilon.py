"""The ε of a run over HTTP: one number from its quote to its posting, and the bound with a model's ancestry."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounts.run_epsilon import RunEpsilon
from ledger.filters import read_rule
from ledger.mechanisms.loss import loss_of
from ledger.mechanisms.plan import Plan
from ledger.wire import canonical_json as c
from ledger.wire.records import convert
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld


def _charged(world: ServedWorld, name: str, *base: str, steps: int | None = None) -> c.Object:
    """A run of its own clean room that starts from the models of others, posted for so many steps; its body."""
    room = CleanRoom()
    body = world.charge_body(world.contract, room)
    body |= {"base": list[c.Json](base)} if base else {}
    answer = world.service.submit(world.bank, BANK_A, "charge", body, name)
    assert answer.outcome == "pending"
    if steps is not None:
        nonce = world.service.challenge(name)
        release: c.Object = {"charge": name, "evidence": world.attest(room, name, nonce), "nonce": nonce}
        world.service.submit(room.signer, BANK_A, "key_release", release, f"key-of-{name}")
        world.service.submit(room.signer, BANK_A, "post", {"charge": name, "steps": steps}, f"post-of-{name}")
    return body


def _told(world: ServedWorld, name: str, did: str = BANK_A) -> Any:  # noqa: ANN401 - JSON
    response = world.http.get(f"/v1/charges/{name}/epsilon", headers=world.everybody.shown(did))
    assert response.status_code == 200, response.text
    return response.json()


def test_quote_plan_and_charge_tell_one_number_whenever_the_run_stops(world: ServedWorld) -> None:
    """That of the whole plan, before the charge, while it runs, and after forty of its steps were posted."""
    body = world.charge_body(world.contract, CleanRoom())
    quoted: Any = world.service.quote(world.bank, BANK_A, body).body
    planned = {name: body[name] for name in ("contract", "partitions", "plan")}
    response = world.http.post("/v1/plans", json=planned, headers=world.everybody.shown(BANK_A))
    plan = Plan.parse(body["plan"])
    exact = report_epsilon(plan.whole, Fraction(1, 100_000), "REPLACE_SPECIAL")
    (line,) = convert(tuple[RunEpsilon, ...], quoted["run_epsilon"])
    assert (line.epsilon, line.accountant, line.partition) == (exact.epsilon, exact.accountant, PARTITION)
    assert response.json()["run_epsilon"] == quoted["run_epsilon"]
    _charged(world, "whole")
    _charged(world, "part", steps=40)
    for name in ("whole", "part"):
        for did in (BANK_A, HOSPITAL):
            assert _told(world, name, did) == {
                "charge": name,
                "run_epsilon": quoted["run_epsilon"],
                "with_ancestry": [],
            }


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
    for name, runs in (("left", 2), ("last", 4)):
        told = _told(world, name)
        (line,) = convert(tuple[RunEpsilon, ...], told["with_ancestry"])
        assert (line.runs, line.accountant, line.partition) == (runs, "renyi odometer", PARTITION)
        assert line.epsilon is not None
        assert 0 <= line.epsilon - rule.odometer(whole.times(runs)) < Fraction(1, 10**9)
        assert told["run_epsilon"] == _told(world, "first")["run_epsilon"]
        assert line.epsilon > Fraction(told["run_epsilon"][0]["epsilon"])
    assert _told(world, "first")["with_ancestry"] == []
