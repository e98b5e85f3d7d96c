"""Mistakes of people: each ends with its exit code and a report of the field as typed, the rule and the next step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.factories.mistakes import complaints, table
from tests.factories.readme_walk import Desk, walked

CONTRACT = "--contract contract.yaml --deadline 2026-12-02T00:00:00Z"
SERVE = """v = 1
[serve]
book = "../book.sqlite"
host = "127.0.0.1"
port = 0
log_key = "sro.pem"
origin = "ledger.example/log"
[serve.issuers]
"https://login.example" = "issuer.jwks"
"""
BANKS = ("carp", "dory")


def spoil(desk: Desk) -> None:
    """What the table's commands start from: two more banks that merged, a posted charge, files for further ones."""
    folder = desk.folder
    charge: dict[str, Any] = json.loads((folder / "charge.json").read_text())
    bank, policy = (folder / "bank-a.toml").read_text(), (folder / "policy.yaml").read_text()
    partition = json.loads((folder / "partition.json").read_text())
    del charge["clean_room"]
    silent = bank.replace(desk.world.everybody.url, "http://127.0.0.1:1").replace(desk.world.url, "http://127.0.0.1:1")
    for name, text in {
        "free.json": json.dumps(charge),
        "log.vkey": desk.world.log.vkey,
        "new-partition.json": json.dumps({**partition, "partition": "2027-q1", "data_key": "scans-2027-q1"}),
        "next.yaml": policy.replace("version: 1", "version: 2"),
        "serve.toml": SERVE,
        "issuer.jwks": json.dumps({"keys": [json.loads((folder / "sro.jwk").read_text())]}),
        "silent.toml": silent,
        **{f"{name}.toml": bank.replace("bank-a", name) for name in (*BANKS, "eel")},
    }.items():
        (folder / name).write_text(text)
    (folder / "eel.json").unlink(missing_ok=True)
    for name in (*BANKS, "eel"):
        _good(desk, f"key new {name}.pem")
        _good(desk, f"key claim {name}.toml --name {name} --role TDC > {name}.json")
    for name in BANKS:
        desk.known_to_the_issuer(name)
        _good(desk, f"key register sro.toml {name}.json")
    both = " ".join(f"did:web:{name}.example" for name in BANKS)
    _good(desk, f"lineage merge sro.toml {both} --yes")
    _good(desk, f"charge make bank-a.toml free.json {CONTRACT} --id posted --room posted.pem")
    _good(desk, "charge post bank-a.toml posted 3 --room posted.pem")


def _good(desk: Desk, line: str) -> None:
    ran = desk.run(f"epsilon {line}")
    assert ran.code == 0, ran


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk of its own, with all that the table needs: what other tests add would change what is in conflict."""
    with walked(tmp_path_factory.mktemp("mistakes")) as (desk, _):
        spoil(desk)
        yield desk


def test_every_mistake_ends_with_a_sentence(spoilt: Desk) -> None:
    """The exit code, the field as typed, the rule, the next step; no traceback, no file, no entry but a refusal's."""
    rows = table("client/cli/mistakes.toml")
    assert len({one.name for one in rows}) == len(rows) >= 130
    assert [line for one in rows for line in complaints(spoilt, one)] == []
