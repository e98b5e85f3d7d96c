"""Whatever is changed in a copy of a book, verification fails and names the place."""

from __future__ import annotations

import copy as copies
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs

from client.keys.signer import Signer
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.commands.entry import Entry
from ledger.crypto import detached_jws
from ledger.filters import read_rule
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from tests.factories.documents import PARTITION, plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, LOG, LOG_KEY, CleanRoom, private_key
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import broken, entries_of, forged, tampered

CHARGE: Final = "run-1"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book in which everything that can happen has happened."""
    with open_world(tmp_path_factory.mktemp("healthy")) as world:
        _live(world)
        return world.path


def _live(world: StoredWorld) -> None:
    world.submit(world.charge("run-1"), world.charge("run-2"), world.charge("run-3", BANK_B), world.charge("run-4"))
    world.submit(world.release("run-1"))
    model: c.Object = {"charge": "run-1", "model": "0" * 64}
    world.submit(
        world.settle("run-1", 40),
        world.command(BANK_A, "release_notice", model, "notice-1", CleanRoom("run-1").signer),
        world.command(BANK_A, "model_release", model, "model-1", CleanRoom("run-1").signer),
        world.void("run-2"),
        world.charge("denied", run=plan(400)),
    )
    world.submit(world.merger(), world.charge("run-5", BANK_B))
    world.clock.now += 3_600_001
    last = world.submit(world.partition("later"), world.charge("run-6"))
    assert [one.code.word for one in last] == ["permitted", "pending"]


def _place(entries: list[Entry], name: str) -> int:
    return next(index for index, one in enumerate(entries) if one.id == name)


def test_a_healthy_book_verifies(healthy: Path) -> None:
    """Every kind of entry but a retirement is in it, and a book made anew of its entries verifies too."""
    found = verify_book(f"sqlite:///{healthy}", LOG, no_step)
    entries = entries_of(healthy)
    assert {one.kind for one in entries} >= {
        "charge",
        "post",
        "void",
        "lapse",
        "key_release",
        "release_notice",
        "model_release",
        "merger",
    }
    assert (found.entries, found.charges) == (len(entries), 6)


def test_a_book_made_anew_of_its_own_entries_verifies(healthy: Path, tmp_path: Path) -> None:
    """So a forgery below fails for what was changed in it and for nothing else."""
    target = forged(healthy, tmp_path / "book.sqlite", entries_of(healthy), LOG_KEY)
    assert verify_book(f"sqlite:///{target}", LOG, no_step).charges == 6


@pytest.mark.parametrize("seed", range(40))
def test_one_byte_of_an_entry_names_the_entry(healthy: Path, tmp_path: Path, seed: int) -> None:
    """Whichever byte: in its signature, its time, its recorded prices or its reasons."""
    dice = random.Random(seed)  # noqa: S311 - a place to damage
    entries = entries_of(healthy)
    index = dice.randrange(len(entries))
    data = bytearray(entries[index].to_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    update = "UPDATE entry SET data = ? WHERE position = ?"
    assert broken(tampered(healthy, tmp_path / "book.sqlite", update, bytes(data), index)).index == index


@pytest.mark.parametrize("index", [0, 9, 14])
def test_a_missing_entry_is_named(healthy: Path, tmp_path: Path, index: int) -> None:
    """Where it should stand."""
    found = broken(tampered(healthy, tmp_path / "book.sqlite", "DELETE FROM entry WHERE position = ?", index))
    assert (found.index, str(found)) == (index, f"entry {index}: is missing")


def test_a_missing_last_entry_is_noticed(healthy: Path, tmp_path: Path) -> None:
    """By the tree that reaches further."""
    found = broken(
        tampered(healthy, tmp_path / "b", "DELETE FROM entry WHERE position = (SELECT max(position) FROM entry)")
    )
    assert "tree node" in str(found)


def test_swapped_entries_are_named(healthy: Path, tmp_path: Path) -> None:
    """At the first of the two."""
    script = (
        "UPDATE entry SET position = -1 WHERE position = 11; UPDATE entry SET position = 11 WHERE position = 12;"
        "UPDATE entry SET position = 12 WHERE position = -1;"
    )
    found = broken(tampered(healthy, tmp_path / "b", f"PRAGMA ignore_check_constraints = ON; {script}"))
    assert found.index == 11


ROWS: Final = {
    "UPDATE account SET posted = posted - 1 WHERE holder = 'global' AND coordinate = 1": "accounts: .*global",
    "UPDATE account SET pending = 0 WHERE holder = 'global'": "accounts: .*global",
    "DELETE FROM account WHERE holder = 'lineage:2'": "accounts: .*lineage:2",
    "UPDATE charge SET steps = 50 WHERE id = 'run-3'": "charges: .*run-3",
    "UPDATE charge SET state = 'voided', steps_posted = NULL WHERE id = 'run-1'": "charges: .*run-1",
    "UPDATE charge SET deadline = deadline + 1 WHERE id = 'run-6'": "charges: .*run-6",
    "UPDATE account SET coordinate = 35 WHERE holder = 'global' AND coordinate = 3": "accounts: .*global.*coordinates",
    "UPDATE charge SET prices = replace(prices, 'hospital', 'hospitAl') WHERE id = 'run-3'": "charges: .*run-3",
    "UPDATE charge SET prices = CAST(x'ff' AS TEXT) WHERE id = 'run-3'": "charge: .*run-3 .*prices",
    "UPDATE charge SET id = CAST(x'61ff' AS TEXT) WHERE id = 'run-3'": r"charge: .*a\\xff .*id is not UTF-8",
    "UPDATE entry SET id = CAST(x'ff' AS TEXT) WHERE id = 'run-1'": "entry 10",
    "UPDATE checkpoint SET note = CAST(x'ff' AS TEXT) WHERE tree_size = 10": "checkpoint: .*10 ",
    "UPDATE checkpoint SET note = CAST(x'ff' AS TEXT)": "checkpoint: .*note is not UTF-8",
    "DELETE FROM charge WHERE id = 'run-4'": "charges: .*run-4",
    "UPDATE organisation SET roles = '[\"SRO\", \"TDC\"]' WHERE did LIKE '%bank-b%'": "organisations: .*bank-b",
    "UPDATE signing_key SET owner = 'did:web:bank-b.example' WHERE entered = 2": "keys: ",
    "UPDATE policy_version SET effective = 0": "policies: .*health",
    "UPDATE partition SET retired = 1": "partitions: .*2026-q4",
    "UPDATE partition SET epsilon = '8' WHERE epsilon = '6'": "partitions: .*2026-q4",
    "CREATE TABLE rows AS SELECT * FROM charge WHERE id <> 'run-3'; DROP TABLE charge;"
    " ALTER TABLE rows RENAME TO charge;"
    " INSERT INTO charge SELECT * FROM charge WHERE id = 'run-1'": "charges: .*run-1 is there twice",
    "UPDATE contract SET runs = 0": "contracts: ",
    "DELETE FROM contract_head": "contract_heads: ",
    "UPDATE node SET children = '[]'": "nodes: ",
    "UPDATE entry SET id = 'free' WHERE id = 'run-1'": "entry 10",
    "UPDATE entry SET time = 0 WHERE position = 9": "entry 9",
    "UPDATE entry SET kind = 'void' WHERE position = 9": "entry 9",
    "UPDATE tree_node SET hash = zeroblob(32) WHERE level = 0 AND position = 9": "entry 9: tree node 0/9",
    "UPDATE tree_node SET hash = zeroblob(32) WHERE level = 3 AND position = 1": "entry 8: tree node 3/1",
    "DELETE FROM tree_node WHERE level = 2 AND position = 2": "entry 8: tree node 2/2",
    "INSERT INTO tree_node VALUES (0, 99, zeroblob(32))": "tree node 0/99",
    "UPDATE checkpoint SET note = replace(note, 'ledger', 'lodger') WHERE tree_size = 10": "checkpoint at 10",
    "UPDATE checkpoint SET note = (SELECT note FROM checkpoint WHERE tree_size = 10) WHERE tree_size > 10": "claims",
    "DELETE FROM checkpoint WHERE tree_size = (SELECT max(tree_size) FROM checkpoint)": "under no checkpoint",
    "DELETE FROM checkpoint": "under no checkpoint",
    "UPDATE document SET data = x'7b7d' WHERE digest = (SELECT min(digest) FROM document)": "document [0-9a-f]{64}",
    "DELETE FROM document WHERE CAST(data AS TEXT) LIKE '%health-policy%'": "entry 5",
}


@pytest.mark.parametrize("statement", ROWS)
def test_a_changed_row_is_named(healthy: Path, tmp_path: Path, statement: str) -> None:
    """Whatever the table."""
    assert re.search(ROWS[statement], str(broken(tampered(healthy, tmp_path / "b", statement))))


Lie = Callable[[dict[str, Any]], None]


def _lower_price(body: dict[str, Any]) -> None:
    """By half of the margin that prices have, which is left to other machines, and one unit and its rounding more."""
    segment = body["prices"][PARTITION][0]
    segment["price"] = [None if one is None else max(0, one - one // 2_000_000_000 - 3) for one in segment["price"]]


def _zero_price(body: dict[str, Any]) -> None:
    segment = body["prices"][PARTITION][0]
    segment["price"] = [0] * len(segment["price"])


def _fewer_steps(body: dict[str, Any]) -> None:
    body["prices"][PARTITION][0]["steps"] = 1


def _no_price(body: dict[str, Any]) -> None:
    body["prices"][PARTITION] = []


def _raise_capacity(body: dict[str, Any]) -> None:
    for limit in body["limits"]:
        limit["cap"]["capacity"] = [None if one is None else one + 1 for one in limit["cap"]["capacity"]]


def _open_order(body: dict[str, Any]) -> None:
    capacity = body["limits"][1]["cap"]["capacity"]
    capacity[capacity.index(None)] = 1


def _another_author(body: dict[str, Any]) -> None:
    body["author"] = 3


def _no_limit(body: dict[str, Any]) -> None:
    body["limits"] = []


def _permit_the_impossible(body: dict[str, Any]) -> None:
    body["limits"][0]["cap"]["capacity"] = [None if one is None else 0 for one in body["limits"][0]["cap"]["capacity"]]


LIES: Final[dict[str, tuple[Lie, str]]] = {
    "a price lower than the margin of another machine": (_lower_price, "body.prices"),
    "no price": (_zero_price, "body.prices"),
    "a price for fewer steps": (_fewer_steps, "body.prices"),
    "a capacity one unit higher": (_raise_capacity, "body.limits.cap"),
    "an order that is closed": (_open_order, "body.limits.cap"),
    "another author": (_another_author, "body.author"),
    "no limit": (_no_limit, ""),
    "a capacity that it did not fit": (_permit_the_impossible, "had no room"),
}


def _lied(entries: list[Entry], name: str, lie: Lie) -> list[Entry]:
    index = _place(entries, name)
    body = copies.deepcopy(entries[index].body)
    lie(body)
    return [replace(one, body=body) if place == index else one for place, one in enumerate(entries)]


@pytest.mark.parametrize("name", LIES)
def test_a_lying_operator_is_found_out(healthy: Path, tmp_path: Path, name: str) -> None:
    """Accounts, tree and checkpoint recomputed with the log's own key: the entry is named all the same."""
    lie, said = LIES[name]
    entries = entries_of(healthy)
    found = broken(forged(healthy, tmp_path / "b", _lied(entries, CHARGE, lie), LOG_KEY))
    assert found.index == _place(entries, CHARGE)
    assert said in str(found)


def test_replay_alone_finds_what_is_not_what_the_entries_make_it(healthy: Path, tmp_path: Path) -> None:
    """A changed row is named; what an operator lied into the entries themselves only deciding again finds."""
    lied = forged(healthy, tmp_path / "lied", _lied(entries_of(healthy), CHARGE, _zero_price), LOG_KEY)
    assert not verify_book(f"sqlite:///{lied}", LOG, no_step, decisions=False).decided
    for number, (statement, said) in enumerate(ROWS.items()):
        # Nobody reads the document that is gone.
        if said != "entry 5":
            changed = tampered(healthy, tmp_path / f"{number}", statement)
            with pytest.raises(VerificationFailed, match=said):
                verify_book(f"sqlite:///{changed}", LOG, no_step, decisions=False)


def test_a_cap_beyond_the_budget_is_found_out(healthy: Path, tmp_path: Path) -> None:
    """A limit for a greater ε, every number of it as the rule has it, is not the partition's."""
    entries = entries_of(healthy)
    opened = next(one for one in entries if one.kind == "partition")
    cap = read_rule(c.dump(opened.body["terms"]).decode()).cap(parse_number("60", "epsilon")).to_json()

    def lie(body: dict[str, Any]) -> None:
        for limit in body["limits"]:
            limit["cap"] = cap

    found = broken(forged(healthy, tmp_path / "b", _lied(entries, CHARGE, lie), LOG_KEY))
    assert (found.index, "budget" in str(found)) == (_place(entries, CHARGE), True)


@pytest.mark.parametrize("kind", ["capacity", "budget"])
def test_a_partition_opened_with_more_than_its_budget_is_found_out(healthy: Path, tmp_path: Path, kind: str) -> None:
    """The capacities that its entry records are at most what its ε gives, and begin with its own."""
    entries = entries_of(healthy)

    def lie(body: dict[str, Any]) -> None:
        if kind == "capacity":
            body["caps"][0]["capacity"][-2] += 1
        else:
            body["caps"][0] = read_rule(c.dump(body["terms"]).decode()).cap(parse_number("8", "epsilon")).to_json()

    found = broken(forged(healthy, tmp_path / "b", _lied(entries, "partition-2026-q4", lie), LOG_KEY))
    assert (found.index, "body.caps" in str(found) or "body.limits" in str(found)) == (7, True)


@pytest.mark.parametrize(("name", "word"), [("void-run-2", "posted"), ("run-4", "posted"), ("merger", "voided")])
def test_another_outcome_is_found_out(healthy: Path, tmp_path: Path, name: str, word: str) -> None:
    """What an entry says was decided must follow."""
    entries = entries_of(healthy)
    lied = _lied(entries, name, lambda body: body.update(outcome=word))
    found = broken(forged(healthy, tmp_path / "b", lied, LOG_KEY))
    assert (found.index, "follows" in str(found)) == (_place(entries, name), True)


def test_a_lapse_that_voids_what_was_released_is_found_out(tmp_path: Path) -> None:
    """The operator cannot give back what a released key may have leaked."""
    with open_world(tmp_path) as world:
        world.submit(world.charge("run-1"))
        world.submit(world.release("run-1"))
        world.clock.now += 3_600_001
        world.submit(world.partition("later"))
        path = world.path
    entries = entries_of(path)
    index = next(place for place, one in enumerate(entries) if one.kind == "lapse")
    assert entries[index].code.word == "posted"
    body = {**entries[index].body, "outcome": "voided"}
    lied = [replace(one, body=body) if place == index else one for place, one in enumerate(entries)]
    found = broken(forged(path, tmp_path / "lie", lied, LOG_KEY))
    assert (found.index, "posted follows" in str(found)) == (index, True)


def test_a_recomputed_tree_without_the_logs_key_fails_on_the_checkpoint(healthy: Path, tmp_path: Path) -> None:
    """A change that the entries alone allow (a price above what is due) is caught by the signature."""

    def lie(body: dict[str, Any]) -> None:
        segment = body["prices"][PARTITION][0]
        segment["price"] = [*(None if one is None else one + 1 for one in segment["price"][:-1]), 0]

    entries = _lied(entries_of(healthy), CHARGE, lie)
    found = broken(forged(healthy, tmp_path / "b", entries, private_key("another log")))
    assert str(found) == f"checkpoint at {len(entries)}: checkpoint: is not signed by the log's key"
    lowered = _lied(entries_of(healthy), CHARGE, _lower_price)
    assert broken(forged(healthy, tmp_path / "c", lowered, private_key("another log"))).index == 10


@pytest.mark.parametrize("change", ["request", "signature", "key", "actor", "unsigned"])
def test_a_forged_charge_is_named(healthy: Path, tmp_path: Path, change: str) -> None:
    """The operator has the log's key and not the bank's."""
    entries = entries_of(healthy)
    true = entries[-1]
    assert true.kind == "charge"
    request = {**true.request, "deadline": 1_795_010_000_000}
    raw = structs.replace(true.command, body=request).to_bytes()
    lies = {
        "request": replace(true, body={**true.body, "request": request}),
        "signature": replace(true, body={**true.body, "request": request}, signature=detached_jws.sign(LOG_KEY, raw)),
        "key": replace(true, key_id=detached_jws.public_key(LOG_KEY).thumbprint),
        "actor": replace(true, actor=BANK_B),
        "unsigned": replace(true, signature="e30..AA"),
    }
    found = broken(forged(healthy, tmp_path / "b", [*entries[:-1], lies[change]], LOG_KEY))
    assert found.index == len(entries) - 1


@pytest.mark.parametrize(
    ("actor", "changes", "said"),
    [
        (HOSPITAL, {"epsilon": "100"}, "was opened before"),
        (BANK_A, {"partition": "stolen", "data_key": "another"}, "for the role TDP"),
        (HOSPITAL, {"partition": "leaky", "data_key": "another", "delta": "5"}, "delta"),
        (HOSPITAL, {"partition": "twin"}, "data_key"),
    ],
)
def test_a_partition_that_the_book_would_not_open_is_found_out(
    healthy: Path, tmp_path: Path, actor: str, changes: dict[str, c.Json], said: str
) -> None:
    """The operator and one party together cannot write it: replay decides it again."""
    entries = entries_of(healthy)
    opened = next(one for one in entries if one.kind == "partition")
    signer = Signer(private_key(actor))
    body: c.Object = {**opened.body, "request": {**opened.request, **changes}}
    lie = replace(opened, id="lie", actor=actor, key_id=signer.key_id, body=body, time=entries[-1].time)
    lie = replace(lie, signature=signer.sign(lie.command.to_bytes()))
    found = broken(forged(healthy, tmp_path / "b", [*entries, lie], LOG_KEY))
    assert (found.index, said in str(found)) == (len(entries), True), str(found)


def test_an_entry_twice_is_named(healthy: Path, tmp_path: Path) -> None:
    """A refund that is replayed under the log's own key stands after a charge that is settled."""
    entries = entries_of(healthy)
    index = _place(entries, "void-run-2")
    target = tampered(
        healthy,
        tmp_path / "b",
        "INSERT INTO entry SELECT ?, 'again', kind, time, data FROM entry WHERE position = ?",
        len(entries),
        index,
    )
    assert broken(target).index == len(entries)
