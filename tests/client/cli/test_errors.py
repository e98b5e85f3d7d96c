"""Commands on their bad paths: the exit code, nothing on stdout, and on stderr what is wrong and what to do next."""

from __future__ import annotations

import json

import pytest

from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from tests.factories.parties_walk import Desk
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom

REF = f"{HOSPITAL}/scans/2026-q4"
CONTRACT = "--contract contract.yaml --deadline 2026-12-02T00:00:00Z"

FAULTS = [
    # line, exit code, a word of the fault, what to do next
    ("policy publish sro.toml nothing.yaml", 4, "nothing.yaml: No such file", "check the file"),
    ("policy publish sro.toml policy.yaml", 3, "version_not_next", "Nothing was recorded: change"),
    ("policy publish hospital.toml policy.yaml", 6, "not_authorised", "check the profile"),
    ("policy publish sro.toml dataset.yaml", 2, "malformed", "fix the field"),
    (f"policy decree sro.toml {REF} nobody --reason one", 2, "holder", "fix the field"),
    ("dataset register hospital.toml empty", 2, "must have 1 to 2097152 bytes", "fix the field"),
    ("dataset open-partition hospital.toml partition.json", 5, "conflict", "read the current state"),
    ("dataset open-partition hospital.toml list.json", 2, "must be an object", "fix the field"),
    ("dataset open-partition hospital.toml contract.yaml", 2, "malformed", "fix the field"),
    ("dataset open-partition bank-a.toml partition.json", 6, "not_authorised", "check the profile"),
    ("dataset recommend hospital.toml budget.yaml", 6, "not_authorised", "check the profile"),
    ("dataset recommend hospital.toml dataset.yaml", 2, "must say 'kind: recommendation'", "fix the field"),
    (f"dataset retire hospital.toml {HOSPITAL}", 2, "provider/dataset/partition", "fix the field"),
    (f"dataset retire hospital.toml {REF}-not", 4, "not_found", "check the name"),
    (f"dataset show bank-a.toml {REF}-not", 4, "not_found", "check the name"),
    ("contract sign hospital.toml nothing.yaml", 4, "nothing.yaml", "check the file"),
    ("contract enter bank-a.toml unsigned.yaml", 6, "signature_missing", "epsilon contract sign"),
    (
        "contract enter bank-a.toml unsigned.yaml --signature list.json",
        2,
        "no detached JWS",
        "fix the field",
    ),
    (
        "contract enter bank-a.toml unsigned.yaml --signature hospital.jws",
        6,
        "hospital.jws: does",
        "epsilon contract sign",
    ),
    ("contract revoke hospital.toml unsigned", 2, "neither a file nor a SHA-256", "fix the field"),
    (f"contract revoke hospital.toml {'0' * 64}", 4, "not_found", "check the name"),
    ("contract revoke bank-a.toml contract.yaml", 6, "not_authorised", "check the profile"),
    (f"contract show bank-a.toml {'0' * 64}", 4, "not_found", "check the name"),
    ("charge make bank-a.toml charge.json", 2, "contract", "fix the field"),
    (f"charge make bank-a.toml long.json {CONTRACT}", 3, "run_above_contract", "Retry with a new --id"),
    (f"quote bank-a.toml long.json {CONTRACT}", 3, "run_above_contract", "Nothing was recorded"),
    (f"quote bank-a.toml named.json {CONTRACT}", 2, "says another contract", "fix the field"),
    ("charge show bank-a.toml no-run", 4, "not_found", "check the name"),
    ("charge void bank-a.toml no-run", 4, "not_found", "check the name"),
    ("charge post bank-a.toml run-1 100 --room hospital.pem", 6, "token_invalid", "check the profile"),
    (f"lineage merge sro.toml {BANK_A} {BANK_A}", 5, "one lineage already", "read the current state"),
    (f"lineage merge sro.toml {BANK_A} did:web:no.example", 4, "is not registered", "check the name"),
    (f"lineage acquire bank-a.toml {BANK_A} {HOSPITAL}", 6, "not_authorised", "check the profile"),
    (f"lineage collude sro.toml {BANK_A} --since 2026-12-01T00:00:00Z", 2, "2 to 64 items", "fix the field"),
    (f"lineage split sro.toml {BANK_A} {BANK_A}", 2, "another organisation", "fix the field"),
    (f"lineage transfer sro.toml no-run {HOSPITAL}", 4, "no charge", "check the name"),
    ("lineage publish sro.toml no-run", 4, "no charge", "check the name"),
    (f"lineage declare sro.toml {BANK_A} {HOSPITAL} --epsilon none", 2, "epsilon", "fix the field"),
    ("key claim bank-a.toml --name Bank --role BANK", 2, "--role[0]", "fix the field"),
    ("key register sro.toml sro.json", 5, "registered already", "read the current state"),
    ("key register bank-a.toml bank-a.json", 6, "not_authorised", "check the profile"),
    ("account nothing.toml", 4, "nothing.toml", "check the file"),
    ("account sro.json", 2, "is not TOML", "fix the field"),
    ("account silent.toml", 75, "no answer", "in a moment"),
    ("lineage publish silent.toml run-1 --id once", 75, "no answer", "--id once"),
    ("account stranger.toml", 6, "no token", "check the profile"),
]


@pytest.fixture
def spoilt(desk: Desk) -> Desk:
    """The desk, with files that are wrong in one way each."""
    folder = desk.folder
    charge = json.loads((folder / "charge.json").read_text())
    bank = (folder / "bank-a.toml").read_text()
    for name, text in {
        "budget.yaml": "kind: recommendation\nv: 1\n",
        "empty": "",
        "list.json": "[]",
        "long.json": json.dumps(
            {**charge, "clean_room": CleanRoom().to_json(), "plan": {**charge["plan"], "steps": 4000}}
        ),
        "named.json": json.dumps({**charge, "contract": "0" * 64}),
        "silent.toml": bank.replace(desk.world.everybody.url, "http://127.0.0.1:1").replace(
            desk.world.url, "http://127.0.0.1:1"
        ),
        "stranger.toml": bank.replace("bank-a", "stranger"),
        "unsigned.yaml": (folder / "contract.yaml").read_text().replace("scans-bank-a", "scans-unsigned"),
    }.items():
        (folder / name).write_text(text)
    if not (folder / "stranger.pem").exists():
        Signer.generate().save(folder / "stranger.pem")
    return desk


def test_faults_are_reported_with_what_to_do_next(spoilt: Desk) -> None:
    """Each ends with its exit code and an empty stdout, and tells fault and next step; a refusal alone is recorded."""
    for line, code, word, then in FAULTS:
        size = spoilt.world.size
        ran = spoilt.run(f"epsilon {line}")
        assert (ran.code, ran.out) == (code, ""), (line, ran.err)
        assert word in ran.err, (line, ran.err)
        assert then in ran.err.splitlines()[-1], (line, ran.err)
        assert spoilt.world.size == size + ("Refusal logged as entry" in ran.err), line


def test_programs_read_faults_as_json(spoilt: Desk) -> None:
    """With --json a refusal is one object on stdout: code, every reason, entry and exit code; and it is the log's."""
    size = spoilt.world.size
    ran = spoilt.run(f"epsilon charge make bank-a.toml long.json {CONTRACT} --id too-long --json")
    reported = json.loads(ran.out)
    assert (ran.code, reported["exit_code"], reported["code"], reported["id"]) == (3, 3, "policy_denied", "too-long")
    assert reported["index"] == size
    assert "run_above_contract" in {one["code"] for one in reported["reasons"]}
    assert all(one["detail"] in ran.err for one in reported["reasons"])
    local = spoilt.run("epsilon dataset open-partition hospital.toml list.json --json")
    assert json.loads(local.out)["field"] == "list.json"


def test_a_signature_of_other_bytes_is_not_taken(spoilt: Desk) -> None:
    """A document that differs by one byte from what was signed is not entered."""
    data = (spoilt.folder / "unsigned.yaml").read_bytes()
    (spoilt.folder / "signed.yaml").write_bytes(data)
    assert spoilt.run("epsilon contract sign hospital.toml signed.yaml > signed.jws").code == 0
    (spoilt.folder / "signed.yaml").write_bytes(data + b"\n")
    ran = spoilt.run("epsilon contract enter bank-a.toml signed.yaml --signature signed.jws")
    assert (ran.code, ran.out) == (6, "")
    assert spoilt.run(f"epsilon contract show bank-a.toml {c.digest(data)}").code == 4
