"""Caps on one person hold over all slices of a stream that the person may be in, from 15 December 2026 on."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from ledger.accounting.epsilon_report import report_epsilon
from ledger.audit.replay import verify_book
from ledger.book.book import Outcome
from ledger.domain.facts import holder_of
from ledger.filters import read_rule
from ledger.mechanisms.mechanism import Group, PoissonGaussian
from ledger.wire import canonical_json as c
from policy.decisions.documents_in_force import SLICE_CAPS_SINCE_MS
from policy.decisions.gate import gate
from tests.factories.documents import plan
from tests.factories.people import BANK_A, BANK_B, LOG, SRO
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import faults, words
from tests.ledger.book.slice_world import DIGITS, SLICES, found_slices, from_the_date, opening, over

RUN: Final = plan(100, "4")
"""Its ε on one slice is 0.7132."""
LIGHT: Final = plan(30, "4")
DELTA: Final = Fraction("0.00001")
"""Of the stream's budget."""
LEVEL_0: Final[dict[str, Any]] = {"level": 0, "lineage": {"epsilon_max": "4"}, "run": {"epsilon_max": "1"}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """Without documents."""
    with open_world(tmp_path, founded=False) as found:
        yield found


def person(steps: int, noise: int = 4) -> Fraction:
    """The ε of a person with a record in each of two slices after so many steps over both, by group privacy."""
    run = PoissonGaussian(probability=Fraction(1, 16), noise_multiplier=Fraction(noise), steps=steps)
    return report_epsilon(Group(k=2, mechanism=run), DELTA, "REPLACE_SPECIAL").epsilon


def until_refused(world: StoredWorld, run: c.Object, bank: str = BANK_A) -> tuple[int, Outcome]:
    """How many such runs over both slices are charged, and the refusal of the next one."""
    for count in range(100):
        outcome = over(world, f"{bank[8:14]}-{world.size}", run, bank=bank)
        if outcome.code.word != "pending":
            return count, outcome
    raise AssertionError


def verified(world: StoredWorld) -> bool:
    """Whether the whole book replays: with the policies decided again, and with the recorded verdicts."""
    sizes = {verify_book(world.url, LOG, no_step, gate=decides).entries for decides in (gate, None)}
    return sizes == {world.size}


def test_a_lineage_and_a_run_stay_within_the_caps_of_a_person_over_both_slices(world: StoredWorld) -> None:
    """Before the date each slice had the whole caps, and a person lost more; what was admitted then replays."""
    found_slices(world, LEVEL_0)
    world.clock.now = SLICE_CAPS_SINCE_MS - 1
    before, full = until_refused(world, RUN)
    assert (before, full.code.word) == (13, "budget_exhausted")
    assert person(100 * before) > 4
    assert person(100) > 1
    world.clock.now += 1
    refused = over(world, "late", RUN, bank=BANK_B)
    assert faults(refused) == {"run_above_policy"}
    assert "one of 2 slices of stream digits of" in refused.detail
    assert "that a person may be in, 0.713165666 exceeds the maximum 0.5" in refused.detail
    assert over(world, "over", LIGHT).code.word == "budget_exhausted"
    count, full = until_refused(world, LIGHT, BANK_B)
    assert count > 1
    assert "the cap of ε 2 is that of policy health-policy version 1, for one of 2 slices of stream" in full.detail
    assert person(30) <= 1
    assert 2 < person(30 * count) <= 4
    assert verified(world)


def test_a_contract_caps_a_person_and_a_coalition_too(world: StoredWorld) -> None:
    """The contract's caps on a lineage and a run, and the coalition's, of which each slice has a half."""
    found_slices(world, {"level": 0}, agreed={"lineage": {"epsilon_max": "3.4"}, "run": {"epsilon_max": "1.2"}})
    from_the_date(world)
    assert faults(over(world, "above", RUN)) == {"run_above_contract"}
    count, full = until_refused(world, LIGHT)
    assert "the cap of ε 1.7 is that of contract digits-bank-a version 1, for one of 2 slices" in full.detail
    assert 1 < person(30 * count) <= Fraction("3.4")
    assert words([world.send(SRO, "coalition", {"members": [BANK_A, BANK_B], "epsilon": "3.7"}, "both")]) == [
        "permitted"
    ]
    more, full = until_refused(world, LIGHT, BANK_B)
    assert "an account of a coalition has no room on" in full.detail
    assert 0 < more < count
    assert 1 < person(30 * (count + more)) <= Fraction("3.7")
    assert verified(world)


def test_the_recorded_cap_of_a_coalition_is_decided_again(world: StoredWorld) -> None:
    """With and without the policies: each slice's part of it is in the entry of the charge."""
    found_slices(world, {"level": 0})
    from_the_date(world)
    (made,) = [world.send(SRO, "coalition", {"members": [BANK_A, BANK_B], "epsilon": "5"}, "both")]
    charged = over(world, "one", LIGHT)
    limits: Any = charged.body["limits"]
    assert made.index is not None
    caps = {limit["holder"]: limit["cap"]["epsilon"] for limit in limits}
    assert caps[holder_of(made.index)] == "2.5"
    assert verified(world)


def test_a_key_does_not_leave_when_a_coalition_is_over_a_slices_part(world: StoredWorld) -> None:
    """The release of keys is held to the same parts as a charge."""
    found_slices(world, {"level": 0})
    from_the_date(world)
    assert words([over(world, "mine", RUN), over(world, "theirs", RUN, bank=BANK_B)]) == ["pending"] * 2
    with world.read() as facts:
        slice_, own = facts.partitions[f"{DIGITS}/first"], facts.organisations[BANK_A].node
        account = facts.accounts[slice_.ref, holder_of(own)]
        both = read_rule(slice_.terms).odometer(account.loss + account.loss)
    assert Fraction("1.5") < both < 2
    assert words([world.send(SRO, "coalition", {"members": [BANK_A, BANK_B], "epsilon": "3"}, "both")]) == ["permitted"]
    (held,) = world.submit(world.release("mine", RUN))
    assert (held.code.word, "is over its cap" in held.detail) == ("conflict", True)
    assert verified(world)


@pytest.mark.parametrize("document", ["policy", "contract"])
def test_a_delta_of_a_cap_is_of_all_slices_together(world: StoredWorld, document: str) -> None:
    """A slice's δ is held against its part, not against the whole, of a charge and of an opening."""
    limits = {"delta_max": "0.000001", "epsilon_max": "4"}
    agreed = {"run": limits} if document == "contract" else {}
    found_slices(world, {"lineage": limits} if document == "policy" else {}, agreed=agreed)
    code = "lineage_delta_above_policy" if document == "policy" else "run_delta_above_contract"
    assert over(world, "early", LIGHT).code.word == "pending"
    from_the_date(world)
    refused = over(world, "late", LIGHT)
    assert faults(refused) == {code}
    assert "that a person may be in, 0.000000474258 exceeds the maximum 0.000000119202" in refused.detail
    opened = opening(world, "third", 2)
    assert faults(opened) == ({code} if document == "policy" else set())
    assert verified(world)


def test_a_delta_of_the_whole_budget_leaves_slices_open(world: StoredWorld) -> None:
    """A document that states the δ of the stream's budget is kept by every slice of it, whatever its ε."""
    limits = {"delta_max": "0.00001", "epsilon_max": "8"}
    found_slices(world, {"lineage": limits, "run": limits}, agreed={"run": limits})
    from_the_date(world)
    assert over(world, "one", LIGHT).code.word == "pending"
    assert opening(world, "third", 2).code.word == "permitted"


def test_a_cap_that_leaves_no_part_closes_the_slice_and_names_the_stream(world: StoredWorld) -> None:
    """Also one that is not open yet."""
    whole = ("6", "0.00001")
    found_slices(world, {"level": 0, "lineage": {"epsilon_max": "0.05"}}, appearances=8, budget=whole)
    assert over(world, "early", plan(1, "40")).code.word == "pending"
    from_the_date(world)
    closed = over(world, "late", plan(1, "40"))
    assert closed.code.word == "policy_denied"
    assert f"{DIGITS}/first, one of 8 slices of stream digits of" in closed.detail
    opened = opening(world, "third", 8, whole)
    assert (opened.code.word, "one of 8 slices of stream digits of" in opened.detail) == ("malformed", True)
    assert verified(world)


def test_slices_whose_persons_are_in_one_only_have_the_whole_caps(world: StoredWorld) -> None:
    """As many runs fit as before, and the bounds are the same."""
    found_slices(world, LEVEL_0, appearances=1, budget=("3", "0.000000474258"))
    from_the_date(world)
    assert until_refused(world, RUN)[0] == 13
    assert verified(world)


def pure(eighths: int) -> c.Object:
    """A run of so many eighths of a nat, at a δ of 0."""
    step: c.Object = {"epsilon": f"{Decimal(eighths) / 8}", "kind": "pure", "relation": "REPLACE_SPECIAL", "v": 1}
    return {"kind": "mechanism", "mechanism": step, "v": 1}


class Person:
    """Sums of ε, by slice and bank, as persons lose it who are in any of the slices: a book of its own."""

    def __init__(self, appearances: int, caps: dict[str, str]) -> None:
        """Caps by what they are of, in ε of one person."""
        self.appearances, self.caps = appearances, caps
        self.lost = {(name, bank): Fraction(0) for name in SLICES for bank in (BANK_A, BANK_B)}

    def part(self, whole: str) -> Fraction:
        """Of a cap, rounded down."""
        exact = Decimal(whole) / self.appearances
        return Fraction(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 5), ROUND_DOWN))

    def admits(self, inside: tuple[str, ...], bank: str, epsilon: Fraction) -> str:
        """What a charge of so much ε on these slices gets."""
        if epsilon > min(self.part(self.caps["run"]), self.part(self.caps["agreed run"])):
            return "policy_denied"
        lineage = min(self.part(self.caps[name]) for name in ("lineage", "agreed lineage", "budget"))
        together = min(self.part(self.caps[name]) for name in ("coalition", "budget"))
        for name in inside:
            own, both = self.lost[name, bank], self.lost[name, BANK_A] + self.lost[name, BANK_B]
            if own + epsilon > lineage or both + epsilon > together:
                return "budget_exhausted"
        for name in inside:
            self.lost[name, bank] += epsilon
        return "pending"

    def most(self, *banks: str) -> Fraction:
        """The most that one person may have lost to these banks together."""
        sums = (sum((self.lost[name, bank] for bank in banks), Fraction(0)) for name in SLICES)
        return sum(sorted(sums, reverse=True)[: self.appearances], Fraction(0))


@pytest.mark.parametrize("seed", range(6))
def test_no_person_passes_a_cap_by_any_runs_over_any_slices(world: StoredWorld, seed: int) -> None:
    """Random caps and runs: the book decides each charge as plain sums do, and these never pass a cap."""
    dice = Random(seed)  # noqa: S311 - runs to try
    appearances = dice.choice([2, 3])
    pick = {name: dice.choice(["1.3", "2.6", "3.7", "4.9"]) for name in ("lineage", "agreed lineage", "coalition")}
    caps = {**pick, "agreed run": "1.9", "budget": "4.7", "run": dice.choice(["1.3", "2.3"])}
    found_slices(
        world,
        {
            "level": 0,
            "lineage": {"epsilon_max": caps["lineage"]},
            "mechanisms": ["pure"],
            "run": {"epsilon_max": caps["run"]},
        },
        appearances=appearances,
        slices=SLICES,
        budget=(caps["budget"], "0"),
        agreed={"lineage": {"epsilon_max": caps["agreed lineage"]}, "run": {"epsilon_max": caps["agreed run"]}},
    )
    from_the_date(world)
    declared: c.Object = {"members": [BANK_A, BANK_B], "epsilon": caps["coalition"]}
    assert words([world.send(SRO, "coalition", declared, "both")]) == ["permitted"]
    model, got = Person(appearances, caps), set[str]()
    for number in range(40):
        first = dice.randrange(len(SLICES))
        inside = SLICES[first : dice.randint(first, len(SLICES) - 1) + 1]
        bank, eighths = dice.choice([BANK_A, BANK_B]), dice.randint(1, 6)
        outcome = over(world, f"run-{number}", pure(eighths), (inside[0], inside[-1]), bank)
        assert outcome.code.word == model.admits(inside, bank, Fraction(eighths, 8)), outcome.detail
        got.add(outcome.code.word)
        for one in (BANK_A, BANK_B):
            assert model.most(one) <= min(Fraction(caps["lineage"]), Fraction(caps["agreed lineage"]))
        assert model.most(BANK_A, BANK_B) <= Fraction(caps["coalition"])
    assert got >= {"pending", "budget_exhausted"}
    assert verified(world)
