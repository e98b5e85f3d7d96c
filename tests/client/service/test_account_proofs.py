"""An account proof that a service answers with is of the account that was asked for, in the history that was seen."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from client.http.retry_policy import RetryPolicy
from client.http.transport import Sender
from client.service.checkpoint_guard import CheckpointGuard
from client.service.log_reads import LogReads
from client.service.seen_checkpoint import SeenCheckpoint, SeenCheckpointError
from ledger.domain.facts import GLOBAL
from ledger.log.checkpoint import sign
from ledger.verifier import to_base64, verify_account
from ledger.wire.malformed import Malformed
from ledger.wire.records import write
from tests.factories.documents import PARTITION
from tests.factories.people import LOG, LOG_KEY
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.book.state.test_account_proof import furnish, proof_of
from tests.ledger.log.memory_log import Log


class Reader(LogReads):
    """A client of a service that answers every question for a proof with the same one."""

    def __init__(self, checkpoint: str, proof: str) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, text=checkpoint if request.url.path == "/v1/checkpoint" else proof)

        http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://ledger.example")
        self._guard = CheckpointGuard(Sender(http, None, RetryPolicy(1), time.time), SeenCheckpoint(LOG, "a service"))


@pytest.fixture
def book(tmp_path: Path) -> Iterator[StoredWorld]:
    """A book with a statement, and runs since."""
    with open_world(tmp_path) as world:
        furnish(world)
        yield world


def checkpoint(world: StoredWorld) -> str:
    """The newest one."""
    with world.book.read() as facts:
        return facts.checkpoint


def test_a_proof_of_another_account_is_refused(book: StoredWorld) -> None:
    """Of another holder, that has lost nothing, and of another partition; that of the account itself is taken."""
    honest = write(proof_of(book, GLOBAL)).decode()
    service = Reader(checkpoint(book), honest)
    assert service.account_proof(PARTITION, GLOBAL) == honest
    with pytest.raises(Malformed, match=r"proof\.partition: must be .*/other, which was asked for"):
        service.account_proof(f"{PARTITION}/other", GLOBAL)
    other = Reader(checkpoint(book), write(proof_of(book, "lineage:0")).decode())
    with pytest.raises(Malformed, match=r"proof\.holder: must be global, which was asked for, and is lineage:0"):
        other.account_proof(PARTITION, GLOBAL)


def test_every_entry_of_a_proof_is_in_the_history_that_was_seen(book: StoredWorld) -> None:
    """A log that signed two histories shows an account in the other one; an entry of each is refused in any case."""
    proof: dict[str, Any] = proof_of(book, GLOBAL).to_json()
    with book.book.read() as facts:
        fork = Log([*facts.entries(0, facts.size - 1), b"another entry"])
        places = {to_base64(facts.entry(index)): index for index in range(facts.size)}
    size = len(fork.entries)
    note = sign(replace(fork.checkpoint(size), origin=LOG.origin), LOG_KEY)
    for one in (proof["statement"], *proof["charges"], *proof["since"]):
        if places[one["entry"]] < size - 1:
            one["receipt"] = fork.receipt(places[one["entry"]], size, note)
    mixed = {**proof, "statement": proof_of(book, GLOBAL).to_json()["statement"]}
    with pytest.raises(Malformed, match="several checkpoints"):
        Reader(checkpoint(book), json.dumps(mixed)).account_proof(PARTITION, GLOBAL)
    forged = json.dumps({**proof, "since": [one for one in proof["since"] if places[one["entry"]] < size - 1]})
    assert verify_account(forged, LOG).since == len(proof["since"]) - 1
    with pytest.raises(SeenCheckpointError):
        Reader(checkpoint(book), forged).account_proof(PARTITION, GLOBAL)
