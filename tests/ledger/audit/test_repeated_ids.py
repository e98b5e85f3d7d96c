"""An operator who repeats a command that was signed once, in a database without its constraint, is found out."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.book.batch import Batch
from ledger.store.engine import engine_of
from ledger.verifier import EntryTimes
from policy.decisions.gate import gate
from tests.factories.documents import PARTITION
from tests.factories.people import LOG, SRO
from tests.factories.stored import StoredWorld, no_step
from tests.ledger.book.governed import run
from tests.postgres import new_book


def test_a_decree_that_is_recorded_twice_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would give a budget back a second time: by replay, with a policy and without, and by the verifier alone."""
    with new_book() as database:
        world = StoredWorld(tmp_path, database.url)
        world.found()
        run(world, "one", PARTITION)
        body = {"holder": "global", "partition": PARTITION, "reason": "the runs were of synthetic records"}
        signed = world.command(SRO, "decree", {**body}, "decree-1")
        assert world.submit(signed)[0].code.word == "permitted"
        run(world, "two", PARTITION)
        verify_book(world.url, LOG, no_step, gate=gate)
        world.book.close()
        owner = engine_of(database.owner, writes=True)
        with owner.begin() as connection:
            connection.execute(text("ALTER TABLE entry DROP CONSTRAINT uq_entry_id"))
        owner.dispose()
        world.book = world.open()
        with monkeypatch.context() as operator:
            # Its own program, which has the log's key, and does not look whether an id is used.
            operator.setattr(Batch, "_known", lambda _batch, _pending: None)
            (again,) = world.submit(signed)
        assert (again.code.word, again.repeated) == ("permitted", False)
        for decides in (gate, None):
            with pytest.raises(VerificationFailed, match="the id decree-1 is of an earlier entry") as found:
                verify_book(world.url, LOG, no_step, gate=decides)
            assert found.value.index == again.index
        times = EntryTimes([LOG])
        with world.book.read() as facts:
            for index, data in enumerate(facts):
                times.add(index, data)
        assert times.wrong == (f"entry {again.index}", "decree: the id decree-1 is of an earlier entry")
        world.book.close()
