"""Tokens that must not release a key, each with the check that stops it."""

import hmac
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.crypto.detached_jws import public_key
from ledger.wire.canonical_json import base64url
from ledger.wire.malformed import Malformed
from policy.attestation.verification import Expected, verify
from policy.checks.field_readers import format_time
from policy.documents.document import read_value
from policy.documents.document_text import read_text
from policy.documents.trusted_attesters import Attestation, Suspension
from tests.factories.decision_facts import decide, token
from tests.factories.decision_scene import (
    ATTESTER_KEY,
    DECIDED_AT_S,
    OTHER_KEY,
    POLICY,
    ROOM,
    ROOM_KEY,
    ROOM_SEALING,
    SCENE,
    sealing,
)
from tests.factories.documents import NONCE
from tests.factories.path_changes import GONE, changed
from tests.factories.people import ATTESTER

PAGE = Path(__file__).parents[3] / "docs" / "keys.md"
HEADER: dict[str, Any] = SCENE["header"]
CLAIMS: dict[str, Any] = SCENE["claims"]
PINNED = {"swname": "trainer", "secboot": True, "hwversion": 1}
CONFIGURED = read_value(Attestation, {**POLICY["attestation"], "claims": PINNED}, "attestation")
GOOD: dict[str, Any] = {**CLAIMS, "secboot": True, "hwversion": 1}
EXPECTED = Expected(NONCE, "run-1", CLAIMS["plan"], ROOM.thumbprint, ROOM_SEALING.x)
OTHER_ISSUER = "did:web:elsewhere.example"


def faults(data: bytes | None, attestation: Attestation = CONFIGURED, now_ms: int = DECIDED_AT_S * 1000) -> set[str]:
    """The codes of the checks that failed, without their common prefix."""
    checks = verify(data, attestation, EXPECTED, now_ms, "policy p version 1")
    assert all(check.source == "policy p version 1" for check in checks)
    return {check.code.removeprefix("attestation_") for check in checks if not check.passed}


def signed(header: dict[str, Any], claims: dict[str, Any]) -> bytes:
    """By the pinned attester, over the good header and claims with these changes."""
    return token(changed(HEADER, header), changed(GOOD, claims), ATTESTER_KEY.sign)


HEADERS: list[dict[str, Any]] = [
    {"alg": "none"},
    {"alg": "HS256"},
    {"alg": "EdDSA"},
    {"alg": "RS256"},
    {"alg": GONE},
    {"typ": "JWT"},
    {"typ": GONE},
    {"jku": "https://elsewhere.example/keys"},
    {"x5u": "https://elsewhere.example/certificate"},
    {"jwk": public_key(ATTESTER_KEY).to_json()},
    {"x5c": ["MIIB"]},
    {"crit": ["b64"], "b64": False},
]
CLAIMED: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    ({"unknown": [1, {"a": None}]}, set()),
    ({"iss": OTHER_ISSUER}, {"issuer", "signature"}),
    ({"iss": GONE}, {"issuer", "signature"}),
    ({"iss": [ATTESTER]}, {"issuer", "signature"}),
    ({"iat": DECIDED_AT_S + 60, "exp": DECIDED_AT_S + 120}, set()),
    ({"iat": DECIDED_AT_S + 61, "exp": DECIDED_AT_S + 120}, {"future"}),
    ({"iat": DECIDED_AT_S - 300, "exp": DECIDED_AT_S - 59}, set()),
    ({"iat": DECIDED_AT_S - 300, "exp": DECIDED_AT_S - 60}, {"expired"}),
    ({"exp": DECIDED_AT_S + 601}, {"life"}),
    ({"exp": DECIDED_AT_S}, {"life"}),
    ({"exp": DECIDED_AT_S + 1}, set()),
    ({"iat": str(DECIDED_AT_S)}, {"times"}),
    ({"iat": True}, {"times"}),
    ({"exp": GONE}, {"times"}),
    ({"exp": -1}, {"times"}),
    ({"eat_nonce": base64url(b"\1" * 32)}, {"nonce"}),
    ({"eat_nonce": [NONCE]}, {"nonce"}),
    ({"eat_nonce": GONE}, {"nonce"}),
    ({"dbgstat": "enabled"}, {"debuggable"}),
    ({"dbgstat": "disabled"}, {"debuggable"}),
    ({"dbgstat": GONE}, {"debuggable"}),
    ({"charge": "run-2"}, {"charge"}),
    ({"plan": "0" * 64}, {"plan"}),
    ({"pipeline": "0" * 64}, {"pipeline"}),
    ({"cnf": GONE}, {"keys"}),
    ({"cnf|sealing": GONE}, {"keys"}),
    ({"cnf|jwk": {}}, {"keys"}),
    ({"cnf|signing": ROOM_SEALING.to_json()}, {"keys"}),
    ({"cnf|signing": public_key(OTHER_KEY).to_json()}, {"signing_key"}),
    ({"cnf|sealing": sealing("other").to_json()}, {"sealing_key"}),
    ({"swname": "other"}, {"claim"}),
    ({"swname": GONE}, {"claim"}),
    ({"secboot": "true"}, {"claim"}),
    ({"secboot": 1}, {"claim"}),
    ({"secboot": False}, {"claim"}),
    ({"hwversion": True}, {"claim"}),
    ({"hwversion": "1"}, {"claim"}),
    ({"hwversion": 2}, {"claim"}),
]


@pytest.mark.parametrize("header", HEADERS)
def test_any_other_header_is_refused_unread(header: dict[str, Any]) -> None:
    """The algorithm and the type are pinned, and a header brings no key and no address of one."""
    assert faults(signed(header, {})) == {"malformed"}


@pytest.mark.parametrize(("claims", "found"), CLAIMED)
def test_each_claim_on_both_sides(claims: dict[str, Any], found: set[str]) -> None:
    """One claim changed, exactly its own check fails."""
    assert faults(signed({}, claims)) == found


@pytest.mark.parametrize("claimed", [None, "5" * 64, "6" * 64])
def test_the_pipeline_charged_is_the_one_attested(claimed: str | None) -> None:
    """A charge that names a pipeline gets no key for a room that names another, or none."""
    bound = replace(EXPECTED, pipeline="5" * 64)
    claims: dict[str, Any] = {} if claimed is None else {"pipeline": claimed}
    checks = verify(signed({}, claims), CONFIGURED, bound, DECIDED_AT_S * 1000, "policy p version 1")
    failed = [check.code for check in checks if not check.passed]
    assert failed == ([] if claimed == "5" * 64 else ["attestation_pipeline"])


def test_a_good_token_passes_every_check_in_order() -> None:
    """What was checked is told, not only what failed."""
    checks = verify(signed({}, {}), CONFIGURED, EXPECTED, DECIDED_AT_S * 1000, "policy p version 1")
    assert all(check.passed for check in checks)
    assert " ".join(check.code.removeprefix("attestation_") for check in checks) == (
        "malformed issuer signature times future expired life nonce debuggable charge plan"
        " keys signing_key sealing_key claim claim claim"
    )


def test_a_key_id_picks_nothing() -> None:
    """A ``kid`` may stand in the header; the pinned keys are tried whatever it says."""
    assert faults(signed({"kid": "anything"}, {})) == set()
    assert faults(token({**HEADER, "kid": "anything"}, GOOD, OTHER_KEY.sign)) == {"signature"}


@pytest.mark.parametrize("sign", [OTHER_KEY.sign, ROOM_KEY.sign, lambda _: b"", lambda _: bytes(64)])
def test_a_signature_by_another_key_is_refused(sign: Callable[[bytes], bytes]) -> None:
    """A key that is not pinned, the clean room's own, and none at all."""
    assert faults(token(HEADER, GOOD, sign)) == {"signature"}


def test_a_pinned_key_speaks_for_its_own_issuer_only() -> None:
    """Two attesters are pinned; the second signs in the first one's name."""
    second = {"issuer": OTHER_ISSUER, "key": public_key(OTHER_KEY).to_json()}
    two = [*POLICY["attestation"]["attesters"], second]
    pinned = read_value(Attestation, {"attesters": two, "claims": PINNED}, "attestation")
    assert faults(token(HEADER, {**GOOD, "iss": OTHER_ISSUER}, OTHER_KEY.sign), pinned) == set()
    assert faults(token(HEADER, GOOD, OTHER_KEY.sign), pinned) == {"signature"}


def test_either_of_an_issuers_keys_verifies() -> None:
    """An attester that changes its key is pinned with both."""
    second = {"issuer": ATTESTER, "key": public_key(OTHER_KEY).to_json()}
    two = [*POLICY["attestation"]["attesters"], second]
    pinned = read_value(Attestation, {"attesters": two, "claims": PINNED}, "attestation")
    assert faults(token(HEADER, GOOD, OTHER_KEY.sign), pinned) == set()
    assert faults(token(HEADER, GOOD, ATTESTER_KEY.sign), pinned) == set()


@pytest.mark.parametrize("secret", [public_key(ATTESTER_KEY).x.encode(), b"", b"secret"])
def test_an_hmac_under_the_public_key_is_refused(secret: bytes) -> None:
    """The swap of a public key for a shared secret, with HS256 told or hidden."""
    for algorithm in ("HS256", "Ed25519"):
        forged = token({**HEADER, "alg": algorithm}, GOOD, lambda data: hmac.digest(secret, data, "sha256"))
        assert faults(forged)


def test_an_unsecured_token_is_refused() -> None:
    """``alg`` none with an empty signature."""
    assert faults(token({**HEADER, "alg": "none"}, GOOD, lambda _: b"")) == {"malformed"}


def test_every_truncation_is_refused() -> None:
    """A token cut anywhere, or with a byte too many."""
    whole = signed({}, {})
    assert all(faults(whole[:length]) for length in range(len(whole)))
    assert all(faults(whole + more) for more in (b"A", b".", b"=", b"\n", b" ", b"\xff"))


@pytest.mark.parametrize("data", [None, b"", b"..", b"a.b.c", b"\xff" * 99, b"A" * 16_385, b"." * 16_384])
def test_what_is_no_token_is_refused(data: bytes | None) -> None:
    """Evidence that is missing, empty, too long, or not text."""
    assert faults(data) == {"malformed"}


@pytest.mark.parametrize("payload", [b"[]", b"null", b'{"iss":1.5}', b'{"iss":"a","iss":"a"}', b"\xff", b"[" * 5000])
def test_claims_that_are_no_object_are_refused(payload: bytes) -> None:
    """Signed by the attester itself, but not one JSON object with each name once and no float."""
    parts = base64url(json.dumps(HEADER).encode()) + "." + base64url(payload)
    data = parts + "." + base64url(ATTESTER_KEY.sign(parts.encode()))
    assert faults(data.encode()) == {"malformed"}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_changed_byte_releases_a_key(data: st.DataObject) -> None:
    """Nothing is raised and something fails, whichever byte is changed to whatever."""
    whole = bytearray(signed({}, {}))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    assert faults(bytes(whole))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"claims|charge": "run-2"}, "attestation_charge"),
        ({"claims|plan": "0" * 64}, "attestation_plan"),
        ({"claims|pipeline": "0" * 64}, "attestation_pipeline"),
        ({"charge|pipeline": "0" * 64}, "attestation_pipeline"),
        ({"claims|eat_nonce": base64url(b"\1" * 32)}, "attestation_nonce"),
        ({"claims|cnf|signing": public_key(OTHER_KEY).to_json()}, "attestation_signing_key"),
        ({"claims|cnf|sealing": sealing("other").to_json()}, "attestation_sealing_key"),
        ({"now": "2026-06-01T00:11:00Z"}, "attestation_expired"),
        ({"claims|swname": "other"}, "attestation_claim"),
        ({"header|alg": "none"}, "attestation_malformed"),
    ],
)
def test_the_gate_binds_a_token_to_its_request(change: dict[str, Any], code: str) -> None:
    """What the gate expects comes from the charge and the request, not from the token."""
    verdict = decide("key_release", change)
    assert not verdict.permit
    assert {check.code for check in verdict.checks if not check.passed} == {code}


def test_an_attesters_keys_count_between_their_dates() -> None:
    """Each edge to the millisecond; a rotation lists the attester twice, and both count where the dates overlap."""
    now = DECIDED_AT_S * 1000
    old: dict[str, Any] = {"issuer": CLAIMS["iss"], "key": public_key(ATTESTER_KEY).to_json()}
    new: dict[str, Any] = {"issuer": CLAIMS["iss"], "key": public_key(OTHER_KEY).to_json()}
    made = {key: token(HEADER, GOOD, key.sign) for key in (ATTESTER_KEY, OTHER_KEY)}

    def counted(starts: int, until: int, at: int) -> list[bool]:
        dated = [{**old, "until": format_time(until)}, {**new, "starts": format_time(starts)}]
        listed = {**POLICY["attestation"], "attesters": dated, "claims": PINNED}
        attestation = read_value(Attestation, listed, "attestation")
        return [not faults(data, attestation, at) for data in made.values()]

    assert counted(now - 1000, now + 1000, now) == [True, True]
    assert counted(now, now, now) == [False, True]
    assert counted(now + 1000, now + 1000, now + 999) == [True, False]
    assert counted(now + 1000, now - 1000, now) == [False, False]
    dates = {"starts": format_time(now), "until": format_time(now)}
    with pytest.raises(Malformed, match="until: must lie after starts"):
        read_value(Attestation, {**POLICY["attestation"], "attesters": [{**old, **dates}]}, "attestation")


def test_suspended_keys_of_an_attester_do_not_count() -> None:
    """From one date until another, or until a version without it; the attester's other keys count meanwhile."""
    now = DECIDED_AT_S * 1000
    one: dict[str, Any] = {"issuer": CLAIMS["iss"], "key": public_key(ATTESTER_KEY).to_json()}
    other: dict[str, Any] = {"issuer": CLAIMS["iss"], "key": public_key(OTHER_KEY).to_json()}
    made = {key: token(HEADER, GOOD, key.sign) for key in (ATTESTER_KEY, OTHER_KEY)}

    def counted(starts: int, until: int | None, at: int) -> list[bool]:
        ends = {} if until is None else {"until": format_time(until)}
        suspended = {**one, "suspended": {"reason": "an inquiry", "starts": format_time(starts), **ends}}
        listed = {**POLICY["attestation"], "attesters": [suspended, other], "claims": PINNED}
        attestation = read_value(Attestation, listed, "attestation")
        return [not faults(data, attestation, at) for data in made.values()]

    assert counted(now, now + 1000, now) == counted(now, None, now) == [False, True]
    assert counted(now, now + 1000, now + 999) == [False, True]
    assert counted(now, now + 1000, now + 1000) == counted(now, None, now - 1) == [True, True]
    alone = {**one, "suspended": {"reason": "an inquiry", "starts": format_time(now)}}
    attestation = read_value(Attestation, {**POLICY["attestation"], "attesters": [alone]}, "attestation")
    checks = verify(made[ATTESTER_KEY], attestation, EXPECTED, now, "policy p version 1")
    (issuer,) = (check for check in checks if check.code == "attestation_issuer")
    assert not issuer.passed
    assert "a pinned attester that is not suspended" in issuer.text
    dates = {"starts": format_time(now), "until": format_time(now)}
    wrong = {**one, "suspended": {"reason": "an inquiry", **dates}}
    with pytest.raises(Malformed, match="until: must lie after starts"):
        read_value(Attestation, {**POLICY["attestation"], "attesters": [wrong]}, "attestation")


def test_the_page_on_keys_suspends_an_attester() -> None:
    """What it shows is read, and holds for its week."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (attester,) = read_value(Attestation, read_text(block.encode(), len(block)).value, "attestation").attesters
    begun = read_value(Suspension, {"reason": "x", "starts": "2026-12-01T00:00:00Z"}, "")
    begins, day = int(begun.starts), 86_400_000
    assert [attester.is_suspended(begins + days * day) for days in (-1, 0, 6, 7)] == [False, True, True, False]
