"""The first charge's choice beside everything else that happens to a charge: slices, mergers, ends of runs, quotes.

The model is apart from the rule: it goes through the charges of the book in the order of their entries, counts by hand
how many of the first one fit each division, and adds up losses for each organisation and those it became.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome
from ledger.domain.outcomes import ChargeState
from ledger.filters import read_rule
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from policy.documents import MECHANISMS
from policy.planning.plan_report import PlanReport, report
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import NOW, PARTITION, plan, policy, stream
from tests.factories.people import BANK_A, BANK_B, DAY_MS, HOSPITAL, HOUR_MS, LOG, MERGED, SRO
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import words
from tests.ledger.book.test_changed_streams import last_week, opening

STEP: Final[c.Object] = {
    "kind": "poisson_gaussian", "noise_multiplier": "0.6531", "probability": "1/186", "steps": 80, "v": 1
}  # fmt: skip
HEAVY: Final[c.Object] = {"kind": "mechanism", "mechanism": STEP, "v": 1}
"""Little noise: as the first run it gains by its declaration."""
LIGHT: Final = plan(40, "16")
"""The first run that gains nothing by it."""
RUNS: Final = {"declared": HEAVY, "undeclared": LIGHT}
DATASET: Final = PARTITION.rpartition("/")[0]
FIRST: Final = f"{DATASET}/first"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """A partition with the heavy load declared; memory, rows and replay are compared at the end."""
    with open_world(tmp_path) as made:
        made.is_checked = True
        wider: Any = {**policy(), "effective": format_time(NOW), "mechanisms": [*MECHANISMS], "version": 2}
        made.found(made.document("policy", wider, "policy-2", SRO, SRO), made.partition("first", load=HEAVY))
        yield made
        verify_book(made.url, LOG, no_step, gate=gate)


def terms(world: StoredWorld, ref: str = FIRST) -> Renyi:
    """As the rows have them."""
    with world.read() as facts:
        found = read_rule(facts.partitions[ref].terms)
    assert isinstance(found, Renyi)
    return found


# The model.


def admits(rule: Renyi, loss: Loss, epsilon: Fraction) -> bool:
    """Whether the slack holds, and an open order has room."""
    *orders, slack = zip(loss.finite, loss.infinite, rule.cap(epsilon).capacity, strict=True)
    fits = [bound is not None and not infinite and finite <= bound for finite, infinite, bound in orders]
    return any(fits) and slack[0] <= (slack[2] or 0) and not slack[1]


def share(rule: Renyi, loss: Loss, epsilon: Fraction) -> Fraction:
    """The least part of a capacity that a loss without slack takes."""
    bounds = zip(loss.finite, rule.cap(epsilon).capacity[:-1], strict=False)
    return min(Fraction(finite, bound) for finite, bound in bounds if bound)


def fitting(rule: Renyi, one: Loss, epsilon: Fraction) -> int:
    """How many such runs fit, one by one."""
    number, sum_ = 0, one
    while admits(rule, sum_, epsilon):
        number, sum_ = number + 1, sum_ + one
    return number


def chosen(opened: Renyi, first: Loss) -> Renyi:
    """The division that a first charge chooses."""
    assert opened.declared is not None
    without, declared = opened.divisions
    epsilons = opened.declared.epsilons
    dearer = any(share(declared, first, each) > share(without, first, each) for each in epsilons)
    more = any(fitting(declared, first, each) > fitting(without, first, each) for each in epsilons)
    return declared if more and not dearer else without


class Model:
    """What the entries say of some partitions, and what each charge is to be told.

    Attributes:
        runs: the admitted charges: id, organisation and partitions.
        terms: of each partition that was charged.
        family: by organisation, those whose runs count against its lineage.
    """

    def __init__(self, world: StoredWorld, *refs: str) -> None:
        self.world, self.opened = world, {ref: terms(world, ref) for ref in refs}
        self.runs: list[tuple[str, str, tuple[str, ...]]] = []
        self.terms: dict[str, Renyi] = {}
        self.family = {BANK_A: {BANK_A}, BANK_B: {BANK_B}, MERGED: {MERGED}}

    def charge(self, bank: str, run: c.Object, *refs: str, **changes: Any) -> Outcome:  # noqa: ANN401 - of the body
        """Send one, and compare its outcome, and the terms of every partition then."""
        name, refs = f"run-{self.world.size}", refs or (FIRST,)
        price = {ref: self._price(ref, run) for ref in refs}
        rules = {ref: self.terms.get(ref) or chosen(self.opened[ref], price[ref]) for ref in refs}
        fits = all(
            admits(rules[ref], self._spent(ref, who, price[ref]), epsilon)
            for ref in refs
            for who, epsilon in ((self.family.keys(), Fraction(6)), (self.family[bank], Fraction(5)))
        )
        contract = self.world.contracts.get(bank) or self.world.contracts[BANK_A]
        named = {"partitions": refs, "contract": contract, **changes}
        (done,) = self.world.submit(self.world.charge(name, bank, run, **named))
        assert done.code.word == ("pending" if fits else "budget_exhausted"), done
        if fits:
            self.runs.append((name, bank, refs))
            self.terms |= rules
        self.compare()
        return done

    def compare(self) -> None:
        """The terms of every partition."""
        for ref, opened in self.opened.items():
            assert terms(self.world, ref) == self.terms.get(ref, opened)

    def fill(self, run: c.Object, *banks: str) -> int:
        """Charge in turn until each is refused; how many were admitted."""
        left, number = [*banks], 0
        while left:
            bank = left.pop(0)
            if self.charge(bank, run).code.word == "pending":
                number += 1
                left.append(bank)
        return number

    def merge(self) -> None:
        """Both banks are one lineage from now on."""
        self.world.found(self.world.merger())
        everyone = {*self.family}
        self.family = dict.fromkeys(everyone, everyone)

    def _price(self, ref: str, run: c.Object) -> Loss:
        parsed = parse_plan(run)
        relation = "REPLACE_SPECIAL"
        return loss_of(self.opened[ref].segments(parsed.mechanism(parsed.steps), relation), parsed.steps)

    def _spent(self, ref: str, who: Collection[str], loss: Loss) -> Loss:
        with self.world.read() as facts:
            for name, bank, refs in self.runs:
                if ref in refs and bank in who:
                    charge = facts.charges[name]
                    steps = charge.steps if charge.state is ChargeState.PENDING else charge.steps_posted or 0
                    group = refs[0] if charge.groups and ref not in dict(charge.prices) else ref
                    loss += loss_of(dict(charge.prices)[group], steps)
        return loss


# What happens to it.


@pytest.mark.parametrize("first", RUNS)
@pytest.mark.parametrize("when", ["before", "pending", "posted"])
def test_a_merger_changes_whose_runs_count_and_not_what_was_chosen(world: StoredWorld, when: str, first: str) -> None:
    """Before the first charge, while it is pending, and after it was posted."""
    model = Model(world, FIRST)
    if when == "before":
        model.merge()
    model.charge(BANK_A, RUNS[first])
    name = model.runs[0][0]
    if when == "pending":
        model.merge()
    assert words(world.submit(world.settle(name, 20))) == ["posted"]
    if when == "posted":
        model.charge(BANK_B, HEAVY)
        model.merge()
    without, declared = model.opened[FIRST].divisions
    assert model.terms[FIRST] == (declared if first == "declared" else without)
    assert model.fill(HEAVY, MERGED, BANK_A, BANK_B) > 2
    world.reopen()
    model.compare()


def end(world: StoredWorld, name: str, how: str, run: c.Object = LIGHT) -> None:
    """End a pending run."""
    if how == "voided":
        assert words(world.submit(world.void(name))) == ["voided"]
    elif how == "posted":
        assert words(world.submit(world.settle(name, 1))) == ["posted"]
    else:
        if how == "lapsed with keys":
            assert words(world.submit(world.release(name, run))) == ["permitted"]
        world.clock.now += 2 * HOUR_MS
        assert world.lapse(name) == ("posted" if how == "lapsed with keys" else "voided")


@pytest.mark.parametrize("first", RUNS)
@pytest.mark.parametrize("how", ["voided", "posted", "lapsed", "lapsed with keys"])
def test_the_choice_outlives_the_first_charge(world: StoredWorld, how: str, first: str) -> None:
    """Given up, stopped, or lapsed, and then charged for nothing or for all steps: the chosen division stays."""
    model = Model(world, FIRST)
    model.charge(BANK_A, RUNS[first])
    chosen_first = model.terms[FIRST]
    end(world, model.runs[0][0], how, RUNS[first])
    world.reopen()
    other = RUNS["undeclared" if first == "declared" else "declared"]
    model.charge(BANK_B, other)
    assert terms(world) == chosen_first
    assert model.fill(HEAVY, BANK_B, BANK_A) > 2


def test_each_slice_of_a_stream_has_its_own_first_charge(world: StoredWorld) -> None:
    """A run over slices of which one was charged before chooses for the others alone; a refused one for none."""
    stated = stream(budget={"delta": "0.00001", "epsilon": "6"}, life_days=60, load=HEAVY)
    world.found(world.document("stream", stated, "stream-1", HOSPITAL, HOSPITAL))
    periods = []
    for _ in range(4):
        world.clock.now += 7 * DAY_MS
        periods.append(last_week(world))
        body = {**opening(world, periods[-1]).command.body, "load": HEAVY}
        world.found(world.command(HOSPITAL, "partition", body, f"slice-{periods[-1]}"))
    refs = tuple(f"{DATASET}/{one}" for one in periods)
    model = Model(world, *refs)

    def over(run: c.Object, bank: str, first: int, last: int) -> Outcome:
        named: c.Object = {"dataset": DATASET, "first": periods[first], "last": periods[last]}
        return model.charge(bank, run, *refs[first : last + 1], partitions=(), ranges=[named])

    assert over(LIGHT, BANK_A, 1, 1).code.word == "pending"
    assert over(HEAVY, BANK_B, 0, 2).code.word == "pending"
    without, declared = model.opened[refs[0]].divisions
    assert [model.terms.get(ref) for ref in refs] == [declared, without, declared, None]
    while over(HEAVY, BANK_B, 0, 2).code.word == "pending":
        pass
    # The second slice is full for this bank: nothing is chosen on the last.
    assert over(HEAVY, BANK_B, 1, 3).code.word == "budget_exhausted"
    assert refs[3] not in model.terms
    assert over(LIGHT, BANK_A, 3, 3).code.word == "pending"
    end(world, model.runs[-1][0], "voided")
    assert over(HEAVY, BANK_A, 2, 3).code.word == "pending"
    assert [model.terms[ref] for ref in refs] == [declared, without, declared, without]
    world.reopen()
    model.compare()


def planned(world: StoredWorld, run: c.Object) -> PlanReport:
    """What a bank reads of a run before it is charged."""
    question = PlannedRun(contract=world.contracts[BANK_B], partitions=(FIRST,), plan=parse_plan(run), actor=BANK_B)
    with world.read() as facts:
        return report(WhatIf(facts, question, world.clock.now), 0, 0, search=False)


def test_a_quote_before_the_first_charge_says_that_another_may_choose(world: StoredWorld) -> None:
    """What it reports is what such runs then get if it is the first; after another's fewer fit, as it says."""
    model = Model(world, FIRST)
    before = planned(world, HEAVY)
    assert before.decision.permit
    assert f"as the first charge of {FIRST}" in before.decision.detail
    assert "if another run is charged first, fewer such runs may fit" in before.decision.detail
    quoted = world.book.quote(world.charge("quoted", BANK_B, HEAVY, partitions=(FIRST,)))
    model.charge(BANK_A, LIGHT)
    after = planned(world, HEAVY)
    assert after.decision.permit
    assert not after.decision.detail
    assert after.runs.more < before.runs.more
    again = world.book.quote(world.charge("quoted", BANK_B, HEAVY, partitions=(FIRST,)))
    assert quoted.body["limits"] != again.body["limits"]
    assert model.fill(HEAVY, BANK_B) == after.runs.more


def test_a_quoted_first_charge_gets_what_was_quoted(world: StoredWorld) -> None:
    """The same caps, and as many runs."""
    model = Model(world, FIRST)
    before = planned(world, HEAVY)
    quoted = world.book.quote(world.charge("quoted", BANK_B, HEAVY, partitions=(FIRST,)))
    assert model.charge(BANK_B, HEAVY).body["limits"] == quoted.body["limits"]
    assert 1 + model.fill(HEAVY, BANK_B) == before.runs.more
