"""Commands and entries: one spelling each, and every wrong field refused by name."""

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.commands.entry import ENTRY_BYTES_MAX, Entry
from ledger.commands.registry import KINDS, read_body, read_command
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.crypto.public_keys import PublicKey
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.ledger.mechanisms.test_plan import PLAN, changed

X = c.base64url(bytes(range(32)))
KEY: dict[str, Any] = {"crv": "Ed25519", "kty": "OKP", "x": X}
DIGEST = "ab" * 32
REF = "did:web:hospital.example/scans/2026"
BODIES: dict[str, dict[str, Any]] = {
    "organisation": {
        "key": KEY,
        "name": "Bank Ä",
        "organisation": "did:web:bank-a.example",
        "possession": "a..b",
        "roles": ["TDC", "AUDITOR"],
    },
    "policy": {"document": DIGEST, "signatures": [DIGEST]},
    "dataset": {"document": DIGEST, "signatures": [DIGEST]},
    "partition": {
        "data_key": "key-1",
        "dataset": "scans",
        "delta": "0.00001",
        "epsilon": "3",
        "load": PLAN,
        "partition": "2026",
        "provider": "did:web:hospital.example",
        "records": 1797,
        "relation": "REPLACE_SPECIAL",
        "rule": "renyi",
        "unit": "record",
    },
    "retirement": {"partition": REF},
    "contract": {"document": DIGEST, "signatures": [DIGEST, "cd" * 32]},
    "charge": {
        "clean_room": {"sealing": {**KEY, "crv": "X25519"}, "signing": KEY},
        "contract": DIGEST,
        "deadline": 1_800_000_000_000,
        "partitions": [REF],
        "plan": PLAN,
    },
    "key_release": {"charge": "run-1", "evidence": DIGEST, "nonce": X},
    "run_generation": {"charge": "run-1", "evidence": DIGEST, "nonce": X},
    "step_lease": {"charge": "run-1", "first": 11, "generation": 2, "last": 20, "state": DIGEST},
    "post": {"charge": "run-1", "steps": 120},
    "void": {"charge": "run-1"},
    "lapse": {"charge": "run-1"},
    "statement": {"root": DIGEST, "size": 4_096},
    "audit_report": {"charge": "run-1", "correct": 150, "epsilon_claimed": "1.25", "plan": PLAN},
    "model_release": {"charge": "run-1", "model": DIGEST},
    "recommendation": {"document": DIGEST, "signatures": [DIGEST]},
    "stream": {"document": DIGEST, "signatures": [DIGEST]},
    "revocation": {"contract": DIGEST},
    "decree": {"holder": "global", "partition": REF, "reason": "records were counted twice"},
    "clock_correction": {"ahead": 2, "reason": "the clock was set to 2036", "signatures": ["a..b"], "time": 1},
    "key_rotation": {"key": KEY, "possession": "a..b", "retires": X, "until": 1_800_000_000_000},
    "key_revocation": {"keys": [X], "reason": "a laptop was stolen"},
    "key_suspension": {"keys": [X], "reason": "a laptop is missing", "suspended": True},
    "recovery_quorum": {"members": ["did:web:bank-b.example"], "threshold": 1},
    "key_recovery": {
        "key": KEY,
        "organisation": "did:web:bank-b.example",
        "possession": "a..b",
        "reason": "the key was lost",
    },
    "log_key_rotation": {"key": KEY, "possession": "a..b", "retires": KEY},
    "log_key_suspension": {"key": KEY, "reason": "a laptop is missing", "suspended": True},
    "release_notice": {"charge": "run-1", "model": DIGEST},
    "model_opening": {
        "charge": "run-1",
        "clean_room": {"sealing": {**KEY, "crv": "X25519"}, "signing": KEY},
        "evidence": DIGEST,
        "model": DIGEST,
        "nonce": X,
    },
    "merger": {"organisation": "did:web:bank-ab.example", "parents": ["did:web:bank-a.example"]},
    "acquisition": {"acquired": ["did:web:bank-b.example"], "organisation": "did:web:bank-a.example"},
    "collusion": {
        "effective": 1_700_000_000_000,
        "organisations": ["did:web:bank-a.example", "did:web:bank-b.example"],
    },
    "split": {"child": "did:web:bank-b.example", "organisation": "did:web:bank-a.example"},
    "transfer": {"charge": "run-1", "recipient": "did:web:bank-b.example"},
    "publication": {"charge": "run-1"},
    "coalition": {"epsilon": "2.5", "members": ["did:web:bank-a.example", "did:web:bank-b.example"]},
}
OPTIONAL: dict[str, dict[str, Any]] = {
    "charge": {
        "base": ["run-0"],
        "pipeline": DIGEST,
        "recipients": ["did:web:bank-b.example"],
        "step_leases": True,
        "unit_records_max": 2,
    },
    "key_recovery": {"signatures": ["a..b"]},
    "key_rotation": {"starts": 1_700_000_000_000},
    "log_key_rotation": {"overlap": 1_000, "revokes": {"key": X, "size": 0}},
    "merger": {"proposed": True},
    "model_release": {"post": "post-1", "watermark": DIGEST},
    "post": {"generation": 2, "lease": "lease-1", "model": DIGEST},
    "partition": {"commitments": [DIGEST], "reason": "rare records"},
    "transfer": {"agreement": {"runs": 7, "signature": "a..b"}, "giver": "did:web:bank-a.example"},
    "publication": {"giver": "did:web:bank-a.example"},
    "recovery_quorum": {"signatures": ["a..b"]},
}


def command(kind: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """A good command of a kind, or one with fields changed."""
    whole = {"actor": "did:web:bank-a.example", "body": BODIES[kind], "id": "run-1", "key_id": X, "kind": kind, "v": 1}
    return {**whole, **changes}


def test_every_kind_has_a_body_here() -> None:
    """The tables below leave no kind out."""
    assert set(BODIES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_command_reads_back(kind: str) -> None:
    """Bytes to command to the same bytes."""
    data = c.dump(command(kind))
    read = read_command(data).command
    assert read.to_bytes() == data
    assert read_command(read.to_bytes()).command == read


@pytest.mark.parametrize("kind", OPTIONAL)
def test_optional_fields_read_back(kind: str) -> None:
    """Said, they are in the body; left out, nothing stands for them in the bytes."""
    whole = command(kind, body={**BODIES[kind], **OPTIONAL[kind]})
    read = read_command(c.dump(whole)).command
    assert read.to_bytes() == c.dump(whole)
    said, unsaid = read_body(read), read_command(c.dump(command(kind))).body
    assert read_command(c.dump(whole)).body == said
    for name, value in OPTIONAL[kind].items():
        assert said.to_json()[name] == value
        assert not getattr(unsaid, name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_needed_and_no_other_is_known(kind: str) -> None:
    """Each field taken away, or one added, at every level: refused with its path."""
    whole = command(kind)
    for path in paths(whole):
        if path == "body.load":
            continue
        with pytest.raises(Malformed) as fault:
            read_command(c.dump(changed(whole, path, ...)))
        assert fault.value.field in {path, "body.load" if path.startswith("body.load") else path}
    for path in ("extra", "body.extra"):
        with pytest.raises(Malformed, match=rf"^{path}: is not a known field"):
            read_command(c.dump(changed(whole, path, 1)))


def paths(value: dict[str, Any], prefix: str = "") -> list[str]:
    """Each name in nested objects, as a dotted path."""
    own = [f"{prefix}{name}" for name in value]
    inner = [paths(one, f"{prefix}{name}.") for name, one in value.items() if isinstance(one, dict)]
    return own + [path for more in inner for path in more]


HOSTILE: list[tuple[str, str, Any]] = [
    ("charge", "v", 2),
    ("charge", "v", True),
    ("charge", "v", "1"),
    ("charge", "kind", "withdrawal"),
    ("charge", "kind", None),
    ("charge", "id", ""),
    ("charge", "id", "run 1"),
    ("charge", "id", "../run"),
    ("charge", "id", "a" * 129),
    ("charge", "actor", "bank-a"),
    ("charge", "actor", "did:web:bank-a.example\n"),
    ("charge", "key_id", X + "="),
    ("charge", "key_id", X[:-1]),
    ("charge", "key_id", 7),
    ("charge", "body", []),
    ("charge", "body", "x"),
    ("charge", "body.contract", DIGEST.upper()),
    ("charge", "body.partitions", []),
    ("charge", "body.partitions", [REF, REF]),
    ("charge", "body.partitions", [f"{REF}{place}" for place in range(17)]),
    ("charge", "body.partitions[0]", ["did:web:hospital.example/scans"]),
    ("charge", "body.partitions[0]", [f"{REF}/more"]),
    ("charge", "body.partitions[0]", ["hospital/scans/2026"]),
    ("charge", "body.partitions[0]", [1]),
    ("charge", "body.deadline", -1),
    ("charge", "body.deadline", 253_402_300_800_000),
    ("charge", "body.deadline", "soon"),
    ("charge", "body.deadline", True),
    ("charge", "body.clean_room.signing", {**KEY, "crv": "P-256"}),
    ("charge", "body.clean_room.signing", {**KEY, "kty": "EC"}),
    ("charge", "body.clean_room.signing.d", {**KEY, "d": X}),
    ("charge", "body.clean_room.signing.x", {**KEY, "x": X + "A"}),
    ("charge", "body.clean_room.sealing", KEY),
    ("charge", "body.plan.noise_multiplier", {**PLAN, "noise_multiplier": "1_000"}),
    ("charge", "body.plan.steps", {**PLAN, "steps": 0}),
    ("charge", "body.plan.momentum", {**PLAN, "momentum": "1"}),
    ("charge", "body.plan", None),
    ("partition", "body.epsilon", "NaN"),
    ("partition", "body.epsilon", "-1"),
    ("partition", "body.epsilon", "1e-5"),
    ("partition", "body.epsilon", 3),
    ("partition", "body.delta", "1.0"),
    ("partition", "body.delta", " 7 "),
    ("partition", "body.records", 0),
    ("partition", "body.records", 10**12 + 1),
    ("partition", "body.relation", "REPLACE_TWO"),
    ("partition", "body.unit", "household"),
    ("partition", "body.rule", "best"),
    ("partition", "body.load.steps", {**PLAN, "steps": "120"}),
    ("partition", "body.dataset", "a/b"),
    ("partition", "body.provider", "hospital"),
    ("organisation", "body.roles", []),
    ("organisation", "body.roles", ["TDC", "TDC"]),
    ("organisation", "body.roles[0]", ["ADMIN"]),
    ("organisation", "body.name", ""),
    ("organisation", "body.name", "a" * 201),
    ("organisation", "body.key", "key"),
    ("organisation", "body.possession", ""),
    ("organisation", "body.key", {**KEY, "crv": "X25519"}),
    ("organisation", "body.key.x", {**KEY, "x": c.base64url(bytes(32))}),
    ("charge", "body.clean_room.signing.x", {**KEY, "x": c.base64url(bytes(32))}),
    ("policy", "body.document", "abc"),
    ("policy", "body.signatures", []),
    ("policy", "body.signatures", [DIGEST] * 2),
    ("policy", "body.signatures", [f"{place:064x}" for place in range(33)]),
    ("policy", "body.signatures[0]", ["x"]),
    ("key_release", "body.nonce", X[:-2]),
    ("key_release", "body.evidence", ""),
    ("post", "body.steps", -1),
    ("post", "body.steps", 10_000_001),
    ("post", "body.steps", True),
    ("post", "body.charge", "a b"),
    ("audit_report", "body.correct", -1),
    ("audit_report", "body.correct", 4_097),
    ("audit_report", "body.epsilon_claimed", "0"),
    ("audit_report", "body.plan.steps", {**PLAN, "steps": 0}),
    ("model_release", "body.model", "0x" + DIGEST[2:]),
    ("model_release", "body.watermark", ""),
    ("partition", "body.commitments", []),
    ("partition", "body.commitments", [f"{place:064x}" for place in range(65)]),
    ("partition", "body.commitments[0]", ["x"]),
    ("partition", "body.reason", ""),
    ("revocation", "body.contract", "digits"),
    ("decree", "body.holder", "lineage:"),
    ("decree", "body.holder", "lineage:007"),
    ("decree", "body.holder", "lineage:-1"),
    ("decree", "body.holder", "lineage:\u0663"),
    ("decree", "body.holder", "global:1"),
    ("decree", "body.reason", ""),
    ("key_rotation", "body.retires", "key-1"),
    ("key_rotation", "body.until", -1),
    ("key_rotation", "body.starts", "now"),
    ("key_rotation", "body.possession", ""),
    ("key_rotation", "body.key.x", {**KEY, "x": c.base64url(bytes(32))}),
    ("key_revocation", "body.keys", []),
    ("key_revocation", "body.keys", [X, X]),
    ("key_revocation", "body.keys[0]", ["x"]),
    ("key_revocation", "body.reason", ""),
    ("key_suspension", "body.suspended", 1),
    ("key_suspension", "body.keys", []),
    ("recovery_quorum", "body.members", []),
    ("recovery_quorum", "body.threshold", 0),
    ("recovery_quorum", "body.threshold", 13),
    ("key_recovery", "body.key", "key"),
    ("key_recovery", "body.signatures", ["a..b"] * 2),
    ("key_recovery", "body.key.x", {**KEY, "x": c.base64url(bytes(32))}),
    ("release_notice", "body.model", ""),
    ("model_opening", "body.nonce", "x"),
    ("model_opening", "body.clean_room.signing", KEY["x"]),
    ("charge", "body.recipients", "all"),
    ("charge", "body.recipients[0]", ["everyone"]),
    ("charge", "body.recipients", ["did:web:bank-b.example"] * 2),
    ("merger", "body.parents", []),
    ("merger", "body.parents[0]", ["bank"]),
    ("merger", "body.organisation", None),
    ("merger", "body.proposed", 1),
    ("acquisition", "body.acquired", []),
    ("collusion", "body.organisations", ["did:web:bank-a.example"]),
    ("collusion", "body.organisations", ["did:web:bank-a.example"] * 2),
    ("collusion", "body.effective", "2026"),
    ("collusion", "body.effective", -1),
    ("split", "body.child", "bank"),
    ("transfer", "body.charge", ""),
    ("transfer", "body.recipient", ["did:web:bank-b.example"]),
    ("transfer", "body.agreement", "a..b"),
    ("publication", "body.charge", None),
    ("coalition", "body.members", ["did:web:bank-a.example"]),
    ("coalition", "body.epsilon", "0"),
    ("coalition", "body.epsilon", 2),
    ("retirement", "body.partition", "a/b/c/d"),
]


@pytest.mark.parametrize(("kind", "field", "value"), HOSTILE, ids=lambda value: repr(value)[:24])
def test_hostile_command_is_refused_by_name(kind: str, field: str, value: object) -> None:
    """One field of a good command made wrong; the fault names that field."""
    whole = command(kind)
    path = field.removesuffix("[0]")
    if isinstance(value, dict) and path.rpartition(".")[2] not in {"signing", "sealing", "key"}:
        path = path.rpartition(".")[0]
    with pytest.raises(Malformed) as fault:
        read_command(c.dump(changed(whole, path, value)))
    assert fault.value.field == field


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b'{"v":1.0}', b'{"v":1,"v":1}', b'{"a":' * 1000, b" " * 40_000])
def test_bytes_that_are_no_command(data: bytes) -> None:
    """Refused by rule, never a crash."""
    with pytest.raises(Malformed):
        read_command(data)


def test_a_command_not_in_canonical_form_is_refused() -> None:
    """The signed bytes have one spelling."""
    with pytest.raises(Malformed, match="RFC 8785"):
        read_command(json.dumps(command("post")).encode())


def test_a_command_has_at_most_32_768_bytes() -> None:
    """Half of what an entry may hold."""
    with pytest.raises(Malformed, match="more than the 32768"):
        read_command(c.dump(command("post", extra="a" * 32_768)))


def test_bodies_are_typed() -> None:
    """A charge's body is read into values; its keys have thumbprints."""
    body = read_command(c.dump(command("charge"))).body
    assert isinstance(body, MakeCharge)
    assert body.plan.to_json() == PLAN
    assert body.clean_room.signing == PublicKey("Ed25519", X)
    assert body.clean_room.signing.thumbprint == c.base64url(sha256(c.dump(KEY)).digest())


RECORDED = [code for code in Code if code.recorded]
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,20}", fullmatch=True)
ENTRIES = st.builds(
    Entry,
    kind=st.sampled_from([*KINDS]),
    id=NAMES,
    time=st.integers(0, 253_402_300_799_999),
    actor=NAMES.map(lambda name: f"did:web:{name.replace('~', '-')}"),
    key_id=st.binary(min_size=32, max_size=32).map(c.base64url),
    body=st.builds(
        lambda code, request: {"outcome": code.word, "request": request},
        st.sampled_from(RECORDED),
        st.dictionaries(st.text("abcdé", max_size=3), st.integers(0, 9), max_size=3),
    ),
    signature=st.text("abc.", min_size=1, max_size=9),
)


@settings(deadline=None)
@given(ENTRIES)
def test_entry_reads_back(entry: Entry) -> None:
    """Stored bytes are read as the entry that was stored, and as the command that was signed."""
    again = Entry.parse(entry.to_bytes())
    assert again == entry
    assert again.to_bytes() == entry.to_bytes()
    assert again.code.recorded
    assert again.command.body == entry.request


ENTRY: dict[str, Any] = {
    "actor": "did:web:bank-a.example",
    "body": {"outcome": "posted", "request": BODIES["post"]},
    "id": "post-1",
    "key_id": X,
    "kind": "post",
    "signature": "a..b",
    "time": 1,
    "v": 1,
}
BAD_ENTRIES: list[tuple[str, Any, str]] = [
    ("v", 2, "v"),
    ("v", True, "v"),
    ("time", -1, "time"),
    ("time", "1", "time"),
    ("kind", "withdrawal", "kind"),
    ("signature", "", "signature"),
    ("signature", ..., "signature"),
    ("note", "x", "note"),
    ("body", [], "body.request"),
    ("body.request", ..., "body.request"),
    ("body.request", "x", "body.request"),
    ("body.outcome", ..., "body.outcome"),
    ("body.outcome", "malformed", "body.outcome"),
    ("body.outcome", "signature_invalid", "body.outcome"),
    ("body.outcome", ["posted"], "body.outcome"),
    ("actor", "bank", "actor"),
    ("key_id", "x", "key_id"),
    ("id", "a b", "id"),
]


@pytest.mark.parametrize(("path", "value", "field"), BAD_ENTRIES, ids=lambda value: repr(value)[:24])
def test_hostile_entry_is_refused_by_name(path: str, value: object, field: str) -> None:
    """One change to a good entry; what is not recorded is no outcome of one."""
    with pytest.raises(Malformed) as fault:
        Entry.parse(c.dump(changed(ENTRY, path, value)))
    assert fault.value.field == field


def test_an_entry_has_at_most_65_535_bytes() -> None:
    """Neither written nor read beyond it; at it, both."""
    room = ENTRY_BYTES_MAX - len(c.dump(changed(ENTRY, "body.note", "")))
    largest = c.dump(changed(ENTRY, "body.note", "a" * room))
    entry = Entry.parse(largest)
    assert entry.to_bytes() == largest
    with pytest.raises(Malformed, match="65535"):
        Entry.parse(c.dump(changed(ENTRY, "body.note", "a" * (room + 1))))
    with pytest.raises(Malformed, match="65535"):
        Entry(**{**_as_fields(entry), "body": {**entry.body, "note": "a" * (room + 1)}}).to_bytes()


def _as_fields(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in Entry.__dataclass_fields__}


def test_codes_are_one_closed_list() -> None:
    """Each word once and found by it; only what is permitted has exit code 0."""
    assert [Code.of(code.word) for code in Code] == list(Code)
    assert len({code.word for code in Code}) == len(Code)
    assert {code.word for code in Code if not code.refused} == {"pending", "posted", "voided", "permitted"}
