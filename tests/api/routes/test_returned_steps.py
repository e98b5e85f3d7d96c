"""Leased steps that a post returned are told of the charge: over HTTP, and in words by ``epsilon charge show``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from client.cli.wording.refunds import refund_lines
from ledger.wire import canonical_json as c
from tests.factories.command_runs import run_command
from tests.factories.documents import policy
from tests.factories.people import BANK_A, HOSPITAL
from tests.factories.service import ServedWorld, open_world
from tests.ledger.book.test_step_refund import PLAN, lease, post

PENDING = "Leased steps that are not taken come back on the clean room's word (refund: stated), which is trust in"
POSTED = "6 leased steps came back on the clean room's word (refund: stated), which is trust in the clean room"


def told(world: ServedWorld, run: str, **query: int) -> Any:  # noqa: ANN401 - JSON
    """The charge as the provider reads it."""
    answer = world.http.get(f"/v1/charges/{run}", params=query, headers=world.everybody.shown(HOSPITAL))
    assert answer.status_code == httpx.codes.OK
    return answer.json()


def shown(world: ServedWorld, folder: Path, run: str, issuer: str) -> str:
    """What ``epsilon charge show`` tells the provider."""
    said = {"service": world.url, "key": "hospital.pem", "actor": HOSPITAL, "log": world.log.vkey, "issuer": issuer}
    lines = "".join(f'{name} = "{value}"\n' for name, value in said.items())
    (folder / "hospital.toml").write_text(f"v = 1\n[client]\n{lines}")
    done = run_command(["charge", "show", str(folder / "hospital.toml"), run])
    assert done.code == 0, done.err
    return " ".join(done.out.split())


def test_the_provider_is_told_which_steps_came_back_and_on_whose_word(tmp_path: Path) -> None:
    """Of a pending run what its policies state, of a posted one how many came back; of any other charge nothing."""
    with open_world(tmp_path) as world, world.issuing() as issuer:
        for entered in world.founding_with(governing=policy(world.begun, refund="stated")):
            world.found(entered)
        world.hospital.save(tmp_path / "hospital.pem")
        run, whole = "run", "whole"
        for one in (run, whole):
            assert world.submit(world.charge(one, run=PLAN, step_leases=True))[0].code.word == "pending"
            assert world.submit(world.release(one, PLAN))[0].code.word == "permitted"
            assert lease(world, one, (1, 10), 0).code.word == "permitted"
        before = world.size
        assert PENDING in shown(world, tmp_path, run, issuer)
        assert post(world, run, 4).code.word == post(world, whole, 10).code.word == "posted"
        assert told(world, run)["returned"] == told(world, run, as_of=world.size)["returned"]
        assert told(world, run)["returned"] == {"refund": "stated", "steps": 6}
        assert "returned" not in {*told(world, whole), *told(world, run, as_of=before)}
        assert POSTED in shown(world, tmp_path, run, issuer)
        assert "leased steps" not in shown(world, tmp_path, whole, issuer)
        assert world.http.get(f"/v1/charges/{run}", headers=world.everybody.shown(BANK_A)).json() == told(world, run)


def test_each_refund_has_its_words() -> None:
    """Fresh evidence is no word of the clean room; where nothing comes back, nothing is said."""
    (attested,) = refund_lines(None, {"refund": "attested", "steps": 3})
    assert attested.startswith("3 leased steps came back on fresh evidence (refund: attested)")
    silent: list[c.Json] = [None, {"steps": 3}, {"refund": "never"}]
    assert [refund_lines(one, None) for one in silent] == [[], [], []]
