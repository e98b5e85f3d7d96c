"""What is recorded is answered, without what cannot be read beside it: here since rows of its file were changed."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from client.http.endpoints import BATCH
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.api.routes.submissions.test_dry_runs_and_batches import batch
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld


def _damage(folder: Path, *statements: str) -> None:
    """Change rows as the owner of the file can, its triggers gone."""
    with closing(sqlite3.connect(folder / "book.sqlite")) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount


def _sent(world: ServedWorld, kind: str, body: c.Object, name: str) -> Any:  # noqa: ANN401 - an answer
    actor, signer = (BANK_A, world.bank) if kind == "charge" else (SRO, world.sro)
    raw = world.command_bytes(signer, actor, kind, body, name)
    return world.post(PATHS[kind], raw, world.sign(signer, PATHS[kind], raw, name))


def test_a_document_whose_warnings_fail_is_answered(
    world: ServedWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """201 and its receipt, and 200 when it is sent again; that there are no warnings is logged, with the reason."""
    changed = "UPDATE entry SET data = zeroblob(length(data)) WHERE id = 'partition-2026-q4'"
    _damage(tmp_path, "DROP TRIGGER entry_no_update", changed)
    body: c.Object = {"epsilon": "0.001", "members": [BANK_A, HOSPITAL]}
    with caplog.at_level(logging.ERROR, "api.commands"):
        first, again = (_sent(world, "coalition", body, "coalition") for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert first.json()["receipt"]
    assert first.json()["index"] == again.json()["index"] == world.size - 1
    assert "warnings" not in first.json()
    assert [one.exc_info is not None for one in caplog.records if "warnings" in one.message] == [True, True]


def test_a_refusal_whose_headroom_fails_is_answered(
    world: ServedWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """403 with its reasons and its entry, and in a batch too; what is left is not in it, and that is logged."""
    _damage(tmp_path, "DROP TRIGGER document_no_update", "UPDATE document SET data = zeroblob(length(data))")
    run = world.charge_body(world.contract, CleanRoom())
    plan: Any = run["plan"]
    body = {**run, "plan": {**plan, "steps": 400}}
    with caplog.at_level(logging.ERROR, "api.commands"):
        alone = _sent(world, "charge", body, "run-1")
        (of_batch,) = batch(world, ("run-2", body, BATCH)).json()["outcomes"]
    for status, problem in ((alone.status_code, alone.json()), (of_batch["status"], of_batch["problem"])):
        assert status == 403, problem
        assert problem["reasons"]
        assert "remaining" not in problem
    assert alone.json()["index"] == world.size - 2
    assert sum("remaining budget" in one.message for one in caplog.records) == 2
