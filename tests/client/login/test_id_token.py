"""ID tokens: which are believed, and a corpus of those that are not (OpenID Connect Core 1.0, section 3.1.3.7)."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import hypothesis
import pytest
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from client.http.jwt_claim_checks import SKEW_S
from client.login.id_token import subject_of
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

ISSUER: Final = "https://login.example"
NOW: Final = 1_795_233_600
ACCESS: Final = "an-access-token"
KEYS: Final[dict[str, OKPKey | ECKey | RSAKey]] = {
    "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "okp"}),
    "ES256": ECKey.generate_key("P-256", {"kid": "ec"}),
    "PS256": RSAKey.generate_key(2048, {"kid": "rsa"}),
}
KEYS["RS256"] = KEYS["PS256"]
JWKS: Final[Any] = {
    "keys": [
        {"kty": "AKP", "alg": "ML-DSA-44", "kid": "later", "pub": "AAAA"},
        *(key.as_dict(private=False) for key in (KEYS["Ed25519"], KEYS["ES256"], KEYS["PS256"])),
    ]
}
CLAIMS: Final[c.Object] = {
    "aud": "epsilon",
    "exp": NOW + 300,
    "iat": NOW,
    "iss": ISSUER,
    "nonce": "n-1",
    "sub": "asha",
}


def _half(hashed: Any) -> str:  # noqa: ANN401 - a hash of hashlib
    return c.base64url(hashed.digest()[: hashed.digest_size // 2])


def _token(claims: c.Object, algorithm: str = "Ed25519", key: Any = None, **header: str) -> str:  # noqa: ANN401 - any kind
    key = key or KEYS[algorithm]
    return jws.serialize_compact({"alg": algorithm, "kid": key.kid, **header}, c.dump(claims), key, [algorithm])


def _subject(text: str, keys: Any = JWKS, given: str = ACCESS) -> str:  # noqa: ANN401 - what an issuer may say
    return subject_of(text, keys, issuer=ISSUER, client_id="epsilon", nonce="n-1", access_token=given, now=NOW)


@pytest.mark.parametrize("algorithm", KEYS)
def test_what_the_issuer_signed_is_believed(algorithm: str) -> None:
    """By each algorithm, with keys of kinds that nobody knows yet beside its own, and bound to the access token."""
    hashed = hashlib.sha512 if algorithm == "Ed25519" else hashlib.sha256
    bound: c.Object = {**CLAIMS, "at_hash": _half(hashed(ACCESS.encode())), "azp": "epsilon", "aud": ["epsilon"]}
    assert _subject(_token(CLAIMS, algorithm)) == "asha"
    assert _subject(_token(bound, algorithm)) == "asha"
    with pytest.raises(Malformed, match="at_hash"):
        _subject(_token(bound, algorithm), given="another")


def test_at_hash_is_that_of_the_specification_s_example() -> None:
    """OpenID Connect Core 1.0, appendix A.3: the access token and at_hash that stand there, under RS256."""
    claims: c.Object = {**CLAIMS, "at_hash": "77QmUPtjPfzWtF2AnpK9RQ"}
    assert _subject(_token(claims, "RS256"), given="jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y") == "asha"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"iss": "https://other.example"}, "iss"),
        ({"iss": f"{ISSUER}/"}, "iss"),
        ({"iss": [ISSUER]}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "another"}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": ["epsilon", "another"]}, "aud"),
        ({"aud": {"epsilon": True}}, "aud"),
        ({"aud": None}, "aud"),
        ({"azp": "another"}, "azp"),
        ({"azp": None}, "azp"),
        ({"exp": NOW - SKEW_S}, "exp"),
        ({"exp": str(NOW + 300)}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": None}, "exp"),
        ({"iat": NOW + SKEW_S + 1}, "iat"),
        ({"iat": None}, "iat"),
        ({"nbf": NOW + SKEW_S + 1}, "nbf"),
        ({"nonce": "n-2"}, "nonce"),
        ({"nonce": ["n-1"]}, "nonce"),
        ({"nonce": ""}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "a" * 256}, "sub"),
        ({"sub": None}, "sub"),
        ({"at_hash": 7}, "at_hash"),
        ({"at_hash": ""}, "at_hash"),
        ({"at_hash": "é"}, "at_hash"),
    ],
)
def test_a_claim_that_is_wrong_is_named(changes: c.Object, says: str) -> None:
    """Rightly signed by the issuer; null stands for any value that is none."""
    with pytest.raises(Malformed) as caught:
        _subject(_token({**CLAIMS, **changes}))
    assert caught.value.field == f"id_token.{says}"


@pytest.mark.parametrize("name", ["iss", "aud", "exp", "iat", "nonce", "sub"])
def test_a_claim_that_is_missing_is_named(name: str) -> None:
    """Each of those that a login needs."""
    with pytest.raises(Malformed, match=name):
        _subject(_token({one: value for one, value in CLAIMS.items() if one != name}))


def _unsigned() -> str:
    return ".".join((c.base64url(b'{"alg":"none","kid":"okp"}'), c.base64url(c.dump(CLAIMS)), ""))


def _shared_secret() -> str:
    """Signed with the bytes of the issuer's public key, as if they were a secret."""
    x = KEYS["Ed25519"].as_dict(private=False)["x"]
    return _token(CLAIMS, "HS256", OctKey.import_key({"k": str(x), "kid": "okp", "kty": "oct"}))


def _foreign() -> str:
    return _token(CLAIMS, "Ed25519", OKPKey.generate_key("Ed25519", {"kid": "okp"}))


def _of_another_kind() -> str:
    """The header names a key of another kind than its algorithm's."""
    return _token(CLAIMS, "Ed25519", None, kid="rsa")


def _own_key() -> str:
    """With the key to verify it by in its own header, and where to fetch it."""
    key = OKPKey.generate_key("Ed25519", {"kid": "mine"})
    header = {"alg": "Ed25519", "jku": "https://evil.example", "jwk": key.as_dict(private=False), "kid": "mine"}
    return jws.serialize_compact(header, c.dump(CLAIMS), key, ["Ed25519"])


def _critical() -> str:
    header: dict[str, Any] = {"alg": "Ed25519", "crit": ["exp"], "exp": 1, "kid": "okp"}
    sealed = ".".join(c.base64url(c.dump(one)) for one in (header, CLAIMS))
    signature = KEYS["Ed25519"].raw_value.sign(sealed.encode())  # type: ignore[union-attr,call-arg] # an Ed25519 key's own
    return f"{sealed}.{c.base64url(signature)}"


@pytest.mark.parametrize("make", [_unsigned, _shared_secret, _foreign, _of_another_kind, _own_key, _critical])
def test_what_the_issuer_did_not_sign_so_is_refused(make: Any) -> None:  # noqa: ANN401 - one of the functions above
    """The claims are right; the signature or its header is not."""
    with pytest.raises(Malformed, match="not signed by the issuer"):
        _subject(make())


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"keys": []},
        {"keys": {}},
        {"keys": [7]},
        {"keys": [{"kty": "OKP"}]},
        {"keys": [{"kty": "RSA", "n": 1}]},
        None,
    ],
)
def test_keys_that_are_none_sign_nothing(keys: Any) -> None:  # noqa: ANN401 - what an issuer may say
    """Whatever stands where the keys should be: the sentence of a bad signature, and no other fault."""
    with pytest.raises(Malformed, match="not signed by the issuer"):
        _subject(_token(CLAIMS), keys)


@hypothesis.given(st.data())
def test_a_token_with_one_character_changed_is_refused(data: st.DataObject) -> None:
    """Anywhere, by any ASCII character; there is no other fault than Malformed."""
    text = _token(CLAIMS)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(max_codepoint=127).filter(lambda one: one != text[at]))
    with pytest.raises(Malformed):
        _subject(text[:at] + other + text[at + 1 :])
