"""What is due by itself: lapses that wait for nobody, quotes that know of them, and a writer that never prices."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Engine, event

from ledger.accounts.pricing import CollectedPrices, PriceMissing
from ledger.book.book import BookBusy
from ledger.book.pricing.pricing_turns import AT_ONCE
from ledger.commands.entry import Entry
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from ledger.wire.malformed import Malformed
from policy.decisions.gate import gate
from tests.factories.documents import NOW, SMALL, contract, plan
from tests.factories.people import HOSPITAL, HOUR_MS, MERGED
from tests.factories.stored import StoredWorld
from tests.ledger.book.governed import publish

LIMIT_S = 30


def test_a_charge_lapses_without_a_command(world: StoredWorld) -> None:
    """The writer wakes at the deadline by itself; nobody asks, and the headroom is back."""
    assert world.submit(world.charge("soon", run=SMALL, deadline=NOW + 300))[0].code.word == "pending"
    world.clock.now = NOW + 301
    until = time.monotonic() + LIMIT_S
    while world.size < 12 and time.monotonic() < until:
        pass
    with world.book.read() as facts:
        entry = Entry.parse(facts.entry(11))
        assert (entry.kind, entry.time) == ("lapse", NOW + 301)
        assert facts.charges["soon"].state is ChargeState.VOIDED


def test_a_quote_is_what_a_command_would_get_after_lapses(world: StoredWorld) -> None:
    """Full with what is past its deadline is not full; and the quote itself is not recorded."""
    sent = [world.charge(f"run-{n}") for n in range(9)]
    assert [one.code.word for one in world.submit(*sent)] == [*["pending"] * 8, "budget_exhausted"]
    assert world.book.quote(world.charge("more")).code.word == "budget_exhausted"
    world.clock.now += HOUR_MS + 1
    quoted = world.book.quote(world.charge("more"))
    assert quoted.code.word == "pending"
    assert world.submit(world.charge("more"))[0].body["prices"] == quoted.body["prices"]
    assert world.size == 10 + 9 + 8 + 1


def test_a_quote_does_not_go_back_in_time(world: StoredWorld) -> None:
    """A clock that jumped back is not believed: the next entry would not either."""
    early = world.charge("early", run=SMALL, deadline=NOW + 1_000)
    world.clock.now = NOW + 2_000
    world.submit(world.charge("first", run=SMALL))
    world.clock.now = NOW
    assert world.book.quote(early).code.word == "malformed"
    assert world.submit(early)[0].code.word == "malformed"


class Watch:
    """A gate that sees who asks it: outside the writer, nobody may be inside a transaction, and few at once."""

    def __init__(self) -> None:
        self.inside = threading.local()
        self.lock = threading.Lock()
        self.now = self.most = self.asked = 0

    def __call__(self, request: Request, facts: Facts) -> Verdict:
        """The real gate's verdict."""
        if threading.current_thread().name == "book-writer":
            return gate(request, facts)
        assert not getattr(self.inside, "depth", 0), "a snapshot is held while a run is priced"
        with self.lock:
            self.now, self.asked = self.now + 1, self.asked + 1
            self.most = max(self.most, self.now)
        try:
            return gate(request, facts)
        finally:
            with self.lock:
                self.now -= 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count each thread's transactions while the block runs."""

        def enter(connection: object) -> None:
            del connection
            self.inside.depth = getattr(self.inside, "depth", 0) + 1

        def leave(connection: object) -> None:
            del connection
            self.inside.depth = getattr(self.inside, "depth", 1) - 1

        happening = (("begin", enter), ("commit", leave), ("rollback", leave))
        for name, listener in happening:
            event.listen(Engine, name, listener)
        try:
            yield
        finally:
            for name, listener in happening:
                event.remove(Engine, name, listener)


def test_no_snapshot_is_held_while_a_run_is_priced(world: StoredWorld) -> None:
    """Twenty new runs at once, more than there are connections; no more are priced together than can be."""
    watch = Watch()
    world.book.close()
    world.book = world.open(gate=watch)
    sent = [[world.charge(f"run-{n}", run=plan(1, f"{200 + n}"))] for n in range(20)]
    with watch.watching(), ThreadPoolExecutor(20) as threads:
        words = [found[0].code.word for found in threads.map(world.book.submit, sent)]
    assert words == ["pending"] * 20
    assert watch.asked == 20
    assert 1 <= watch.most <= AT_ONCE


class Held(Watch):
    """A gate at which workers wait until a test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def __call__(self, request: Request, facts: Facts) -> Verdict:
        """The real gate's verdict."""
        assert threading.current_thread().name == "book-writer" or self.go.wait(LIMIT_S)
        return super().__call__(request, facts)


def test_calls_alike_that_wait_for_a_price_share_it(world: StoredWorld) -> None:
    """More than workers: what the first of them compute serves all others, so that none waits for many turns."""
    held, calls = Held(), 4 * AT_ONCE
    world.book.close()
    world.book = world.open(gate=held)
    sent = [[world.charge(f"run-{n}", run=plan(1, "77"))] for n in range(calls)]
    with ThreadPoolExecutor(calls) as threads:
        waiting = [threads.submit(world.book.submit, one) for one in sent]
        # Whoever was before it has been found without a price by now.
        assert world.submit(world.settle("none", 0))[0].code.word == "signature_invalid"
        held.go.set()
        words = [one.result()[0].code.word for one in waiting]
    assert words == ["pending"] * calls
    assert 1 <= held.asked <= AT_ONCE


def test_what_was_not_priced_is_priced_by_a_worker(world: StoredWorld) -> None:
    """A run under a contract that comes just before it in its call: the writer has no price, and computes none."""
    world.contracts[MERGED] = c.digest(c.dump(contract(MERGED)))
    watch = Watch()
    world.book.close()
    world.book = world.open(gate=watch)
    entered = world.document("contract", contract(MERGED), "contract-ab", MERGED, MERGED, HOSPITAL)
    with watch.watching():
        outcomes = world.submit(world.charge("early", MERGED, plan(1, "77")), entered, world.charge("x", MERGED, SMALL))
    assert [one.code.word for one in outcomes] == ["not_found", "permitted", "pending"]
    assert watch.asked == 1


def test_a_run_whose_prices_keep_changing_is_not_decided(world: StoredWorld) -> None:
    """Each time it comes back from a worker its caps are others, so what was computed is of no use."""

    def restless(request: Request, facts: Facts) -> Verdict:
        verdict = gate(request, facts)
        if threading.current_thread().name != "book-writer":
            return verdict
        caps = ((ref, replace(one, lineage=Fraction(next(numbers), 1_000))) for ref, one in verdict.caps)
        return replace(verdict, caps=tuple(caps))

    numbers = count(1_001)
    world.book.close()
    world.book = world.open(gate=restless)
    with pytest.raises(BookBusy, match="change faster than the command is priced"):
        world.submit(world.charge("restless", run=SMALL))
    assert world.size == 10


def test_a_price_of_another_policy_is_never_used(world: StoredWorld) -> None:
    """The same plan under a new cap: its cached prices lack the new capacity, so it is priced again, and charged."""
    (first,) = world.submit(world.charge("first", run=SMALL))
    publish(world, 2, lineage={"epsilon_max": "3"}, run={"epsilon_max": "3"})
    (second,) = world.submit(world.charge("second", run=SMALL))
    limits: list[Any] = [first.body["limits"], second.body["limits"]]
    caps = [{limit["cap"]["epsilon"] for limit in one} for one in limits]
    assert (first.code.word, second.code.word, caps) == ("pending", "pending", [{"5", "6"}, {"3", "6"}])


def test_prepared_prices_compute_nothing() -> None:
    """A number that was not prepared is missing; one that was is the same, and so is its error."""
    collected = CollectedPrices()
    assert collected.number(int, "3") == 3
    with pytest.raises(Malformed) as error:
        collected.number(parse_number, "many", "epsilon")
    prepared = collected.prepared()
    with pytest.raises(Malformed) as again:
        prepared.number(parse_number, "many", "epsilon")
    assert again.value is error.value
    assert (prepared.number(int, "3"), prepared.count) == (3, 2)
    with pytest.raises(PriceMissing):
        prepared.number(int, "4")


def test_a_run_that_stays_refused_is_answered(world: StoredWorld) -> None:
    """However much is recorded meanwhile: eight at once under no contract, among eight that are charged."""
    nowhere = "0" * 64
    sent = [
        world.charge(f"run-{n}", run=SMALL, contract=nowhere) if n % 2 else world.charge(f"run-{n}", run=SMALL)
        for n in range(16)
    ]
    calls = [[one] for one in sent]
    with ThreadPoolExecutor(16) as threads:
        words = [found[0].code.word for found in threads.map(world.book.submit, calls)]
    assert words == ["pending", "not_found"] * 8


@pytest.mark.parametrize("late", ["post", "key_release", "void"])
def test_what_comes_after_the_deadline_is_a_conflict(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """However many lapses are due before it: those of one batch are bounded, and here it records none by itself."""
    monkeypatch.setattr("ledger.book.batch.LAPSES_MAX", 0)
    world.submit(*(world.charge(f"run-{n}", run=SMALL) for n in range(3)))
    world.submit(world.release("run-2", SMALL))
    world.clock.now += 2 * HOUR_MS
    name = {"post": "run-2", "key_release": "run-1", "void": "run-0"}[late]
    make = {"post": lambda: world.settle(name, 0), "key_release": lambda: world.release(name, SMALL)}
    outcome = world.submit(make.get(late, lambda: world.void(name))())[0]
    assert (outcome.code.word, outcome.field) == ("conflict", "body.charge")
    with world.book.read() as facts:
        states = {one: facts.charges[f"run-{one}"].state for one in range(3)}
        steps = facts.charges["run-2"].steps_posted
    settled = int(name.removeprefix("run-"))
    assert [one for one, state in states.items() if state is not ChargeState.PENDING] == [settled]
    assert steps == (facts.charges["run-2"].steps if late == "post" else None)
