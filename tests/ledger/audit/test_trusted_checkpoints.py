"""A book against checkpoints that someone kept: the same history, a shorter one, a fork; and lies of the policy's."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from client.keys.signer import Signer
from ledger.audit.replay import Fork, Shorter, VerificationFailed, verify_book
from ledger.cli.main import app
from ledger.commands.entry import Entry
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from ledger.log import merkle
from ledger.verifier import Checkpoint, leaf_hash
from policy.decisions.gate import gate
from tests.factories.documents import SMALL, plan
from tests.factories.people import BANK_A, LOG, LOG_KEY, ORIGIN, CleanRoom, private_key
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import entries_of, forged, tampered

FOUNDED = 10
"""Entries of a world in which nothing was charged yet."""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commits after the founding: two charges and a refusal, two more; each has its checkpoint."""
    with open_world(tmp_path_factory.mktemp("kept")) as world:
        _grow(world)
        (world.path.parent / "log.vkey").write_text(f"{LOG.vkey}\n", encoding="ascii")
        return world.path


def _grow(world: StoredWorld) -> None:
    world.submit(world.charge("run-1", run=SMALL), world.charge("run-2", run=SMALL), world.charge("no", run=plan(400)))
    world.submit(world.settle("run-1", 1), world.void("run-2"))


def _heads(path: Path) -> list[Checkpoint]:
    """The checkpoints since the founding."""
    with closing(sqlite3.connect(path)) as connection:
        notes = connection.execute("SELECT note FROM checkpoint ORDER BY tree_size").fetchall()
    heads = [Checkpoint.open(note, LOG) for (note,) in notes]
    return [one for one in heads if one.size >= FOUNDED]


def _other(book: Path, folder: Path, at: int) -> Path:
    """Another history under the same key: another id from the entry ``at`` on, the rest as it was; all signed anew."""
    entries = entries_of(book)
    true = entries[at]
    lie = replace(true, id="another", signature=_signed(replace(true, id="another")))
    return forged(book, folder / "book.sqlite", [*entries[:at], lie], LOG_KEY)


def _signed(entry: Entry) -> str:
    return Signer(private_key(BANK_A)).sign(entry.command.to_bytes())


def test_a_book_extends_every_checkpoint_it_ever_had(book: Path) -> None:
    """Each of them, and all at once."""
    heads = _heads(book)
    assert [one.size for one in heads] == [FOUNDED, FOUNDED + 3, FOUNDED + 5]
    for kept in (heads[:1], heads[1:2], heads, []):
        assert verify_book(f"sqlite:///{book}", LOG, no_step, kept=kept).kept == len(kept)


def test_the_command_on_either_engine(world: StoredWorld, tmp_path: Path) -> None:
    """A database's URL is a book too; the log's key is named then, for nothing lies beside a URL."""
    _grow(world)
    with world.book.read() as facts:
        head = facts.checkpoint
    world.submit(world.charge("run-3", run=SMALL))
    (tmp_path / "kept").write_text(head, encoding="utf-8")
    (tmp_path / "key").write_text(f"{LOG.vkey}\n", encoding="ascii")
    reported = _run(world.url, "--log", tmp_path / "key", "--kept", tmp_path / "kept", "--json")
    found = json.loads(reported.stdout)
    assert (reported.exit_code, found["entries"], found["kept"], found["signatures"]) == (
        0,
        FOUNDED + 6,
        1,
        FOUNDED + 6,
    )
    unnamed = _run(world.url)
    assert (unnamed.exit_code, "name the log's verifier key with --log" in unnamed.output) == (2, True)
    listed = CliRunner().invoke(app, ["log", world.url, "--json"])
    assert len(listed.stdout.splitlines()) == FOUNDED + 6


def test_a_fork_shows_both_heads_and_where_they_can_part(book: Path, tmp_path: Path) -> None:
    """The other history verifies by itself; only who kept a checkpoint knows."""
    other = _other(book, tmp_path, FOUNDED + 1)
    url = f"sqlite:///{other}"
    assert verify_book(url, LOG, no_step).entries == FOUNDED + 2
    ours = Checkpoint(ORIGIN, FOUNDED + 2, _root_of(book, FOUNDED + 2))
    with pytest.raises(Fork) as fork:
        verify_book(url, LOG, no_step, kept=[_heads(book)[0], ours])
    assert (fork.value.kept, fork.value.newest, fork.value.agreed) == (ours, _heads(other)[-1], FOUNDED)
    assert ours.root.hex() in str(fork.value)
    assert _heads(other)[-1].root.hex() in str(fork.value)
    assert "one of the entries 10 to 11" in str(fork.value)


def test_a_fork_between_neighbouring_checkpoints_names_the_entry(book: Path, tmp_path: Path) -> None:
    """Where the head before it was kept too, there is one entry that it can be."""
    other = _other(book, tmp_path, FOUNDED)
    kept = [Checkpoint(ORIGIN, size, _root_of(book, size)) for size in (FOUNDED, FOUNDED + 1)]
    with pytest.raises(Fork) as fork:
        verify_book(f"sqlite:///{other}", LOG, no_step, kept=kept)
    assert (fork.value.index, fork.value.agreed) == (FOUNDED, FOUNDED)


def _root_of(path: Path, size: int) -> bytes:
    leaves = [leaf_hash(one.to_bytes()) for one in entries_of(path)[:size]]
    nodes: dict[tuple[int, int], bytes] = {}
    for index, leaf in enumerate(leaves):
        for level, place, value in merkle.append(index, leaf, lambda level, place: nodes[level, place]):
            nodes[level, place] = value
    return merkle.root(size, lambda level, place: nodes[level, place])


def test_a_restored_backup_is_shorter(book: Path, tmp_path: Path) -> None:
    """A budget reset by an old copy: it verifies by itself, and not against what was kept."""
    backup = forged(book, tmp_path / "book.sqlite", entries_of(book)[: FOUNDED + 1], LOG_KEY)
    assert verify_book(f"sqlite:///{backup}", LOG, no_step).charges == 1
    with pytest.raises(Shorter) as shorter:
        verify_book(f"sqlite:///{backup}", LOG, no_step, kept=_heads(book)[:2])
    assert shorter.value.index == FOUNDED + 1
    assert f"{FOUNDED + 3} entries" in str(shorter.value)


def test_damage_is_no_fork(book: Path, tmp_path: Path) -> None:
    """Without the log's key nobody forks a log: the entry that was changed is named, as without a checkpoint."""
    statement = "UPDATE entry SET data = CAST(replace(CAST(data AS TEXT), 'run-2', 'run-3') AS BLOB) WHERE position = ?"
    changed = tampered(book, tmp_path / "b", statement, FOUNDED + 1)
    script = "UPDATE tree_node SET hash = zeroblob(32) WHERE level = 0 AND position = 11"
    for path in (changed, tampered(book, tmp_path / "c", script)):
        with pytest.raises(VerificationFailed) as fault:
            verify_book(f"sqlite:///{path}", LOG, no_step, kept=_heads(book)[:2])
        assert (type(fault.value), fault.value.index) == (VerificationFailed, FOUNDED + 1)


def test_the_command_tells_a_fork(book: Path, tmp_path: Path) -> None:
    """Exit 7, one line, and both heads as JSON."""
    other = _other(book, tmp_path, FOUNDED + 1)
    kept = tmp_path / "kept"
    with closing(sqlite3.connect(book)) as connection:
        (note,) = connection.execute("SELECT note FROM checkpoint WHERE tree_size = ?", (FOUNDED + 3,)).fetchone()
    kept.write_text(note, encoding="utf-8")
    key = book.parent / "log.vkey"
    assert _run(book, "--log", key, "--kept", kept).exit_code == 0
    shorter = _run(other, "--log", key, "--kept", kept)
    assert (shorter.exit_code, "is shorter than a kept checkpoint" in shorter.stderr) == (7, True)
    longer = _longer(other, tmp_path)
    found = _run(longer, "--log", key, "--kept", kept, "--json")
    reported = json.loads(found.stdout)
    assert (found.exit_code, reported["ok"], reported["fork"]["parts_from"]) == (7, False, 0)
    assert reported["fork"]["kept"]["size"] == FOUNDED + 3
    assert reported["fork"]["book"]["root"] == _heads(longer)[-1].root.hex()
    kept.write_text(note.replace("epsilon", "another"), encoding="utf-8")
    assert _run(book, "--log", key, "--kept", kept).exit_code == 2


def _longer(other: Path, folder: Path) -> Path:
    """The other history, gone on with as the first one was."""
    entries = entries_of(other)
    true = entries[-1]
    more = []
    for name in ("more-1", "more-2"):
        request: Any = json.loads(json.dumps(true.request))
        request["clean_room"] = CleanRoom(name).to_json()
        one = replace(true, id=name, body={**true.body, "request": request})
        more.append(replace(one, signature=_signed(one)))
    return forged(other, folder / "longer.sqlite", [*entries, *more], LOG_KEY)


def _run(*arguments: str | Path) -> Result:
    found = CliRunner().invoke(app, ["verify", *map(str, arguments)])
    assert len(found.output.strip().splitlines()) == 1, found.output
    return found


def test_the_policy_is_asked_again(book: Path) -> None:
    """With the gate every verdict is decided again, refusals too; the finding says which it was."""
    assert verify_book(f"sqlite:///{book}", LOG, no_step, gate=gate).judged
    assert not verify_book(f"sqlite:///{book}", LOG, no_step).judged


def _changed(book: Path, target: Path, index: int, **changes: Any) -> Path:  # noqa: ANN401 - whatever the lie is
    entries = entries_of(book)
    lie = replace(entries[index], body={**entries[index].body, **changes})
    return forged(book, target, [*entries[:index], lie], LOG_KEY)


def test_a_refusal_that_the_policy_never_gave_is_found_out(book: Path, tmp_path: Path) -> None:
    """Taken as recorded it stands; the gate permits what was refused."""
    lie = _changed(book, tmp_path / "b", FOUNDED + 1, outcome="policy_denied", checks=[], detail="no")
    assert verify_book(f"sqlite:///{lie}", LOG, no_step).entries == FOUNDED + 2
    with pytest.raises(VerificationFailed, match="pending follows") as fault:
        verify_book(f"sqlite:///{lie}", LOG, no_step, gate=gate)
    assert fault.value.index == FOUNDED + 1


def test_a_run_that_the_policy_forbids_is_found_out(tmp_path: Path) -> None:
    """An operator whose gate looks away: prices, caps and accounts are all in order, and the contract is broken."""
    with open_world(tmp_path) as world:
        world.book.close()
        world.book = world.open(gate=_blind)
        (outcome,) = world.submit(world.charge("run-1", run=plan(400)))
        assert outcome.code.word == "pending", outcome.detail
        assert verify_book(world.url, LOG, no_step).charges == 1
        with pytest.raises(VerificationFailed, match="policy_denied follows") as fault:
            verify_book(world.url, LOG, no_step, gate=gate)
        assert fault.value.index == FOUNDED


def _blind(request: Request, facts: Facts) -> Verdict:
    """The policy's gate, told that every run is harmless."""
    return gate(replace(request, epsilon=tuple((ref, Fraction(1)) for ref, _ in request.epsilon)), facts)


def test_without_signatures_everything_else_is_checked(book: Path, tmp_path: Path) -> None:
    """A signature that is not the bank's is passed over, and said to be; a lie about a price is not."""
    entries = entries_of(book)
    lie = replace(entries[FOUNDED], signature=entries[FOUNDED + 1].signature)
    url = f"sqlite:///{forged(book, tmp_path / 'b', [*entries[:FOUNDED], lie], LOG_KEY)}"
    with pytest.raises(VerificationFailed, match="does not verify") as fault:
        verify_book(url, LOG, no_step)
    assert fault.value.index == FOUNDED
    found = verify_book(url, LOG, no_step, signatures=False)
    assert (found.signatures, "WITHOUT their signatures" in found.in_words()) == (0, True)
    prices: Any = json.loads(json.dumps(entries[FOUNDED].body["prices"]))
    price = next(iter(prices.values()))[0]["price"]
    # Beyond what is left to other machines.
    price[-2] -= price[-2] // 2_000_000_000 + 3
    cheap = _changed(book, tmp_path / "c", FOUNDED, prices=prices)
    with pytest.raises(VerificationFailed, match=r"body\.prices"):
        verify_book(f"sqlite:///{cheap}", LOG, no_step, signatures=False)


def test_the_first_wrong_entry_is_named_whatever_is_wrong_with_it(book: Path, tmp_path: Path) -> None:
    """A signature that fails is verified later than a price; the earlier entry comes first all the same."""
    entries = entries_of(book)
    unsigned = replace(entries[FOUNDED], signature=entries[FOUNDED + 1].signature)
    later = replace(entries[FOUNDED + 1], body={**entries[FOUNDED + 1].body, "author": 3})
    target = forged(book, tmp_path / "b", [*entries[:FOUNDED], unsigned, later], LOG_KEY)
    with pytest.raises(VerificationFailed) as fault:
        verify_book(f"sqlite:///{target}", LOG, no_step)
    assert (fault.value.index, "signature" in str(fault.value)) == (FOUNDED, True)
