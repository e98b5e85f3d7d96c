"""A witness that is not ours, a process on loopback: it cosigns our log, and refuses a rewritten one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from ledger.cli.main import app
from ledger.log.witness_protocol import add_checkpoint, read_cosignature
from ledger.store.cosignatures import check_cosignatures
from ledger.verifier import Checkpoint, LogKey, Note, Policy, VerificationError, WitnessKey, verify_receipt
from tests.factories.people import LOG, ORIGIN, private_key
from tests.factories.stored import ENGINES, StoredWorld, copy, open_world
from tests.factories.third_party import Witness, run, serving


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """A world with everything that a charge needs."""
    with open_world(tmp_path) as found:
        yield found


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    """A witness that knows our log and has seen nothing of it."""
    with serving(tmp_path, "witness.example/w1", ORIGIN, LOG.vkey) as found:
        yield found


@pytest.fixture
def other_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """Another history under the same log's key, longer than the first."""
    with open_world(tmp_path_factory.mktemp("fork"), founded=False) as found:
        found.clock.now += 1
        found.submit(*found.founding(), found.merger())
        yield found


def told(book: Path | str, *witnesses: str) -> tuple[int, dict[str, Any]]:
    """The exit code of ``epsilon witness``, and what it tells programs."""
    options = [word for one in witnesses for word in ("--witness", one)]
    found = CliRunner().invoke(app, ["witness", str(book), *options, "--json"])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, json.loads(found.stdout)


def policy(witness: Witness) -> Policy:
    """Our log, cosigned by this witness."""
    return Policy.parse(f"log {LOG.vkey}\nwitness W {witness.vkey}\nquorum W\n")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_growing_log_is_cosigned(engine: str, witness: Witness, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each size once; the checkpoint and the receipts then bear the witness's line, and a quorum is met."""
    folder = tmp_path_factory.mktemp("book")
    with open_world(folder, engine) as world:
        code, found = told(world.url, witness.named)
        assert (code, Checkpoint.open(found["checkpoint"], policy(witness)).size) == (0, world.size)
        assert told(world.url, witness.named)[1]["checkpoint"] == found["checkpoint"]
        before = world.size
        world.submit(world.merger())
        with world.book.read() as facts, pytest.raises(VerificationError, match="lacks the cosignatures"):
            Checkpoint.open(facts.checkpoint, policy(witness))
        assert _receipt(world, "partition-2026-q4", witness, folder).size == before
        code, found = told(world.url, witness.named)
        assert (code, Checkpoint.open(found["checkpoint"], policy(witness)).size) == (0, world.size)
        assert _receipt(world, "merger", witness, folder).size == world.size
        with world.book.read() as facts:
            assert check_cosignatures(facts) == 2


def _receipt(world: StoredWorld, name: str, witness: Witness, folder: Path) -> Checkpoint:
    """The checkpoint that an entry's receipt is under, its quorum checked."""
    found = CliRunner().invoke(app, ["receipt", world.url, name, str(folder / "evidence"), "--json"])
    assert found.exit_code == 0, found.output
    known = json.loads(found.stdout)
    text, entry = Path(known["receipt"]).read_text(), Path(known["entry"]).read_bytes()
    index, checkpoint = verify_receipt(text, entry, policy(witness))
    assert index == known["index"]
    return checkpoint


def _note(book: Path) -> str:
    with closing(sqlite3.connect(book)) as connection:
        (note,) = connection.execute("SELECT note FROM checkpoint ORDER BY tree_size DESC").fetchone()
    return str(note)


def test_a_witness_that_knows_more_is_told_the_rest(world: StoredWorld, witness: Witness, tmp_path: Path) -> None:
    """A copy that keeps no cosignatures asks from zero, is answered 409 with a size, and proves from there."""
    bare = copy(world.path, tmp_path / "bare.sqlite")
    assert told(world.path, witness.named)[0] == 0
    answer = httpx.post(f"{witness.url}/add-checkpoint", content=add_checkpoint(0, [], _note(bare)), trust_env=False)
    assert (answer.status_code, answer.content) == (409, b"%d\n" % world.size)
    assert told(bare, witness.named)[0] == 0
    with closing(sqlite3.connect(bare)) as connection:
        ((size, vkey, line),) = connection.execute("SELECT * FROM cosignature").fetchall()
    assert (size, vkey) == (world.size, witness.vkey)
    assert read_cosignature(line.encode(), _note(bare), WitnessKey.parse(vkey)) == line


def test_an_older_copy_is_noticed(world: StoredWorld, witness: Witness, tmp_path: Path) -> None:
    """A restored backup would give spent budget back: the witness has seen more than it has."""
    old = copy(world.path, tmp_path / "old.sqlite")
    world.submit(world.merger())
    assert told(world.path, witness.named)[0] == 0
    code, found = told(old, witness.named)
    assert code == 7
    what = f"has cosigned {world.size} entries of this log, and the book has {world.size - 1}"
    assert what in found["witnesses"][0]["told"]


def test_a_rewritten_history_is_refused(world: StoredWorld, other_world: StoredWorld, witness: Witness) -> None:
    """Signed with the log's own key, and with the best proof that it has: 422, an alarm, and evidence kept."""
    assert told(world.path, witness.named)[0] == 0
    code, found = told(other_world.path, witness.named)
    assert code == 7
    assert f"refuses: the {world.size} entries it has cosigned are not this book's first" in str(found["witnesses"])
    assert witness.vkey.split("+")[0] not in found["checkpoint"]
    with closing(sqlite3.connect(other_world.path)) as connection:
        assert connection.execute("SELECT count(*) FROM cosignature").fetchone() == (0,)
    (evidence,) = json.loads(run("aics_witness", "evidence", "-c", witness.config).stdout)
    assert evidence["witness_size"] == world.size
    assert _note(other_world.path) in evidence["request"]
    assert Checkpoint.open(_note(other_world.path), LOG).size == other_world.size


def test_one_of_two_witnesses_cannot_be_reached(world: StoredWorld, witness: Witness) -> None:
    """What the other signed is kept; the exit code says that something is missing."""
    gone = witness.named.replace(witness.url, "http://127.0.0.1:9")
    assert told(world.path, gone, witness.named)[0] == 75
    code, found = told(world.path, witness.named)
    assert (code, "cosigned before" in found["witnesses"][0]["told"]) == (0, True)
    assert len(Note.parse(found["checkpoint"]).lines) == 2


@pytest.mark.parametrize(
    ("origin", "key", "said"),
    [
        ("elsewhere.example/log", "log", "does not know this log (HTTP 404)"),
        (ORIGIN, "another log", "has another key for this log (HTTP 403)"),
    ],
)
def test_a_log_that_it_does_not_know(world: StoredWorld, tmp_path: Path, origin: str, key: str, said: str) -> None:
    """Refused, by origin or by key; nothing is kept."""
    known = LogKey(origin, private_key(key).public_key().public_bytes_raw())
    with serving(tmp_path, "witness.example/w2", origin, known.vkey) as found:
        code, answer = told(world.path, found.named)
    assert (code, said in answer["witnesses"][0]["told"]) == (3, True)
    assert len(Note.parse(answer["checkpoint"]).lines) == 1
