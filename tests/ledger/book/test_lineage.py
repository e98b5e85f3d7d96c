"""Every lineage event through the book: the database agrees with what replay makes in memory, and lies are found."""

from __future__ import annotations

import copy as copies
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome
from ledger.domain.facts import holder_of
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, SMALL, contract
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, LATE, LOG, LOG_KEY, MERGED, SRO
from tests.factories.stored import StoredWorld, copy, no_step, open_world
from tests.ledger.audit.forge import broken, entries_of, forged, tampered

RUN: Final = 100


def enter(world: StoredWorld, kind: str, actor: str = SRO, **body: Any) -> Outcome:  # noqa: ANN401 - any field
    """A lineage event, a moment after the last."""
    world.clock.now += 1
    return world.send(actor, kind, body, f"{kind}-{world.size}")


def all_events(world: StoredWorld) -> None:
    """One of each, with runs in between, pending and posted."""
    since = world.clock.now
    world.submit(world.charge("a-1"), world.charge("b-1", BANK_B), world.settle("a-1", 30))
    done = [
        enter(world, "coalition", members=[BANK_A, BANK_B], epsilon="5.5"),
        enter(world, "transfer", charge="a-1", recipient=BANK_B),
        enter(world, "publication", charge="b-1"),
        *world.submit(world.registration(LATE, "TDC")),
        *world.submit(world.charge("a-2", recipients=[BANK_B], base=["b-1"]), world.settle("a-2", 10)),
        enter(world, "transfer", actor=BANK_A, charge="a-2", recipient=BANK_B),
        enter(world, "merger", organisation=MERGED, parents=[BANK_A]),
        enter(world, "split", organisation=MERGED, child=LATE),
        enter(world, "split", organisation=MERGED, child=BANK_A),
        *world.submit(world.charge("a-3", run=SMALL), world.settle("b-1", 70, BANK_B)),
        enter(world, "acquisition", organisation=LATE, acquired=[MERGED]),
        enter(world, "collusion", organisations=[BANK_A, BANK_B], effective=since),
        *world.submit(world.charge("b-2", BANK_B, run=SMALL)),
    ]
    assert {one.code.word for one in done} == {"permitted", "pending", "posted"}, [one.detail for one in done]


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book with one of each."""
    folder = tmp_path_factory.mktemp("eventful")
    with open_world(folder) as world:
        all_events(world)
    return folder / "book.sqlite"


def test_a_child_has_no_share_in_what_its_parent_signs_after_it_parted(tmp_path: Path) -> None:
    """It goes on with the contract that stood when it split off; what is signed afterwards is its parent's alone."""
    with open_world(tmp_path) as world:
        world.submit(world.registration(LATE, "TDC"), world.charge("before", run=SMALL))
        old = world.contracts[BANK_A]
        assert enter(world, "split", organisation=BANK_A, child=LATE).code.word == "permitted"
        own = world.charge("own", LATE, SMALL, contract=old)
        second = {**contract(BANK_A), "version": 2}
        signed = world.document("contract", second, "second", BANK_A, BANK_A, HOSPITAL)
        assert [one.code.word for one in world.submit(own, signed)] == ["pending", "permitted"]
        new = c.digest(c.dump(second))
        parents, childs = world.submit(
            world.charge("parents", BANK_A, SMALL, contract=new), world.charge("childs", LATE, SMALL, contract=new)
        )
        assert (parents.code.word, childs.code.word) == ("pending", "policy_denied")
        assert "actor_not_consumer" in str(childs.body)


def test_what_a_colluder_signs_stays_its_own(tmp_path: Path) -> None:
    """Neither the other colluder nor whoever that one merges with goes on with it; its signer does."""
    with open_world(tmp_path) as world:
        world.submit(world.registration(LATE, "TDC"))
        enter(world, "collusion", organisations=[BANK_A, BANK_B], effective=world.clock.now)
        second = {**contract(BANK_A), "version": 2}
        (signed,) = world.submit(world.document("contract", second, "second", BANK_A, BANK_A, HOSPITAL))
        assert signed.code.word == "permitted"
        assert enter(world, "merger", organisation=MERGED, parents=[BANK_B, LATE]).code.word == "permitted"
        runs = [
            world.charge(f"run-{bank[8:]}", bank, SMALL, contract=c.digest(c.dump(second)))
            for bank in (BANK_A, BANK_B, LATE, MERGED)
        ]
        assert [one.code.word for one in world.submit(*runs)] == ["pending", *["policy_denied"] * 3]


def test_a_book_with_every_event_verifies(eventful: Path) -> None:
    """Every row is what replay makes of the entries in memory, and every account the sum over its runs."""
    kinds = {one.kind for one in entries_of(eventful)}
    assert kinds >= {"coalition", "transfer", "publication", "merger", "split", "collusion", "acquisition"}
    assert verify_book(f"sqlite:///{eventful}", LOG, no_step).charges == 5


def test_a_reopened_book_goes_on(eventful: Path, tmp_path: Path) -> None:
    """What was stored is what was: a run after reopening settles everywhere, and the book verifies."""
    copy(eventful, tmp_path / "book.sqlite")
    world = StoredWorld(tmp_path)
    world.clock.now += 1_000
    assert [one.code.word for one in world.submit(world.settle("a-3", 1), world.charge("b-3", BANK_B, SMALL))] == [
        "posted",
        "pending",
    ]
    world.book.close()
    assert verify_book(world.url, LOG, no_step).charges == 6


ROWS: Final = {
    "UPDATE node SET parents = '[]' WHERE kind = 'model'": "nodes: ",
    "UPDATE node SET parents = replace(parents, ',', ',1') WHERE kind = 'public'": "nodes: |cannot be read",
    "UPDATE node SET children = '[]' WHERE kind = 'organisation'": "nodes: ",
    "UPDATE node SET members = '[]' WHERE kind = 'coalition'": "nodes: ",
    "UPDATE node SET epsilon = '50' WHERE kind = 'coalition'": "nodes: ",
    "UPDATE node SET kind = 'organisation' WHERE kind = 'collusion'": "nodes: ",
    "UPDATE node SET time = time + 1 WHERE kind = 'public'": "nodes: ",
    "UPDATE organisation SET moves = '[[0,0]]'": "organisations: ",
    "UPDATE charge SET recipients = '[]'": "charges: ",
    "UPDATE charge SET base = '[]'": "charges: ",
}


@pytest.mark.parametrize("script", ROWS)
def test_a_changed_row_is_named(eventful: Path, tmp_path: Path, script: str) -> None:
    """Whatever is changed in the lineage."""
    found = broken(tampered(eventful, tmp_path / "b", script))
    assert any(word in str(found) for word in ROWS[script].split("|")), str(found)


def _shift(name: str, by: int) -> Callable[[dict[str, Any]], None]:
    def lie(body: dict[str, Any]) -> None:
        body[name] = [body[name][0] + by, *body[name][1:]] if isinstance(body[name], list) else body[name] + by

    return lie


def _drop_coalition(body: dict[str, Any]) -> None:
    body["limits"] = body["limits"][:-1]


def _widen_coalition(body: dict[str, Any]) -> None:
    body["limits"][-1]["cap"] = body["limits"][0]["cap"]


LIES: Final = {
    "merger": _shift("parents", 1),
    "acquisition": _shift("parents", -1),
    "collusion": _shift("parents", 1),
    "split": _shift("parents", -1),
    "transfer": _shift("before", -1),
    "publication": _shift("node", 1),
    "coalition": _shift("parents", 1),
    "charge": _drop_coalition,
}


@pytest.mark.parametrize("kind", [*LIES, "wider charge"])
def test_a_lying_operator_is_found_out(eventful: Path, tmp_path: Path, kind: str) -> None:
    """What an entry says was derived is derived again; every row and the tree fit the lie."""
    entries = entries_of(eventful)
    of = kind.rpartition(" ")[2]
    place = [index for index, one in enumerate(entries) if one.kind == of][-1 if of == "charge" else 0]
    body = copies.deepcopy(entries[place].body)
    LIES.get(kind, _widen_coalition)(body)
    lied = [replace(one, body=body) if index == place else one for index, one in enumerate(entries)]
    assert broken(forged(eventful, tmp_path / "b", lied, LOG_KEY)).index == place


def test_a_proposed_merger_that_would_freeze_an_account_is_denied(world: StoredWorld) -> None:
    """With the accounts named and by how much; changed nothing; as a fact it is recorded and freezes them."""
    sent = [world.charge(f"{bank[13]}-{n}", bank) for bank in (BANK_A, BANK_B) for n in range(5)]
    assert {one.code.word for one in world.submit(*sent)} == {"pending"}
    with world.book.read() as facts:
        before = (dict(facts.accounts), dict(facts.nodes))
    denied = enter(world, "merger", organisation=MERGED, parents=[BANK_A, BANK_B], proposed=True)
    assert denied.code.word == "policy_denied"
    assert f"the account of the union on {PARTITION} would be over its cap by" in denied.detail
    with world.book.read() as facts:
        assert (dict(facts.accounts), dict(facts.nodes)) == before
    assert world.submit(*(world.void(f"a-{n}") for n in range(3)))[0].code.word == "voided"
    permitted = enter(world, "merger", organisation=MERGED, parents=[BANK_A, BANK_B], proposed=True)
    assert permitted.code.word == "permitted"
    assert verify_book(world.url, LOG, no_step).charges == 10


def test_a_proposed_merger_asks_coalitions_too(world: StoredWorld) -> None:
    """A coalition that follows one of them would know the other's runs."""
    world.submit(*(world.charge(f"b-{n}", BANK_B) for n in range(5)))
    assert enter(world, "coalition", members=[BANK_A, MERGED], epsilon="3").code.word == "permitted"
    denied = enter(world, "merger", organisation=BANK_A, parents=[BANK_B], proposed=True)
    assert denied.code.word == "policy_denied"
    assert "the account of a coalition on" in denied.detail
    assert enter(world, "merger", organisation=BANK_A, parents=[BANK_B]).code.word == "permitted"
    assert verify_book(world.url, LOG, no_step).charges == 5


@pytest.mark.parametrize("seed", range(4))
def test_random_events_in_a_database_are_what_replay_makes_of_them(tmp_path: Path, engine: str, seed: int) -> None:
    """Several to a batch, so that each sees what those before it did and nobody has stored."""
    dice = Random(seed)  # noqa: S311 - which event comes next
    with open_world(tmp_path, engine) as world:
        for place in range(10):
            world.clock.now += 1
            world.submit(*(_any_event(world, dice, f"{place}-{part}") for part in range(4)))
        assert verify_book(world.url, LOG, no_step).entries > 10


def _any_event(world: StoredWorld, dice: Random, name: str) -> Any:  # noqa: ANN401 - a submission
    one, other = dice.sample((BANK_A, BANK_B, MERGED), 2)
    with world.book.read() as facts:
        runs = sorted(facts.charges)
    run = dice.choice(runs) if runs else "none"
    bodies: dict[str, c.Object] = {
        "merger": {"organisation": one, "parents": [other]},
        "split": {"organisation": one, "child": other},
        "transfer": {"charge": run, "recipient": one},
        "publication": {"charge": run},
        "coalition": {"members": [one, other], "epsilon": "5"},
        "collusion": {"organisations": [one, other], "effective": world.clock.now - dice.randrange(3)},
    }
    kind = dice.choice([*bodies, "charge", "charge", "charge", "void", "settle"])
    if kind == "charge":
        bank = dice.choice((BANK_A, BANK_B))
        return world.charge(name, bank, SMALL, recipients=[other] if other != bank else [one])
    if kind == "settle":
        return world.settle(run, 1, dice.choice((BANK_A, BANK_B)))
    if kind == "void":
        return world.void(run, dice.choice((BANK_A, BANK_B)))
    return world.command(SRO, kind, bodies[kind], name)


def test_the_lineage_survives_the_database_exactly(eventful: Path) -> None:
    """Open arrows, cuts and an exact cap are in the columns as they are in memory."""
    with closing(sqlite3.connect(eventful)) as connection:
        found = connection.execute("SELECT kind, parents, epsilon FROM node ORDER BY position").fetchall()
    kinds = [kind for kind, _, _ in found]
    assert {"organisation", "collusion", "model", "public", "coalition"} == set(kinds)
    assert [epsilon for kind, _, epsilon in found if kind == "coalition"] == ["5.5"]
    assert any("null" in parents for kind, parents, _ in found if kind == "coalition")
    assert holder_of(0) == "lineage:0"
