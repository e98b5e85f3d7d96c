"""Lineage that brings nothing when it is reported: since a date it is recorded, as later reports may fill it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from ledger.domain.organisation_graph import NodeKind
from ledger.organisation_lineage.exposure import EMPTY_SINCE_MS
from tests.factories.documents import dense_plan
from tests.factories.memory import PermissiveWorld
from tests.factories.people import BANKS, DAY_MS, LATE
from tests.ledger.commands.organisation_lineage.test_lineage_events import enter, fresh, knows, run
from tests.ledger.organisation_lineage.test_lineage_graph import CONTRACTS, names_known

A, B, _, D = BANKS


def dated(ahead_ms: int = 0) -> PermissiveWorld:
    """Four banks and a later one, so long after the date."""
    world = fresh()
    world.clock.now = EMPTY_SINCE_MS + ahead_ms
    world.register(LATE, "TDC")
    return world


@pytest.mark.parametrize("first", ["collusion", "split"])
def test_collusion_and_a_split_tell_the_child_the_same_in_either_order(first: str) -> None:
    """The parent had no run of its own when the child left it: only what its colluder knew came along."""
    world = dated()
    run(world, "of-b", B)
    since = world.clock.now
    world.clock.now += 10
    reports: dict[str, dict[str, Any]] = {
        "collusion": {"organisations": [A, B], "effective": since},
        "split": {"organisation": A, "child": LATE},
    }
    for kind in (first, *({*reports} - {first})):
        assert enter(world, kind, **reports[kind]).code.word == "permitted"
    assert knows(world, LATE) == {"of-b"}


@pytest.mark.parametrize("first", ["collusion", "transfer"])
def test_collusion_and_a_transfer_tell_the_recipient_the_same_in_either_order(first: str) -> None:
    """A model is handed over again a day later, and its giver had colluded with another by then."""
    world = dated()
    run(world, "of-a", A)
    assert enter(world, "transfer", charge="of-a", recipient=D).code.word == "permitted"
    world.clock.now += DAY_MS
    run(world, "of-b", B)
    since = world.clock.now
    world.clock.now += 10
    reports: dict[str, dict[str, Any]] = {
        "collusion": {"organisations": [A, B], "effective": since},
        "transfer": {"charge": "of-a", "recipient": D, "giver": A},
    }
    for kind in (first, *({*reports} - {first})):
        assert enter(world, kind, **reports[kind]).code.word == "permitted"
    assert knows(world, D) == {"of-a", "of-b"}


def test_a_publication_is_recorded_again_when_its_giver_may_have_learned_more() -> None:
    """Of a colluder that is found later, and whose models were public before."""
    world = dated()
    run(world, "of-a", A)
    assert enter(world, "publication", charge="of-a").code.word == "permitted"
    run(world, "of-b", B)
    since = world.clock.now
    world.clock.now += 10
    assert enter(world, "publication", charge="of-a").code.word == "permitted"
    assert enter(world, "collusion", organisations=[A, B], effective=since).code.word == "permitted"
    assert knows(world, D) == {"of-a", "of-b"}


def test_a_coalition_follows_who_leaves_a_member_before_its_first_run() -> None:
    """So the child's runs and the member's count against one cap."""
    world = dated()
    assert enter(world, "coalition", members=[A, B], epsilon=str(Fraction(3))).code.word == "permitted"
    coalition = world.index - 1
    assert enter(world, "split", organisation=A, child=LATE).code.word == "permitted"
    assert world.state.nodes[coalition].kind is NodeKind.COALITION
    assert set(world.state.nodes[coalition].members) == {A, B, LATE}
    contract = world.contract(LATE)
    assert not world.decide_charge("of-child", LATE, contract, ("one",), dense_plan(1)).code.refused
    assert not world.decide_charge("of-a", A, CONTRACTS[A], ("one",), dense_plan(1)).code.refused
    assert names_known(world.state, coalition) == {"of-child", "of-a"}


def test_a_transfer_that_brings_nothing_is_refused_for_a_day_and_within_one_lineage() -> None:
    """Each adds a node to the graph; the refusal says when to enter it again."""
    world = dated()
    run(world, "of-a", A)
    given = enter(world, "transfer", charge="of-a", recipient=D)
    assert given.code.word == "permitted"
    model = world.index - 1
    again = enter(world, "transfer", charge="of-a", recipient=D)
    assert (again.code.word, again.field) == ("conflict", "body.recipient")
    assert f"entry {model} is of the same giver: enter it a day after that" in again.detail
    assert enter(world, "transfer", A, charge="of-a", recipient=A).code.word == "conflict"
    world.clock.now += DAY_MS
    own = enter(world, "transfer", A, charge="of-a", recipient=D, agreement=world.agreement("of-a", A, D, 9))
    assert (own.code.word, own.field) == ("conflict", "body.recipient")
    assert f"entry {model} is of the same giver: an SRO may enter it again" in own.detail
    assert enter(world, "transfer", charge="of-a", recipient=D).code.word == "permitted"


@pytest.mark.parametrize(("ahead_ms", "word"), [(-10_000, "conflict"), (0, "permitted")])
def test_until_the_date_such_reports_are_conflicts_as_in_books_of_before(ahead_ms: int, word: str) -> None:
    """Replay decides by the time of the entry."""
    world = dated(ahead_ms)
    assert enter(world, "split", organisation=A, child=LATE).code.word == word
