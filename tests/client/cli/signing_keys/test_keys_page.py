"""The page on keys: its commands, run line by line against a served book, end as it says; and the book verifies."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from client.keys.signer import Signer
from ledger.audit.replay import verify_book
from policy.decisions.gate import gate
from tests.factories.parties_walk import ROOT, Desk, walked
from tests.factories.stored import no_step

PAGE: Final = ROOT / "docs" / "keys.md"
_ENDS: Final = re.compile(r"  # ends with (\d+)$")


def commands() -> list[tuple[str, int]]:
    """The lines of the page's script, each with its exit code."""
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found = []
    for line in filter(None, script.splitlines()):
        ends = _ENDS.search(line)
        found.append((_ENDS.sub("", line), int(ends[1]) if ends else 0))
    return found


def known_to_the_issuer(desk: Desk, line: str) -> None:
    """Tokens are another's matter: the issuer takes the key of the profile that a line names, whichever it is."""
    for profile in re.findall(r"([a-z0-9-]+)\.toml", line)[:1]:
        text = (desk.folder / f"{profile}.toml").read_text()
        key, did = (re.search(f'^{name} = "(.*)"$', text, re.MULTILINE) for name in ("key", "actor"))
        if key is not None and did is not None:
            with suppress(OSError):
                desk.issuer.add(did[1], Signer.load(desk.folder / key[1]).public)


def _hold_signed(desk: Desk) -> None:
    """What the SRO's keys signed, as it and as the member that sent the recovery see it; sent again, the same list."""
    line = "--since 2026-12-01T00:00:00Z --json"
    signed = json.loads(desk.run(f"epsilon key signed sro-3.toml did:web:sro.example {line}").out)
    kinds = [one["kind"] for one in signed]
    assert kinds[0] == "organisation"
    assert {"policy", "recovery_quorum", "key_rotation"} < set(kinds)
    again = desk.run(
        "epsilon key recover hospital-2.toml recovery.json --signature hospital.jws --signature bank-a.jws"
    )
    assert "signed by the keys of did:web:sro.example since 20" in again.out
    assert all(f" {kind} " in again.out for kind in kinds), again.out


def test_the_script_of_every_role(tmp_path: Path) -> None:
    """Rotated, suspended, resumed, revoked and recovered: what must be refused is, and nothing else."""
    with walked(tmp_path) as (desk, _):
        ended = []
        for line, code in commands():
            if line.startswith("epsilon "):
                known_to_the_issuer(desk, line)
                ran = desk.run(line)
                assert "token" not in ran.err, ran
                ended.append((line, ran.code, ran.err if ran.code != code else ""))
            else:
                subprocess.run(line, shell=True, check=True, cwd=desk.folder)  # noqa: S602 - the page's own line
                ended.append((line, 0, ""))
        assert [(line, code) for line, code, _ in ended] == commands(), [one for one in ended if one[2]]
        keys = json.loads(desk.run("epsilon key show sro-3.toml did:web:sro.example --json").out)
        assert [one["in_force"] for one in keys] == [False, False, True]
        _hold_signed(desk)
        desk.world.book.close()
        url = f"sqlite:///{tmp_path / 'book.sqlite'}"
        assert verify_book(url, desk.world.log, no_step, gate=gate).entries > len(keys)
