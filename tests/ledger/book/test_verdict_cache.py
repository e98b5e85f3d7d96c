"""A verdict that is kept gives what the gate would give: never more and never longer; a difference stops the book."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import BookStopped
from ledger.commands.entry import Entry
from ledger.domain.facts import Facts
from ledger.domain.gate import Check, Request, Verdict
from policy.decisions.gate import gate
from tests.factories.documents import PARTITION, SMALL, plan
from tests.factories.people import BANK_A, BANK_B, DAY_MS, HOSPITAL, HOUR_MS, LOG, CleanRoom
from tests.factories.stored import StoredWorld, no_step
from tests.ledger.book.governed import publish, words


class Counting:
    """The real gate, and how often it was asked of charges."""

    def __init__(self) -> None:
        self.asked = self.asked_of_posts = 0
        self.denies = False

    def __call__(self, request: Request, facts: Facts) -> Verdict:
        """The real gate's verdict, until it denies."""
        self.asked += request.command.kind == "charge"
        self.asked_of_posts += request.command.kind == "post"
        found = gate(request, facts)
        if self.denies:
            return replace(found, permit=False, checks=(Check("changed", passed=False, text="it changed"),))
        return found


@pytest.fixture
def counting(world: StoredWorld) -> Counting:
    """The gate of the world's book; one charge of a small run was asked of it."""
    found = Counting()
    world.book.close()
    world.book = world.open(gate=found)
    assert words(world.submit(world.charge("first", run=SMALL))) == ["pending"]
    found.asked = 0
    return found


def test_charges_alike_are_asked_once(world: StoredWorld, counting: Counting) -> None:
    """Ten of one bank; another bank's is asked for by itself. Settlements between them change nothing."""
    for n in range(10):
        assert words(world.submit(world.charge(f"run-{n}", run=SMALL), world.settle(f"run-{n}", 0))) == [
            "pending",
            "posted",
        ]
    assert (counting.asked, counting.asked_of_posts) == (0, 1)
    assert words(world.submit(world.charge("other", BANK_B, SMALL), world.settle("other", 0, BANK_B))) == [
        "pending",
        "posted",
    ]
    assert counting.asked > 0
    assert counting.asked_of_posts == 2
    assert verify_book(world.url, LOG, no_step).charges == 12


def test_a_settlement_s_own_is_checked(world: StoredWorld, counting: Counting) -> None:
    """That its charge is pending, its own clean room sends it, and no more is posted than was charged."""
    assert words(world.submit(world.settle("first", 0))) == ["posted"]
    assert words(world.submit(world.charge("a", run=SMALL))) == ["pending"]
    much = world.settle("a", 2)
    other = world.command(BANK_A, "post", {"charge": "a", "steps": 1}, "post-other")
    assert words(world.submit(much, other)) == ["malformed", "not_authorised"]
    assert words(world.submit(world.command(BANK_A, "post", {"charge": "first", "steps": 0}, "x"))) == [
        "not_authorised"
    ]
    assert words(world.submit(world.void("first"))) == ["conflict"]
    assert counting.asked_of_posts == 1


def test_entries_that_are_put_together_of_parts_are_canonical(world: StoredWorld, counting: Counting) -> None:
    """Of a charge by a kept verdict, its settlement and a void: the bytes are those of the whole entry."""
    sent = (world.charge("a", run=SMALL), world.settle("a", 1), world.charge("b", run=SMALL), world.void("b"))
    before, outcomes = world.size, world.submit(*sent)
    assert words(outcomes) == ["pending", "posted", "pending", "voided"]
    assert counting.asked == 0
    with world.book.read() as facts:
        stored = [facts.entry(index) for index in range(before, facts.size)]
    # What is parsed must be canonical, and it is written again from its parsed body.
    assert [Entry.parse(data).to_bytes() for data in stored] == stored
    assert [Entry.parse(data).body for data in stored] == [one.body for one in outcomes]


def test_whatever_is_no_run_drops_them(world: StoredWorld, counting: Counting) -> None:
    """A retired partition takes no charge more, and a policy that was entered is asked at once."""
    publish(world, 2, run={"epsilon_max": "0.001"}, lineage={"epsilon_max": "3"})
    assert words(world.submit(world.charge("after", run=SMALL))) == ["policy_denied"]
    assert counting.asked > 0


def test_a_retired_partition_takes_none(world: StoredWorld, counting: Counting) -> None:
    """Nor in the same call as its retirement."""
    retire = world.command(HOSPITAL, "retirement", {"partition": PARTITION}, "retire")
    assert words(world.submit(world.charge("a", run=SMALL), retire, world.charge("b", run=SMALL))) == [
        "pending",
        "permitted",
        "policy_denied",
    ]
    assert counting.asked > 0


def test_time_ends_them(world: StoredWorld, counting: Counting) -> None:
    """Nothing is entered, and the contract is over: the gate is asked, and denies."""
    with world.book.read() as facts:
        ends = facts.contracts[world.contracts[BANK_A]].ends
    world.clock.now = ends - 1
    assert words(world.submit(world.charge("last", run=SMALL))) == ["pending"]
    world.clock.now = ends
    assert words(world.submit(world.charge("late", run=SMALL))) == ["policy_denied"]
    assert counting.asked > 0


def test_what_is_a_charge_s_own_is_checked(world: StoredWorld, counting: Counting) -> None:
    """Its deadline and its clean room, with the words of a decision in full."""
    past = world.charge("past", run=SMALL, deadline=world.clock.now)
    far = world.charge("far", run=SMALL, deadline=world.clock.now + 31 * DAY_MS)
    used = world.charge("used", run=SMALL, clean_room=CleanRoom("first").to_json())
    fields = [(one.code.word, one.field) for one in world.submit(past, far, used)]
    assert fields == [("malformed", "body.deadline")] * 2 + [("conflict", "body.clean_room.signing")]
    assert counting.asked == 0


def test_a_full_account_refuses_with_every_reason(world: StoredWorld, counting: Counting) -> None:
    """What does not fit is decided in full, and replay comes to the same refusal."""
    outcomes = world.submit(*(world.charge(f"run-{n}") for n in range(10)))
    assert words(outcomes)[-1] == "budget_exhausted"
    asked = counting.asked
    (again,) = world.submit(world.charge("more"))
    assert counting.asked > asked
    assert again.detail == outcomes[-1].detail
    assert verify_book(world.url, LOG, no_step).entries == world.size


def test_a_verdict_that_differs_stops_the_book(
    world: StoredWorld, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of so many is decided in full too: a gate that changed its mind without an entry is found out."""
    monkeypatch.setattr("ledger.commands.verdict_cache.SAMPLE", 4)
    world.clock.now += HOUR_MS // 2
    counting.denies = True
    assert words(world.submit(*(world.charge(f"run-{n}", run=SMALL) for n in range(3)))) == ["pending"] * 3
    with pytest.raises(BookStopped, match="run-3 was admitted by a cached verdict, and is not without it"):
        world.submit(world.charge("run-3", run=SMALL))
    world.reopen()
    with world.book.read() as facts:
        assert facts.entry_index("run-3") is None


def test_a_settlement_that_would_be_denied_in_full_stops_the_book(
    world: StoredWorld, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of what is no charge."""
    monkeypatch.setattr("ledger.commands.verdict_cache.SAMPLE", 4)
    sent = (world.settle("first", 0), *(world.charge(f"run-{n}", run=SMALL) for n in range(3)))
    assert words(world.submit(*sent)) == ["posted", "pending", "pending", "pending"]
    counting.denies = True
    with pytest.raises(BookStopped, match="post post-run-0 has a cached permit, and none in full"):
        world.submit(world.settle("run-0", 0))


@pytest.mark.parametrize("seed", range(2))
def test_room_is_counted_to_the_last_run(world: StoredWorld, seed: int) -> None:
    """Runs in streaks, of two plans and two banks, with settlements between: what replay admits in full, to the end."""
    source = random.Random(seed)  # noqa: S311 - a seed names the case
    plans, refused, sent = (plan(), plan(30)), 0, 0
    pending: list[tuple[str, str]] = []
    while refused < 12:
        run, bank = source.choice(plans), source.choice((BANK_A, BANK_B))
        names = [f"run-{sent + n}" for n in range(source.randint(1, 6))]
        sent += len(names)
        found = words(world.submit(*(world.charge(name, bank, run) for name in names)))
        pending += [(name, bank) for name, word in zip(names, found, strict=True) if word == "pending"]
        refused += found.count("budget_exhausted")
        if pending and source.random() < 0.7:
            name, owner = pending.pop(source.randrange(len(pending)))
            assert words(world.submit(world.settle(name, source.choice((0, 1, 20)), owner))) == ["posted"]
    assert len(pending) > 2
    # Each is decided by itself there, and none by what fitted before it.
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size
