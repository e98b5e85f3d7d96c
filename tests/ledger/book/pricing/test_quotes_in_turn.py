"""Quotes and charges of one organisation wait for its own turns: those of another are served, and no thread waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.book.call_queue import Call
from ledger.book.pricing.pricing_turns import TURNS_MAX
from ledger.book.submitted_command import BookStopped, Outcome, PricingRefused
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from policy.decisions.gate import gate
from tests.factories.documents import SMALL, plan
from tests.factories.people import BANK_A, BANK_B
from tests.factories.stored import StoredWorld, open_world

WAIT_S = 60


class HeldGate:
    """The real gate, at which workers wait with a bank's commands until they are let go; counts what they priced."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.priced: list[str] = []

    def __call__(self, request: Request, facts: Facts) -> Verdict:
        """The real gate's verdict."""
        if threading.current_thread().name != "book-writer" and request.command.actor == BANK_A:
            self.priced.append(request.command.id)
            self.begun.set()
            assert self.go.wait(WAIT_S)
        return gate(request, facts)


@pytest.fixture
def held() -> HeldGate:
    """Nothing is let go yet."""
    return HeldGate()


@pytest.fixture
def world(tmp_path: Path, held: HeldGate) -> Iterator[StoredWorld]:
    """A book that decides by this gate."""
    with open_world(tmp_path) as found:
        found.book.close()
        found.book = found.open(gate=held)
        yield found
        held.go.set()


def test_a_charge_is_recorded_beside_a_flood_of_charges_and_quotes(world: StoredWorld, held: HeldGate) -> None:
    """A bank's new runs wait behind its first one; another bank's new run has its price meanwhile."""
    flood = [world.charge(f"a-{number}", BANK_A, plan(1, f"{200 + number}")) for number in range(4)]
    asked = [world.charge(f"q-{number}", BANK_A, plan(1, f"{300 + number}")) for number in range(4)]
    with ThreadPoolExecutor(2 * len(flood)) as threads:
        charges = [threads.submit(world.book.submit, [one]) for one in flood]
        quotes = [threads.submit(world.book.quote, one) for one in asked]
        assert held.begun.wait(WAIT_S)
        assert world.submit(world.charge("b", BANK_B, plan(1, "77")))[0].code.word == "pending"
        assert world.book.quote(world.charge("b-2", BANK_B, plan(1, "78"))).code.word == "pending"
        assert not any(one.done() for one in charges)
        assert not any(one.done() for one in quotes)
        held.go.set()
        assert [one.result(WAIT_S)[0].code.word for one in charges] == ["pending"] * len(flood)
        assert {one.result(WAIT_S).code.word for one in quotes} == {"pending"}


def test_no_thread_waits_for_the_turn_of_a_quote(world: StoredWorld, held: HeldGate) -> None:
    """More coroutines than their line holds: the rest is refused, and a thread more is not there."""
    sent = [world.charge(f"a-{number}", BANK_A, SMALL) for number in range(TURNS_MAX + 9)]

    async def flood() -> tuple[int, list[object]]:
        first = asyncio.create_task(world.book.quote_async(sent[0]))
        await asyncio.to_thread(held.begun.wait, WAIT_S)
        before = threading.active_count()
        others = [asyncio.create_task(world.book.quote_async(one)) for one in sent[1:]]
        await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        more = threading.active_count() - before
        held.go.set()
        return more, await asyncio.gather(first, *others, return_exceptions=True)

    more, found = asyncio.run(flood())
    refused = [one for one in found if isinstance(one, PricingRefused)]
    assert (more, len(refused), found.index(refused[0])) == (0, 8, 1 + TURNS_MAX)
    assert {one.code.word for one in found if isinstance(one, Outcome)} == {"pending"}
    assert len(refused) + sum(isinstance(one, Outcome) for one in found) == len(found)


def test_a_charge_beyond_the_line_is_refused_and_recorded_when_it_is_sent_again(
    world: StoredWorld, held: HeldGate
) -> None:
    """Nothing of it is priced or recorded; those that wait get their outcomes."""
    flood = [world.charge(f"a-{number}", BANK_A, SMALL) for number in range(1 + TURNS_MAX)]
    over = world.charge("over", BANK_A, plan(1, "7"))

    async def send_all() -> set[str]:
        first = asyncio.create_task(world.book.quote_async(flood[0]))
        await asyncio.to_thread(held.begun.wait, WAIT_S)
        others = [asyncio.create_task(world.book.quote_async(one)) for one in flood[1:]]
        # By then each has its turn.
        await asyncio.sleep(0)
        with pytest.raises(PricingRefused, match="wait to be priced") as caught:
            await world.book.submit_async([over])
        assert (caught.value.wait_s, caught.value.decided) == (0, [])
        held.go.set()
        return {one.code.word for one in await asyncio.gather(first, *others)}

    assert asyncio.run(send_all()) == {"pending"}
    assert not world.recorded("over")
    assert "over" not in held.priced
    assert world.submit(over)[0].code.word == "pending"


def test_a_quote_that_waits_when_the_book_is_closed_is_not_cancelled(world: StoredWorld, held: HeldGate) -> None:
    """Its caller was not: it gets BookStopped, as one does that comes later, in a coroutine and in a thread."""
    sent = [world.charge(f"a-{number}", BANK_A, SMALL) for number in range(5)]

    async def close() -> list[object]:
        first = asyncio.create_task(world.book.quote_async(sent[0]))
        await asyncio.to_thread(held.begun.wait, WAIT_S)
        others = [asyncio.create_task(world.book.quote_async(one)) for one in sent[1:]]
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(world.book.close))
        # The first one's turn goes on: the writer ends before what it was to look at.
        found = await asyncio.gather(*others, return_exceptions=True)
        held.go.set()
        await asyncio.gather(closing, first, return_exceptions=True)
        return [*found, *await asyncio.gather(world.book.quote_async(sent[0]), return_exceptions=True)]

    assert {type(one) for one in asyncio.run(close())} == {BookStopped}
    with pytest.raises(BookStopped):
        world.book.quote(sent[0])


def test_a_long_call_leaves_its_turn_to_another_organisation(
    world: StoredWorld, held: HeldGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on in another turn, once what was priced is decided, and all of it is recorded."""
    monkeypatch.setattr("ledger.book.prepare.TURN_S", -1.0)
    held.go.set()
    turns, pricing = list[int](), world.book._writer.pricing  # noqa: SLF001 - which gives calls their turns
    work = pricing._price_call  # noqa: SLF001 - what a turn of a call does

    def counted(call: Call, since: float) -> None:
        turns.append(len(call.waiting))
        work(call, since)

    monkeypatch.setattr(pricing, "_price_call", counted)
    call = [world.charge(f"a-{number}", BANK_A, plan(1, f"{200 + number}")) for number in range(4)]
    assert [one.code.word for one in world.submit(*call)] == ["pending"] * 4
    assert turns == [4, 3, 2, 1]


def test_a_call_ends_where_the_quota_does(world: StoredWorld, held: HeldGate) -> None:
    """What was priced within it is recorded; the rest is neither priced nor recorded, and is when there is room."""
    held.go.set()
    world.book.meter_pricing(lambda _actor, _seconds: None, lambda _actor: 90.0 * (len(held.priced) >= 2))
    call = [world.charge(f"a-{number}", BANK_A, plan(1, f"{200 + number}")) for number in range(5)]
    with pytest.raises(PricingRefused, match="quota of seconds of pricing is used up") as caught:
        world.submit(*call)
    assert caught.value.wait_s == 90
    assert [(one.id, one.code.word) for one in caught.value.decided] == [("a-0", "pending"), ("a-1", "pending")]
    assert [world.recorded(f"a-{number}") for number in range(5)] == [True, True, False, False, False]
    assert held.priced == ["a-0", "a-1"]
    world.book.meter_pricing(lambda _actor, _seconds: None, lambda _actor: 0.0)
    again = world.submit(*call)
    assert [(one.code.word, one.repeated) for one in again] == [("pending", True)] * 2 + [("pending", False)] * 3
