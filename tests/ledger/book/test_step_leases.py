"""Step leases in a stored book: lost answers, a book opened anew, copies that race, and any order of requests."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.audit.replay import verify_book
from ledger.book.book import Book, Outcome, Submission
from ledger.commands.runs.step_lease import GENERATIONS_MAX, LEASES_MAX
from ledger.domain.charge_record import StepLeases
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import dense_plan
from tests.factories.people import BANK_A, LOG, CleanRoom
from tests.factories.statements import state_now
from tests.factories.stored import ENGINES, StoredWorld, no_step, open_world
from tests.ledger.book.state.test_open_state import writer

STEPS = 1_000
PLAN = dense_plan(STEPS, noise="40", probability="0.01")
ROUNDS = 10


@pytest.fixture(scope="module", params=ENGINES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """One book, whose runs share a name with nobody."""
    with open_world(tmp_path_factory.mktemp("book"), request.param, founded=False) as world:
        world.found(*world.founding_with(partitions={"2026-q4": {"epsilon": "8"}}))
        yield world


def begun(world: StoredWorld) -> str:
    """A pending run that leases its steps, with its keys released."""
    name = f"run-{secrets.token_hex(8)}"
    charged, released = world.submit(world.charge(name, run=PLAN, step_leases=True), world.release(name, PLAN))
    assert (charged.code.word, released.code.word) == ("pending", "permitted"), (charged, released)
    return name


def lease(world: StoredWorld, run: str, first: int, last: int, generation: int = 1) -> Submission:
    """A request for steps, under an id of its own."""
    body: c.Object = {"charge": run, "first": first, "generation": generation, "last": last, "state": "ab" * 32}
    return world.command(BANK_A, "step_lease", body, f"lease-{secrets.token_hex(32)}", CleanRoom(run).signer)


def take_over(world: StoredWorld, run: str) -> Submission:
    """A new generation."""
    room, nonce = CleanRoom(run), world.nonce(run)
    body: c.Object = {"charge": run, "evidence": world.evidence(run, room, PLAN, nonce), "nonce": nonce}
    return world.command(BANK_A, "run_generation", body, f"generation-{secrets.token_hex(8)}", room.signer)


def words(outcomes: list[Outcome]) -> list[str]:
    """Their codes."""
    return [one.code.word for one in outcomes]


def test_a_lost_answer_is_given_again_and_a_copy_is_refused(world: StoredWorld) -> None:
    """The same request gets the same entry, after the book was opened anew too; another id for its steps a conflict."""
    run = begun(world)
    asked = lease(world, run, 1, 10)
    (first,), (again,) = world.submit(asked), world.submit(asked)
    world.reopen()
    (later,), (copy,) = world.submit(asked), world.submit(lease(world, run, 1, 10))
    assert (first.repeated, again.repeated, later.repeated) == (False, True, True)
    assert first.index == again.index == later.index
    assert (copy.code.word, copy.field) == ("conflict", "body.first")
    assert words(world.submit(lease(world, run, 11, 20))) == ["permitted"]


def test_a_generation_is_told_what_is_leased_and_ends_the_one_before(world: StoredWorld) -> None:
    """Its entry has its number and the steps that are leased; the older one's next request names the field."""
    run = begun(world)
    leased, taken, old, new = world.submit(
        lease(world, run, 1, 10), take_over(world, run), lease(world, run, 11, 20), lease(world, run, 11, 20, 2)
    )
    assert words([leased, taken, old, new]) == ["permitted", "permitted", "conflict", "permitted"]
    assert (taken.body["generation"], taken.body["leased"], old.field) == (2, 10, "body.generation")


def test_of_copies_that_ask_at_once_one_gets_the_steps(world: StoredWorld) -> None:
    """Two threads, released by a barrier, each round: one permit, one conflict."""
    run = begun(world)
    for number in range(ROUNDS):
        first = 10 * number + 1
        barrier, found = threading.Barrier(2), list[str]()

        def ask(asked: Submission, barrier: threading.Barrier = barrier, found: list[str] = found) -> None:
            barrier.wait()
            found.extend(words(world.submit(asked)))

        threads = [threading.Thread(target=ask, args=(lease(world, run, first, first + 9),)) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert sorted(found) == ["conflict", "permitted"]


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.soak)])
def test_of_copies_at_two_services_one_gets_the_steps(tmp_path: Path, rounds: int) -> None:
    """Each copy asks a book of its own on one database; of every block one gets a lease, and either may be first."""
    with open_world(tmp_path, "postgresql", founded=False) as world:
        world.found(*world.founding_with(partitions={"2026-q4": {"epsilon": "8"}}))
        run = begun(world)
        with closing(world.open()) as other:
            for first in range(1, rounds + 1):
                barrier, asked = threading.Barrier(2), [lease(world, run, first, first) for _ in range(2)]

                def ask(book: Book, one: Submission, barrier: threading.Barrier = barrier) -> str:
                    barrier.wait()
                    return book.submit([one])[0].code.word

                with ThreadPoolExecutor(2) as threads:
                    found = [*threads.map(ask, (world.book, other), asked)]
                assert sorted(found) == ["conflict", "permitted"]
        with world.read() as facts:
            leases = facts.charges[run].leases
        assert leases is not None
        assert (leases.steps, leases.granted) == (rounds, rounds)


def test_leases_and_generations_are_bounded(world: StoredWorld) -> None:
    """As many as there may be, and no more; the steps are then posted all the same."""
    run, room = begun(world), None
    assert set(words(world.submit(*(lease(world, run, at, at) for at in range(1, LEASES_MAX + 1))))) == {"permitted"}
    taken = world.submit(*(take_over(world, run) for _ in range(GENERATIONS_MAX - 1)))
    assert set(words(taken)) == {"permitted"}
    over = world.submit(lease(world, run, LEASES_MAX + 1, STEPS, GENERATIONS_MAX), take_over(world, run))
    assert words(over) == ["conflict", "conflict"]
    room = CleanRoom(run).signer
    body: c.Object = {"charge": run, "generation": GENERATIONS_MAX, "model": "ab" * 32, "steps": LEASES_MAX}
    assert world.send(BANK_A, "post", body, f"post-{run}", room).code.word == "posted"


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.integers(1, 40)), max_size=12))
def test_in_any_order_no_step_is_leased_twice(ledger: StoredWorld, asked: list[tuple[int, bool, int]]) -> None:
    """Two copies lease by what each believes, and take over when they like: as sets of steps say it."""
    run, taken, live = begun(ledger), set[int](), 1
    generations, believed = [1, 1], [0, 0]
    for copy, takes_over, size in asked:
        if takes_over:
            (outcome,) = ledger.submit(take_over(ledger, run))
            live += 1
            assert outcome.body["leased"] == len(taken)
            generations[copy], believed[copy] = live, len(taken)
            continue
        first = believed[copy] + 1
        steps = {*range(first, first + size)}
        right = generations[copy] == live and not steps & taken and first == len(taken) + 1
        (outcome,) = ledger.submit(lease(ledger, run, first, first + size - 1, generations[copy]))
        assert (outcome.code.word == "permitted") == right
        if right:
            taken |= steps
            believed[copy] += size
    assert taken == {*range(1, len(taken) + 1)}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """A book in a file."""
    with open_world(tmp_path_factory.mktemp("any order"), "sqlite", founded=False) as world:
        world.found(*world.founding_with(partitions={"2026-q4": {"epsilon": "8"}}))
        yield world


def test_a_book_with_leases_is_verified(tmp_path: Path) -> None:
    """Every lease is decided again, and the statements of state between them cover what was leased then."""
    with open_world(tmp_path, founded=False) as world:
        world.found()
        run = begun(world)
        assert words(world.submit(lease(world, run, 1, 10), take_over(world, run))) == ["permitted", "permitted"]
        state_now(world.book)
        (newest,) = world.submit(lease(world, run, 11, 20, 2))
        assert newest.code.word == "permitted"
        state_now(world.book)
        body: c.Object = {"charge": run, "generation": 2, "model": "ab" * 32, "steps": 20}
        with world.read() as facts:
            leases = facts.charges[run].leases
        assert leases == StepLeases(generation=2, steps=20, before=10, newest=newest.id, granted=2)
        posted = world.send(BANK_A, "post", {**body, "lease": newest.id}, f"post-{run}", CleanRoom(run).signer)
        assert posted.code.word == "posted"
        state_now(world.book)
        # What made the settled charge again: its own entry, its key release and its post, however many leases it had.
        assert len(writer(world).records.positions(run)) == 3
        report = verify_book(world.url, LOG, no_step, gate=gate)
        assert (report.entries, report.decided, report.judged) == (world.size, True, True)
