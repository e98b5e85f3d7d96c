"""Leased steps that were not taken come back by the policies alone, and a lapse posts what was leased."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome
from ledger.commands.entry import Entry
from ledger.domain.charge_record import StepLeases
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import dense_plan
from tests.factories.people import BANK_A, HOUR_MS, LOG, CleanRoom
from tests.factories.statements import state_now
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.factories.world import World
from tests.ledger.book.governed import faults, publish

STEPS = 40
PLAN = dense_plan(STEPS, noise="40", probability="0.01")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """A book in a file, whose policy a test publishes anew."""
    with open_world(tmp_path_factory.mktemp("refunds"), "sqlite", founded=False) as world:
        world.found(*world.founding_with(partitions={"2026-q4": {"epsilon": "8"}}))
        yield world


def state(world: StoredWorld, refund: str | None) -> None:
    """Another policy, with this word or without one."""
    world.clock.now = (world.clock.now // 1_000 + 1) * 1_000
    with world.read() as facts:
        last = facts.policies["health"][-1].version
    publish(world, last + 1, refund=refund)


def begun(world: StoredWorld) -> str:
    """A pending run with its keys released."""
    run = f"run-{secrets.token_hex(8)}"
    done = world.submit(world.charge(run, run=PLAN, step_leases=True), world.release(run, PLAN))
    assert [one.code.word for one in done] == ["pending", "permitted"], done
    return run


def lease(world: World, run: str, span: tuple[int, int], taken: int | None, generation: int = 1) -> Outcome:
    """A lease of a span of steps that says how many steps are taken, or does not."""
    body: c.Object = {"charge": run, "first": span[0], "generation": generation, "last": span[1], "state": "ab" * 32}
    body |= {} if taken is None else {"output": "cd" * 32, "taken": taken}
    return world.send(BANK_A, "step_lease", body, f"lease-{secrets.token_hex(32)}", CleanRoom(run).signer)


def take_over(world: StoredWorld, run: str) -> Outcome:
    """A new generation."""
    room, nonce = CleanRoom(run), world.nonce(run)
    body: c.Object = {"charge": run, "evidence": world.evidence(run, room, PLAN, nonce), "nonce": nonce}
    return world.send(BANK_A, "run_generation", body, f"generation-{secrets.token_hex(8)}", room.signer)


def post(world: World, run: str, steps: int, *, attested: bool = False, **changes: c.Json) -> Outcome:
    """A post as the ledger's own facts ask for it, with ``changes``; None takes a member away."""
    with world.read() as facts:
        held = facts.charges[run].leases
    assert held is not None
    body: dict[str, Any] = {"chain": held.chain or None, "charge": run, "generation": held.generation, "steps": steps}
    body |= {"lease": held.newest or None}
    if attested:
        nonce = world.nonce(run)
        body |= {"evidence": world.evidence(run, CleanRoom(run), PLAN, nonce), "nonce": nonce}
    sent = {name: value for name, value in {**body, **changes}.items() if value is not None}
    return world.send(BANK_A, "post", sent, f"post-{secrets.token_hex(8)}", CleanRoom(run).signer)


def posted(world: StoredWorld, run: str) -> int | None:
    """The steps that a charge is posted for."""
    found = world.charge_read(run)
    assert found is not None
    return found.steps_posted


def test_leased_steps_return_on_the_word_that_the_policy_takes(ledger: StoredWorld) -> None:
    """From the live generation, by its chain, and none that a lease says was taken; the entry says how many and why."""
    state(ledger, "stated")
    run = begun(ledger)
    for first, taken in ((1, 0), (11, 7)):
        assert lease(ledger, run, (first, first + 9), taken).code.word == "permitted"
    for steps, changes, field in (
        (12, {"chain": "ab" * 32}, "body.chain"),
        (12, {"chain": None}, "body.steps"),
        (6, {}, "body.steps"),
        (12, {"generation": 2}, "body.generation"),
        (12, {"lease": None}, "body.lease"),
    ):
        refused = post(ledger, run, steps, **changes)
        assert (refused.code.word, refused.field) == ("conflict", field), (steps, changes)
    done = post(ledger, run, 7)
    assert (done.code.word, done.body["returned"]) == ("posted", {"refund": "stated", "steps": 13})
    assert posted(ledger, run) == 7


def test_attested_asks_for_fresh_evidence(ledger: StoredWorld) -> None:
    """Without it the ledger refuses; with evidence for another nonce the policy does; and for another charge."""
    state(ledger, "attested")
    run, other = begun(ledger), begun(ledger)
    assert lease(ledger, run, (1, 10), 0).code.word == "permitted"
    assert post(ledger, run, 5).field == "body.evidence"
    assert post(ledger, run, 10, attested=True).code.word == "malformed"
    denied = post(ledger, run, 5, attested=True, nonce=c.base64url(b"another" * 4 + b"one!"))
    assert (denied.code.word, faults(denied)) == ("policy_denied", {"attestation_nonce"})
    foreign = ledger.evidence(other, CleanRoom(other), PLAN, ledger.nonce(other))
    assert faults(post(ledger, run, 5, attested=True, evidence=foreign)) >= {"attestation_charge"}
    assert post(ledger, run, 5, attested=True, nonce=None).code.word == "malformed"
    done = post(ledger, run, 5, attested=True)
    assert (done.code.word, done.body["returned"]) == ("posted", {"refund": "attested", "steps": 5})


@pytest.mark.parametrize("refund", ["never", None])
def test_where_the_policy_gives_none_leased_steps_count(ledger: StoredWorld, refund: str | None) -> None:
    """Unleased ones return freely all the same."""
    state(ledger, refund)
    run = begun(ledger)
    assert lease(ledger, run, (1, 10), 0).code.word == "permitted"
    assert post(ledger, run, 9, attested=True).field == "body.steps"
    assert post(ledger, run, 10).code.word == "posted"
    assert posted(ledger, run) == 10


def test_a_policy_that_became_strict_since_gives_none(ledger: StoredWorld) -> None:
    """Of what the policies say at the charge and at the post, the strictest counts."""
    state(ledger, "stated")
    early = begun(ledger)
    state(ledger, "never")
    late = begun(ledger)
    for run in (early, late):
        assert lease(ledger, run, (1, 10), 0).code.word == "permitted"
    assert faults(post(ledger, early, 5)) == {"refund_not_allowed"}
    state(ledger, "attested")
    assert faults(post(ledger, early, 5)) == {"refund_not_allowed"}
    assert post(ledger, early, 5, attested=True).code.word == "posted"
    assert post(ledger, late, 5, attested=True).field == "body.steps"


def test_what_an_older_generation_leased_never_returns(ledger: StoredWorld) -> None:
    """Its steps may have been taken by a process that no one hears of."""
    state(ledger, "stated")
    run = begun(ledger)
    assert lease(ledger, run, (1, 10), 0).code.word == "permitted"
    assert take_over(ledger, run).code.word == "permitted"
    assert lease(ledger, run, (11, 20), 9, 2).field == "body.taken"
    assert lease(ledger, run, (11, 20), 11, 2).field == "body.taken"
    assert lease(ledger, run, (11, 20), 10, 2).code.word == "permitted"
    assert post(ledger, run, 9).field == "body.steps"
    assert post(ledger, run, 10).code.word == "posted"


def test_a_lease_that_does_not_say_what_was_taken_counts_all_before_it(ledger: StoredWorld) -> None:
    """As a trainer of before sends it."""
    state(ledger, "stated")
    run = begun(ledger)
    assert lease(ledger, run, (1, 10), None).code.word == "permitted"
    assert lease(ledger, run, (11, 20), None).code.word == "permitted"
    assert post(ledger, run, 9).field == "body.steps"
    assert post(ledger, run, 10).code.word == "posted"


@pytest.mark.parametrize(("refund", "leased", "ran"), [("never", 10, 10), ("stated", 0, 0), (None, 10, STEPS)])
def test_a_lapse_posts_what_was_leased(ledger: StoredWorld, refund: str | None, leased: int, ran: int) -> None:
    """Where the policy states its refund, whatever it is; the whole charge where it is silent."""
    state(ledger, refund)
    run = begun(ledger)
    if leased:
        assert lease(ledger, run, (1, leased), 0).code.word == "permitted"
    ledger.clock.now += HOUR_MS + 1
    assert ledger.lapse(run) == "posted"
    assert posted(ledger, run) == ran
    with ledger.book.read() as facts:
        newest = [Entry.parse(facts.entry(at)) for at in range(facts.size - 4, facts.size)]
    (lapse,) = [one for one in newest if one.kind == "lapse" and one.request["charge"] == run]
    assert lapse.body.get("steps") == (ran if refund else None)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_what_is_posted_covers_all_that_could_leave(ledger: StoredWorld, data: st.DataObject) -> None:
    """Any leases, generations and posts: never below what a lease fenced, nor below what older generations leased."""
    run, leased, least, live = begun_stated(ledger), 0, 0, 1
    for _ in range(data.draw(st.integers(0, 4))):
        if data.draw(st.booleans()):
            assert take_over(ledger, run).code.word == "permitted"
            live, least = live + 1, leased
        size, taken = data.draw(st.integers(1, 9)), data.draw(st.integers(least, leased))
        assert lease(ledger, run, (leased + 1, leased + size), taken, live).code.word == "permitted"
        leased, least = leased + size, taken
    steps = data.draw(st.integers(0, leased + 3))
    done = post(ledger, run, steps)
    assert (done.code.word == "posted") == (steps >= least), (steps, least, leased, done)


def begun_stated(world: StoredWorld) -> str:
    """A run under a policy that gives on the clean room's word."""
    state(world, "stated")
    return begun(world)


def test_a_book_with_refunds_is_verified_and_its_proofs_hold(tmp_path: Path) -> None:
    """Each post and lapse decided again, the statements of state in between, and a balance proven through a lapse."""
    with open_world(tmp_path, founded=False) as world:
        world.found()
        run = begun_stated(world)
        assert lease(world, run, (1, 10), 0).code.word == "permitted"
        state_now(world.book)
        assert lease(world, run, (11, 20), 6).code.word == "permitted"
        state_now(world.book)
        assert post(world, run, 8).code.word == "posted"
        gone = begun(world)
        assert lease(world, gone, (1, 10), 0).code.word == "permitted"
        state_now(world.book)
        world.clock.now += HOUR_MS + 1
        assert world.lapse(gone) == "posted"
        world.reopen()
        assert posted(world, gone) == 10
        report = verify_book(world.url, LOG, no_step, gate=gate)
        assert (report.entries, report.decided, report.judged) == (world.size, True, True)


def test_a_charge_of_before_has_the_leaf_of_before() -> None:
    """What came later is stated where a policy states its refund."""
    assert StepLeases().stated == (1, 0, 0, "", 0)
    assert StepLeases(refund="never").stated == (1, 0, 0, "", 0, "never", "", 0)
