"""``epsilon charge post``: a run that leases its steps, settled by hand with its clean room's key."""

from __future__ import annotations

import json
from pathlib import Path

from tests.factories.command_runs import run_command
from tests.factories.people import BANK_A, CleanRoom
from tests.factories.service import ServedWorld, open_world
from tests.ledger.book.test_step_refund import PLAN, lease


def _post(world: ServedWorld, folder: Path, issuer: str, run: str, steps: int) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    said = {"service": world.url, "key": "bank.pem", "actor": BANK_A, "log": world.log.vkey, "issuer": issuer}
    lines = "".join(f'{name} = "{value}"\n' for name, value in said.items())
    (folder / "bank.toml").write_text(f"v = 1\n[client]\n{lines}")
    room = str(folder / f"{run}.pem")
    return run_command(["charge", "post", str(folder / "bank.toml"), run, str(steps), "--room", room, "--json"])


def test_a_run_that_leases_its_steps_is_posted_for_what_is_leased(tmp_path: Path) -> None:
    """Its newest lease and its generation are read off the charge; fewer steps than were leased are refused."""
    with open_world(tmp_path) as world, world.issuing() as issuer:
        for entered in world.founding_with():
            world.found(entered)
        world.bank.save(tmp_path / "bank.pem")
        for run in ("none", "ten"):
            CleanRoom(run).signer.save(tmp_path / f"{run}.pem")
            assert world.submit(world.charge(run, run=PLAN, step_leases=True))[0].code.word == "pending"
        # No key is released: nothing can be leased, and a post names no generation.
        assert _post(world, tmp_path, issuer, "none", 0)[0] == 0
        assert world.submit(world.release("ten", PLAN))[0].code.word == "permitted"
        assert lease(world, "ten", (1, 10), 0).code.word == "permitted"
        code, _, err = _post(world, tmp_path, issuer, "ten", 9)
        assert (code, "10 steps of charge ten were leased, which count as run" in err) == (5, True), err
        code, out, err = _post(world, tmp_path, issuer, "ten", 10)
        assert code == 0, err
        request = json.loads(out)["body"]["request"]
        assert (request["generation"], request["steps"]) == (1, 10)
        shown = world.http.get("/v1/charges/ten", headers=world.everybody.shown(BANK_A)).json()
        assert (shown["state"], shown["steps_posted"]) == ("posted", 10)
