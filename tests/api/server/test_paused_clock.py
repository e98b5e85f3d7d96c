"""A service whose clock jumps: 503 with Retry-After, nothing recorded, no key, until the operator accepts the clock."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from api.cli.main import app
from client.http.problems import Refused
from client.keys.signer import Signer
from ledger.book.wall_clock import read_reading, unix_ms
from ledger.wire.canonical_json import Object
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, DAY_MS, HOSPITAL, MINUTE_MS, CleanRoom, MachineClock
from tests.factories.service import NOW, open_world


def _paused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "paused")
    assert answer.headers["retry-after"] == "30"
    assert "epsilon clock accept" in answer.json()["detail"]


def test_commands_and_key_releases_wait(tmp_path: Path) -> None:
    """Also a release that is recorded: a clock that fell behind its deadline would seal its key again."""
    machine = MachineClock(NOW)
    with open_world(tmp_path, clock=machine) as world:
        contract = world.found_service()
        room = CleanRoom("run-1")
        world.service.submit(world.bank, BANK_A, "charge", world.charge_body(contract, room), "run-1")
        nonce = world.service.challenge("run-1")
        body: Object = {"charge": "run-1", "evidence": world.attest(room, "run-1", nonce), "nonce": nonce}
        first = world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        assert first.envelope is not None
        size = world.size
        for jump in (3_650 * DAY_MS, -DAY_MS):
            machine.now += jump
            tried: list[tuple[Signer, str, Object, str]] = [
                (room.signer, "key_release", body, "release-1"),
                (room.signer, "post", {"charge": "run-1", "steps": 1}, "post-1"),
                (world.hospital, "retirement", {"partition": PARTITION}, "retire"),
            ]
            for signer, kind, sent, name in tried:
                actor = HOSPITAL if kind == "retirement" else BANK_A
                with pytest.raises(Refused) as refused:
                    world.service.submit(signer, actor, kind, sent, name)
                assert (refused.value.status, refused.value.code) == (503, "paused")
            _paused(world.http.get("/readyz"))
            machine.now -= jump
        assert world.size == size
        again = world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        assert again.envelope == first.envelope


_PROFILE = """v = 1
[serve]
book = "book.sqlite"
host = "127.0.0.1"
log_key = "log.pem"
origin = "epsilon.example/ledger"
port = 0
{more}
[serve.issuers]
"https://login.example" = "issuer.jwks"
"""


def test_the_operator_accepts_the_clock(tmp_path: Path) -> None:
    """After a question, into the file of the profile; a service in development needs no such word."""
    profile = tmp_path / "serve.toml"
    profile.write_text(_PROFILE.format(more='production = true\nurl = "https://ledger.example"\nclock = "right"'))
    run = CliRunner().invoke
    refused = run(app, ["clock", "accept", str(profile)], input="n\n")
    assert refused.exit_code == 1
    assert "is that right?" in refused.output
    assert not (tmp_path / "right").exists()
    assert run(app, ["clock", "accept", str(profile), "--yes"]).exit_code == 0
    reading = read_reading(tmp_path / "right")
    assert reading is not None
    assert abs(reading.wall - unix_ms()) < MINUTE_MS
    profile.write_text(_PROFILE.format(more=""))
    needless = run(app, ["clock", "accept", str(profile), "--yes"])
    assert (needless.exit_code, "serve.production" in needless.output) == (2, True)
