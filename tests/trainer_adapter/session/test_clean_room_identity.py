"""The development attester's token: the exact claims, one signature, five minutes, and no say for the caller."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.keys.signer import Signer
from ledger.crypto.detached_jws import public_key
from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from policy.attestation.verification import Expected, verify
from policy.documents.trusted_attesters import Attestation, Attester, Claims
from trainer_adapter.session.clean_room_identity import DevelopmentAttester

ISSUER = "https://attester.example"
NOW_S = 1_795_000_000
ROOM = Signer.generate()
SEALING = c.base64url(X25519PrivateKey.generate().public_key().public_bytes_raw())
CLAIMS: c.Object = {
    "charge": "run-1",
    "cnf": {"sealing": {"crv": "X25519", "kty": "OKP", "x": SEALING}, "signing": ROOM.jwk},
    "eat_nonce": "nonce-1",
    "plan": "9f" * 32,
}
EXPECTED = Expected("nonce-1", "run-1", "9f" * 32, ROOM.key_id, SEALING)


def _parts(token: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    header, payload, signature = (c.unbase64url(part, "token") for part in token.decode("ascii").split("."))
    return json.loads(header), json.loads(payload), signature


def _pinned(key: PublicKey, issuer: str = ISSUER, swname: str = "epsilon-trainer") -> Attestation:
    return Attestation((Attester(issuer, key=key),), Claims((("swname", swname),)))


def _failed(token: bytes, attestation: Attestation, expected: Expected = EXPECTED, now_s: int = NOW_S) -> list[str]:
    return [check.code for check in verify(token, attestation, expected, now_s * 1000, "policy") if not check.passed]


@pytest.fixture
def private() -> Ed25519PrivateKey:
    """The attester's key."""
    return Ed25519PrivateKey.generate()


def test_the_token_says_what_it_was_given_and_five_claims_of_its_own(private: Ed25519PrivateKey) -> None:
    """No claim more, so a policy knows what there is to pin; the signature is over the bytes sent."""
    token = DevelopmentAttester(ISSUER, private).attest(CLAIMS, NOW_S)
    header, payload, signature = _parts(token)
    assert header == {"alg": "Ed25519", "typ": "eat+jwt"}
    assert payload == {
        **CLAIMS,
        "dbgstat": "disabled-since-boot",
        "exp": NOW_S + 300,
        "iat": NOW_S,
        "iss": ISSUER,
        "swname": "epsilon-trainer",
    }
    private.public_key().verify(signature, token.rpartition(b".")[0])
    with pytest.raises(InvalidSignature):
        Ed25519PrivateKey.generate().public_key().verify(signature, token.rpartition(b".")[0])


def test_the_claims_are_canonical(private: Ed25519PrivateKey) -> None:
    """One spelling: the same claims at the same second give the same token."""
    attester = DevelopmentAttester(ISSUER, private)
    token = attester.attest(CLAIMS, NOW_S)
    payload = c.unbase64url(token.decode("ascii").split(".")[1], "payload")
    assert c.dump(c.parse_canonical(payload, 10_000)) == payload
    assert attester.attest(dict(reversed(CLAIMS.items())), NOW_S) == token


@pytest.mark.parametrize("name", ["dbgstat", "exp", "iat", "iss", "swname"])
def test_a_clean_room_cannot_choose_the_attesters_own_claims(private: Ed25519PrivateKey, name: str) -> None:
    """Whoever asks, when it ends and what it runs are not for the one attested to say."""
    attester = DevelopmentAttester(ISSUER, private)
    assert attester.attest({**CLAIMS, name: 4_000_000_000}, NOW_S) == attester.attest(CLAIMS, NOW_S)


def test_a_policy_that_pins_the_key_accepts_it(private: Ed25519PrivateKey) -> None:
    """Every check passes, up to its last second and the skew."""
    token = DevelopmentAttester(ISSUER, private).attest(CLAIMS, NOW_S)
    assert _failed(token, _pinned(public_key(private))) == []
    assert _failed(token, _pinned(public_key(private)), now_s=NOW_S + 359) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"nonce": "nonce-2"}, "attestation_nonce"),
        ({"charge": "run-2"}, "attestation_charge"),
        ({"plan": "8e" * 32}, "attestation_plan"),
        ({"signing": Signer.generate().key_id}, "attestation_signing_key"),
        ({"sealing": "A" * 43}, "attestation_sealing_key"),
    ],
)
def test_it_serves_one_clean_room_for_one_charge(private: Ed25519PrivateKey, change: dict[str, str], code: str) -> None:
    """Each thing that it is bound to is refused by its own code when it is another's."""
    given = {name: getattr(EXPECTED, name) for name in ("nonce", "charge", "plan", "signing", "sealing")}
    token = DevelopmentAttester(ISSUER, private).attest(CLAIMS, NOW_S)
    assert _failed(token, _pinned(public_key(private)), Expected(**(given | change))) == [code]


def test_nobody_else_trusts_it(private: Ed25519PrivateKey) -> None:
    """Another key, another issuer, other software, another hour, another byte: refused by name."""
    token = DevelopmentAttester(ISSUER, private).attest(CLAIMS, NOW_S)
    ours = public_key(private)
    assert _failed(token, _pinned(public_key(Ed25519PrivateKey.generate()))) == ["attestation_signature"]
    assert _failed(token, _pinned(ours, issuer="https://other.example")) == [
        "attestation_issuer",
        "attestation_signature",
    ]
    assert _failed(token, _pinned(ours, swname="other")) == ["attestation_claim"]
    assert _failed(token, _pinned(ours), now_s=NOW_S + 360) == ["attestation_expired"]
    assert _failed(token, _pinned(ours), now_s=NOW_S - 61) == ["attestation_future"]
    head, payload, signature = token.split(b".")
    later = c.base64url(c.unbase64url(payload.decode("ascii"), "payload").replace(b"run-1", b"run-2"))
    assert "attestation_signature" in _failed(b".".join((head, later.encode("ascii"), signature)), _pinned(ours))
