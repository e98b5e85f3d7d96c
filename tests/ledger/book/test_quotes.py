"""A quote is the decision a command gets, whatever happens between commands; and each can be made again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.book.book import Submission
from ledger.commands.entry import Entry
from ledger.commands.runs.charge import CHARGE
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from policy.planning.hypothetical_facts import with_policy_throughout
from policy.planning.what_if import PlannedRun, WhatIf
from tests.factories.documents import SMALL, plan, policy
from tests.factories.people import BANK_A, BANK_B, HOUR_MS
from tests.factories.stored import StoredWorld, open_world

NAMES: Final = count()
RUNS: Final = (SMALL, plan(), plan(400), plan(20, "1"))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("charge"), st.sampled_from((BANK_A, BANK_B)), st.integers(0, 3), st.integers(1, 3)),
        st.tuples(st.sampled_from(("post", "void", "release")), st.integers(0, 5), st.integers(0, 120), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 3), st.just(0), st.just(0)),
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """One book for all sequences: each goes on where the last one stopped."""
    with open_world(tmp_path_factory.mktemp("quotes")) as world:
        yield world


def pending(world: StoredWorld) -> list[str]:
    """The ids of what is pending, as the book has it; a lapse that is due may not have come yet."""
    with world.book.read() as facts:
        return [name for name in facts.due(2**62, 1_000) if name in facts.charges]


def submission(world: StoredWorld, event: tuple[str, str | int, int, int]) -> Submission | None:
    """The command of an event; None where there is nothing to settle."""
    kind, which, number, hours = event
    if kind == "charge":
        return world.charge(f"run-{next(NAMES)}", str(which), RUNS[number], deadline=world.clock.now + hours * HOUR_MS)
    known = pending(world)
    if not known:
        return None
    charge = known[int(which) % len(known)]
    with world.book.read() as facts:
        bank = facts.charges[charge].actor
    name = f"{kind}-{next(NAMES)}"
    if kind == "post":
        return world.settle(charge, number, bank)
    if kind == "void":
        return world.command(bank, "void", {"charge": charge}, name)
    return world.release(charge, bank=bank)


@settings(deadline=None, max_examples=12)
@given(sequence=EVENTS)
def test_a_quote_is_what_the_command_then_gets(
    world: StoredWorld, sequence: list[tuple[str, str | int, int, int]]
) -> None:
    """Code, field, detail and everything derived; whatever lapses between two commands."""
    for event in sequence:
        if event[0] == "wait":
            world.clock.now += int(event[1]) * HOUR_MS
            continue
        sent = submission(world, event)
        if sent is None:
            continue
        quoted = world.book.quote(sent)
        (got,) = world.submit(sent)
        if got.repeated or got.code is Code.ID_REUSED:
            # A quote is of a command that is still to be made, whatever its id.
            continue
        assert (quoted.code, quoted.field, quoted.detail) == (got.code, got.field, got.detail)
        assert (quoted.index, quoted.receipt) == (None, None)
        derived = {name: value for name, value in got.body.items() if name not in {"detail", "outcome", "request"}}
        assert quoted.body == derived


def test_every_recorded_charge_is_decided_so_again_on_the_facts_it_met(world: StoredWorld) -> None:
    """From the log alone: the same code, and of a refusal the same checks; under another policy another answer."""
    world.clock.now += 24 * HOUR_MS
    sent = [world.charge(f"last-{next(NAMES)}", BANK_B, run) for run in (SMALL, plan(400), plan(40, "1"))]
    world.submit(*sent)
    with world.book.read() as now:
        entries = [(index, Entry.parse(now.entry(index))) for index in range(now.size)]
    charges = [(index, entry) for index, entry in entries if entry.kind == "charge"][-12:]
    strictest = c.dump({**policy(), "run": {"epsilon_max": "0.001"}})
    seen = set()
    for index, entry in charges:
        with world.book.read_past(index) as facts:
            question = WhatIf(facts, PlannedRun.of(entry.actor, CHARGE.read_body(entry.command)), entry.time)
            decision = question.decision
            assert decision.outcome == entry.code.word
            if entry.code.refused:
                failed = [check.to_json() for check in decision.checks if not check.passed]
                recorded = entry.body["checks"]
                assert isinstance(recorded, list)
                assert failed == [one for one in recorded if isinstance(one, dict) and not one["passed"]]
            strict = replace(question, facts=with_policy_throughout(facts, strictest)[1]).decision
            assert strict.binding is not None
            assert not strict.permit
            seen.add((entry.code, strict.binding.code))
    assert len({code for code, _ in seen}) > 1, "some were charged and some refused"
