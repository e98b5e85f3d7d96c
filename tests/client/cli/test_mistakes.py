"""Mistakes of people: each ends with its exit code and a report of the field as typed, the rule and the next step."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories.mistakes import complaints, table
from tests.factories.parties_walk import Desk, walked

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
HOSPITAL = "did:web:hospital.example"
STREAM = f"""kind: stream
v: 1
provider: {HOSPITAL}
dataset: weekly
version: 1
period: week
budget: {{epsilon: "6", delta: "0.00001"}}
rule: renyi
relation: REPLACE_SPECIAL
unit: record
records_min: 100
life_days: 30
window_max: 2
appearances_max: 1
persons: committed
"""
SCHEMA = "--schema visits.toml"
SLICE_SCHEMA = """v = 1
[records]
target = "y"
inputs = ["age"]
person = ["patient"]
"""


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
    # Its file names a clean room, which is in use from here on.
    _good(desk, f"charge make bank-a.toml charge.json {CONTRACT} --id roomed")


def spoil_streams(desk: Desk) -> None:
    """A stream by hand, with a slice that is retired and two that are open; one of weeks; files for a next slice."""
    folder = desk.folder
    first = {"w1": (0, 100), "w2": (100, 200), "w3": (200, 300), "next": (400, 500), "few": (400, 499)}
    tables = {name: [(one, one) for one in range(*ends)] for name, ends in first.items()}
    tables["again"] = [(one, one) for one in (*range(140, 200), *range(600, 660))]
    tables["return"] = [(one + 700, one) for one in range(100)]
    for name, rows in tables.items():
        lines = [f"{age},{patient},{age % 2}" for age, patient in rows]
        (folder / f"{name}.csv").write_text("\n".join(["age,patient,y", *lines, ""]))
    (folder / "visits.toml").write_text(SLICE_SCHEMA)
    # One key for all that a provider commits to.
    (folder / "slices").mkdir()
    shutil.copy(folder / "commitments.key", folder / "slices")
    for name, period in (("visits", "by_hand"), ("weekly", "week")):
        text = STREAM.replace("weekly", name).replace("period: week", f"period: {period}")
        (folder / f"stream-{name}.yaml").write_text(text)
        (folder / f"{name}.yaml").write_text((folder / "dataset.yaml").read_text().replace("id: scans", f"id: {name}"))
        _good(desk, f"dataset register hospital.toml {name}.yaml")
        _good(desk, f"stream enter hospital.toml stream-{name}.yaml")
    for name in ("w1", "w2", "w3"):
        _good(desk, f"dataset advance hospital.toml visits {name}.csv --slices slices --period {name} {SCHEMA}")
    _good(desk, f"dataset retire hospital.toml {HOSPITAL}/visits/w1")
    agreed = (folder / "contract.yaml").read_text().replace("scans", "visits")
    (folder / "visits-contract.yaml").write_text(agreed)
    run = {**json.loads((folder / "run.json").read_text()), "partitions": [f"{HOSPITAL}/visits[w2..w3]"]}
    (folder / "range.json").write_text(json.dumps(run))
    _good(desk, "contract sign hospital.toml visits-contract.yaml > visits.jws")
    _good(desk, "contract enter bank-a.toml visits-contract.yaml --signature visits.jws")


def _good(desk: Desk, line: str) -> None:
    ran = desk.run(f"epsilon {line}")
    assert ran.code == 0, ran


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk of its own, with all that the table needs: what other tests add would change what is in conflict."""
    with walked(tmp_path_factory.mktemp("mistakes")) as (desk, _):
        spoil(desk)
        spoil_streams(desk)
        yield desk


def test_every_mistake_ends_with_a_sentence(spoilt: Desk) -> None:
    """The exit code, the field as typed, the rule, the next step; no traceback, no file, no entry but a refusal's."""
    rows = [*table("client/cli/mistakes.toml"), *table("client/cli/stream_mistakes.toml")]
    assert len({one.name for one in rows}) == len(rows)
    assert [line for one in rows for line in complaints(spoilt, one)] == []
    print(f"{len(rows)} mistakes, each ended with a sentence")  # noqa: T201 - how many there are


def test_no_mistake_of_the_first_trial_is_left_out() -> None:
    """All 101, but for the three that need a trained run; and fifty more for commands that came later."""
    rows = table("client/cli/mistakes.toml")
    numbers = [one.first for one in rows if one.first is not None]
    # 99 to 101 release, measure and train again what left already: tests/trainer_adapter/cli/test_own_data.py.
    assert sorted(numbers) == [*range(1, 99)]
    cases = tomllib.loads((Path(__file__).parents[1] / "dataset_files" / "bad_files.toml").read_text())["case"]
    later = len(rows) - len(numbers)
    print(f"{len(numbers)} of the first trial, {later} of later commands, {len(cases)} of files to seal")  # noqa: T201
    assert later + len(cases) >= 50
