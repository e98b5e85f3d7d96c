"""Tokens as Microsoft Azure Attestation makes them, flat and nested, each fault with the check that stops it."""

import base64
import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.crypto.detached_jws import public_key
from ledger.wire.canonical_json import base64url, dump
from ledger.wire.malformed import Malformed
from policy.attestation.verification import Expected, verify
from policy.documents.document import read_value
from policy.documents.trusted_attesters import Attestation
from tests.factories.decision_facts import token
from tests.factories.decision_scene import ATTESTER_KEY, DECIDED_AT_S, OTHER_KEY, ROOM, ROOM_SEALING
from tests.factories.documents import NONCE
from tests.factories.path_changes import GONE, changed
from tests.factories.people import ATTESTER

AUTHORITY: Final = "https://sharedneu.neu.attest.azure.net"
HOSTDATA: Final = "9f" * 32
PLAN: Final = "ab" * 32
EXPECTED: Final = Expected(NONCE, "run-1", PLAN, ROOM.thumbprint, ROOM_SEALING.x)
HEADER: Final[dict[str, Any]] = {"alg": "RS256", "jku": f"{AUTHORITY}/certs", "kid": "one", "typ": "JWT"}
RUNTIME: Final[dict[str, Any]] = {
    "charge": "run-1",
    "keys": [{"kid": "signing", **ROOM.to_json()}, {"kid": "sealing", **ROOM_SEALING.to_json()}],
    "nonce": NONCE,
    "plan": PLAN,
}
HARDWARE: Final[dict[str, Any]] = {
    "x-ms-attestation-type": "sevsnpvm",
    "x-ms-compliance-status": "azure-compliant-uvm",
    "x-ms-sevsnpvm-bootloader-svn": 4,
    "x-ms-sevsnpvm-hostdata": HOSTDATA,
    "x-ms-sevsnpvm-is-debuggable": False,
    "x-ms-sevsnpvm-vmpl": 0,
}
TIMES: Final[dict[str, Any]] = {"exp": DECIDED_AT_S + 28_800, "iat": DECIDED_AT_S, "nbf": DECIDED_AT_S}
FLAT: Final[dict[str, Any]] = {
    "iss": AUTHORITY,
    "jti": "1",
    **TIMES,
    **HARDWARE,
    "x-ms-runtime": RUNTIME,
    "x-ms-ver": "1.0",
}


def payload(runtime: dict[str, Any]) -> dict[str, Any]:
    """What a virtual machine's runtime data look like."""
    return {"client-payload": {"epsilon-ledger": base64.b64encode(dump(runtime)).decode()}, "keys": [{"kid": "Tpm"}]}


NESTED: Final[dict[str, Any]] = {
    "iss": AUTHORITY,
    **TIMES,
    "x-ms-attestation-type": "azurevm",
    "x-ms-isolation-tee": {**HARDWARE, "x-ms-compliance-status": "azure-compliant-cvm"},
    "x-ms-runtime": payload(RUNTIME),
}
CONDITIONS: Final[list[dict[str, Any]]] = [
    {"claim": "x-ms-sevsnpvm-hostdata", "equals": HOSTDATA},
    {"claim": "x-ms-compliance-status", "equals": "azure-compliant-uvm"},
    {"claim": "x-ms-sevsnpvm-bootloader-svn", "greaterOrEquals": 4},
]


@cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    """A key for each number."""
    del number
    return rsa.generate_private_key(65_537, 2048)


def jwk(key: rsa.RSAPrivateKey) -> dict[str, Any]:
    """Its public half."""
    numbers = key.public_key().public_numbers()
    sizes = (numbers.n, (numbers.n.bit_length() + 7) // 8), (numbers.e, 3)
    n, e = (base64url(value.to_bytes(size)) for value, size in sizes)
    return {"e": e, "kty": "RSA", "n": n}


def rs256(key: rsa.RSAPrivateKey) -> Callable[[bytes], bytes]:
    """Signs as RFC 7518, section 3.3."""
    return lambda data: key.sign(data, padding.PKCS1v15(), SHA256())


def policy(conditions: list[dict[str, Any]] = CONDITIONS, **attester: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """An ``attestation`` that believes the authority alone."""
    return {
        "attesters": [{"format": "azure", "issuer": AUTHORITY, "keys": [jwk(rsa_key(1))], **attester}],
        "release_policy": {"anyOf": [{"allOf": conditions, "authority": AUTHORITY}], "version": "1.0.0"},
    }


def pinned(conditions: list[dict[str, Any]] = CONDITIONS) -> Attestation:
    """The same, read."""
    return read_value(Attestation, policy(conditions), "attestation")


def faults(data: bytes, attestation: Attestation | None = None, now_s: int = DECIDED_AT_S) -> set[str]:
    """The codes of the checks that failed, without their common prefix."""
    checks = verify(data, attestation or pinned(), EXPECTED, now_s * 1000, "policy p version 1")
    return {check.code.removeprefix("attestation_") for check in checks if not check.passed}


def signed(claims: dict[str, Any], header: dict[str, Any] | None = None, by: int = 1) -> bytes:
    """By the authority's key, or another's."""
    return token(changed(HEADER, header or {}), claims, rs256(rsa_key(by)))


NESTED_POLICY: Final[list[dict[str, Any]]] = [
    {"claim": "x-ms-isolation-tee.x-ms-sevsnpvm-hostdata", "equals": HOSTDATA}
]


def test_both_forms_release() -> None:
    """A container's flat claims and a virtual machine's nested ones."""
    assert faults(signed(FLAT)) == set()
    assert faults(signed(NESTED), pinned(NESTED_POLICY)) == set()


CHANGED: list[tuple[dict[str, Any], set[str]]] = [
    ({"iss": "https://other.example"}, {"issuer", "signature", "policy"}),
    ({"exp": DECIDED_AT_S + 28_801}, {"life"}),
    ({"iat": DECIDED_AT_S - 28_800, "nbf": DECIDED_AT_S - 28_800, "exp": DECIDED_AT_S - 60}, {"expired"}),
    ({"nbf": DECIDED_AT_S + 61}, {"future"}),
    ({"nbf": "now"}, {"times"}),
    ({"x-ms-sevsnpvm-is-debuggable": True}, {"debuggable"}),
    ({"x-ms-sevsnpvm-is-debuggable": "false"}, {"debuggable"}),
    ({"x-ms-sevsnpvm-is-debuggable": 0}, {"debuggable"}),
    ({"x-ms-sevsnpvm-is-debuggable": GONE}, {"debuggable"}),
    ({"x-ms-attestation-type": "sgx"}, {"type"}),
    ({"x-ms-sevsnpvm-vmpl": 1}, {"vmpl"}),
    ({"x-ms-sevsnpvm-vmpl": 2}, {"vmpl"}),
    ({"x-ms-sevsnpvm-vmpl": "0"}, {"vmpl"}),
    ({"x-ms-sevsnpvm-vmpl": False}, {"vmpl"}),
    ({"x-ms-sevsnpvm-vmpl": None}, {"vmpl"}),
    ({"x-ms-sevsnpvm-vmpl": GONE}, {"vmpl"}),
    ({"x-ms-sevsnpvm-hostdata": "00" * 32}, {"policy"}),
    ({"x-ms-sevsnpvm-hostdata": GONE}, {"policy"}),
    ({"x-ms-compliance-status": "none"}, {"policy"}),
    ({"x-ms-sevsnpvm-bootloader-svn": 3}, {"policy"}),
    ({"x-ms-sevsnpvm-bootloader-svn": "4"}, {"policy"}),
    ({"x-ms-runtime": GONE}, {"nonce", "charge", "plan", "keys"}),
    ({"x-ms-runtime|nonce": "x"}, {"nonce"}),
    ({"x-ms-runtime|charge": "run-2"}, {"charge"}),
    ({"x-ms-runtime|plan": "00" * 32}, {"plan"}),
    ({"x-ms-runtime|keys|0|kid": "sealing"}, {"keys"}),
    ({"x-ms-runtime|keys|2": {"kid": "signing", **public_key(OTHER_KEY).to_json()}}, {"keys"}),
    ({"x-ms-runtime|keys|0": {"kid": "signing", **public_key(OTHER_KEY).to_json()}}, {"signing_key"}),
    ({"x-ms-runtime|keys": {}}, {"keys"}),
    # Nested claims beside flat ones: the flat ones are then not the hardware's.
    ({"x-ms-isolation-tee": {}}, {"malformed"}),
    ({"x-ms-isolation-tee": {}, "x-ms-runtime": payload(RUNTIME)}, {"debuggable", "type", "vmpl"}),
]


@pytest.mark.parametrize(("change", "found"), CHANGED)
def test_each_claim_has_its_check(change: dict[str, Any], found: set[str]) -> None:
    """One claim changed, exactly its own checks fail."""
    assert faults(signed(changed(FLAT, change))) == found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"x-ms-isolation-tee|x-ms-sevsnpvm-is-debuggable": True}, {"debuggable"}),
        ({"x-ms-isolation-tee|x-ms-attestation-type": GONE}, {"type"}),
        ({"x-ms-isolation-tee|x-ms-sevsnpvm-hostdata": "0"}, {"policy"}),
        ({"x-ms-isolation-tee|x-ms-sevsnpvm-vmpl": 1}, {"vmpl"}),
        ({"x-ms-isolation-tee|x-ms-sevsnpvm-vmpl": GONE, "x-ms-sevsnpvm-vmpl": 0}, {"vmpl"}),
        ({"x-ms-isolation-tee": "yes"}, {"debuggable", "type", "policy", "vmpl"}),
        ({"x-ms-runtime": RUNTIME}, {"malformed"}),
        ({"x-ms-runtime|client-payload|epsilon-ledger": "%"}, {"malformed"}),
        ({"x-ms-runtime": payload({**RUNTIME, "nonce": "x"})}, {"nonce"}),
    ],
)
def test_a_virtual_machines_claims_are_read_where_its_hardware_writes(change: dict[str, Any], found: set[str]) -> None:
    """Runtime data of the machine itself are not the clean room's."""
    assert faults(signed(changed(NESTED, change)), pinned(NESTED_POLICY)) == found


@pytest.mark.parametrize(
    "header",
    [{"alg": "none"}, {"alg": "RS512"}, {"alg": "PS256"}, {"alg": "HS256"}, {"typ": "eat+jwt"}, {"x5c": ["MIIB"]}],
)
def test_any_other_header_is_refused_unread(header: dict[str, Any]) -> None:
    """One algorithm, one type, and no key in the header."""
    assert faults(signed(FLAT, header)) == {"malformed"}


def test_only_a_pinned_key_of_that_form_verifies() -> None:
    """Another RSA key, wherever the header points; and the forms do not lend each other their keys."""
    assert faults(signed(FLAT, {"jku": "https://elsewhere.example/certs"}, by=2)) == {"signature"}
    assert faults(signed(FLAT, {"jku": "https://elsewhere.example/certs"})) == set()
    eat = token({"alg": "Ed25519", "typ": "eat+jwt"}, FLAT, ATTESTER_KEY.sign)
    assert {"issuer", "signature"} <= faults(eat)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_changed_byte_releases_a_key(data: st.DataObject) -> None:
    """Nothing is raised and something fails, whichever byte is changed to whatever."""
    whole = bytearray(signed(FLAT))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    assert faults(bytes(whole))


WEAK: Final = rsa.generate_private_key(65_537, 1024)  # noqa: S505 - to be refused
EAT: Final = {"issuer": ATTESTER, "key": public_key(ATTESTER_KEY).to_json()}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"release_policy": GONE}, "attestation.release_policy"),
        ({"release_policy|anyOf|0|authority": "https://other.example"}, "attestation.release_policy"),
        ({"release_policy|anyOf|0|allOf|0|claim": "x-ms-policy-hash"}, "attestation.release_policy"),
        ({"release_policy|anyOf|0": {"anyOf": CONDITIONS, "authority": AUTHORITY}}, "attestation.release_policy"),
        ({"attesters|0|keys": []}, "attestation.attesters[0].keys"),
        ({"attesters|0|keys": [jwk(rsa_key(1))] * 2}, "attestation.attesters[0].keys"),
        ({"attesters|0|keys|0": jwk(WEAK)}, "attestation.attesters[0].keys[0].n"),
        ({"attesters|0|keys|0|e": "AQ"}, "attestation.attesters[0].keys[0].e"),
        ({"attesters|0|keys|0|d": "AQ"}, "attestation.attesters[0].keys[0].d"),
        ({"attesters|0|keys|0|alg": "RS512"}, "attestation.attesters[0].keys[0]"),
        ({"attesters|0|format": "gcp"}, "attestation.attesters[0].format"),
        ({"attesters|0|jku": "https://a.example"}, "attestation.attesters[0].jku"),
        ({"attesters|1": EAT}, "attestation.release_policy"),
    ],
)
def test_a_policy_that_would_believe_too_much_is_malformed(change: dict[str, Any], field: str) -> None:
    """Software is always pinned, keys are strong, and every attester has its conditions."""
    with pytest.raises(Malformed) as caught:
        read_value(Attestation, changed(policy(), change), "attestation")
    assert caught.value.field == field


def test_claims_and_a_release_policy_both_bind_an_eat() -> None:
    """A development token held against Azure's grammar too."""
    grammar = {"anyOf": [{"allOf": [{"claim": "secboot", "equals": True}], "authority": ATTESTER}], "version": "0.2"}
    both = {"attesters": [EAT], "claims": {"swname": "trainer"}, "release_policy": grammar}
    believed = read_value(Attestation, both, "attestation")
    claims = {"iss": ATTESTER, **TIMES, "swname": "trainer", "secboot": "true"}
    found = faults(token({"alg": "Ed25519", "typ": "eat+jwt"}, claims, ATTESTER_KEY.sign), believed)
    assert "policy" in found
    assert "claim" not in found
    claims["secboot"] = True
    assert "policy" not in faults(token({"alg": "Ed25519", "typ": "eat+jwt"}, claims, ATTESTER_KEY.sign), believed)


def test_a_real_sized_token_is_read() -> None:
    """Endorsements make Azure's tokens several kilobytes long."""
    large = {**FLAT, "x-ms-sevsnpvm-uvm-endorsement": {"headers": "h" * 4_000}}
    assert len(signed(large)) > 5_000
    assert faults(signed(large)) == set()
    assert json.loads(dump(large))["x-ms-sevsnpvm-vmpl"] == 0
