"""Keys that organisations already have: each with its one algorithm, and nothing weaker than 2048 bits."""

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from ledger.crypto.detached_jws import public_key, sign, verify
from ledger.crypto.organisation_keys import SignerKey, key_of, parse_organisation_key
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

PAYLOAD = b'{"kind":"policy"}'
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.derive_private_key(7, ec.SECP256R1())
OKP_KEY = Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32)


def number(value: int, length: int) -> str:
    """A big-endian number of so many bytes in base64url."""
    return c.base64url(value.to_bytes(length, "big"))


def rsa_jwk(key: rsa.RSAPrivateKey) -> dict[str, c.Json]:
    """The public JWK."""
    modulus = key.public_key().public_numbers().n
    return {"e": "AQAB", "kty": "RSA", "n": number(modulus, (modulus.bit_length() + 7) // 8)}


POINT = EC_KEY.public_key().public_numbers()
EC_JWK: dict[str, c.Json] = {"crv": "P-256", "kty": "EC", "x": number(POINT.x, 32), "y": number(POINT.y, 32)}
RSA_JWK = rsa_jwk(RSA_KEY)


def rs256(message: bytes) -> bytes:
    """RFC 7518, section 3.3."""
    return RSA_KEY.sign(message, padding.PKCS1v15(), hashes.SHA256())


def es256(message: bytes) -> bytes:
    """RFC 7518, section 3.4: r and s, 32 bytes each."""
    pair = decode_dss_signature(EC_KEY.sign(message, ec.ECDSA(hashes.SHA256())))
    return b"".join(one.to_bytes(32, "big") for one in pair)


def detached(algorithm: str, key_id: str, signed: Callable[[bytes], bytes]) -> str:
    """A detached JWS made outside of our own signer."""
    header = c.base64url(c.dump({"alg": algorithm, "b64": False, "crit": ["b64"], "kid": key_id}))
    return f"{header}..{c.base64url(signed(header.encode() + b'.' + PAYLOAD))}"


CASES = [("RS256", RSA_JWK, rs256), ("ES256", EC_JWK, es256), ("Ed25519", public_key(OKP_KEY).to_json(), OKP_KEY.sign)]
Case = tuple[str, c.Object, Callable[[bytes], bytes]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_each_algorithm_verifies_with_its_own_kind_of_key(case: Case) -> None:
    """Over exactly these bytes; and the registry's text of a key is the key."""
    algorithm, jwk, signed = case
    key = parse_organisation_key(jwk, "key")
    signature = detached(algorithm, key.thumbprint, signed)
    verify(signature, PAYLOAD, key)
    with pytest.raises(Malformed, match="does not verify"):
        verify(signature, PAYLOAD + b" ", key)
    assert key_of(key.x) == key
    assert key.to_json() == jwk


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
@pytest.mark.parametrize("claimed", ["RS256", "ES256", "Ed25519", "none", "HS256", "PS256", "EdDSA"])
def test_no_header_picks_another_algorithm_than_the_keys(case: Case, claimed: str) -> None:
    """A good signature under another name is refused, whatever the name."""
    algorithm, jwk, signed = case
    key = parse_organisation_key(jwk, "key")
    if claimed == algorithm:
        verify(detached(claimed, key.thumbprint, signed), PAYLOAD, key)
        return
    with pytest.raises(Malformed):
        verify(detached(claimed, key.thumbprint, signed), PAYLOAD, key)


def test_a_signature_of_one_kind_is_none_of_another() -> None:
    """A key's thumbprint in the header of another key's signature does not help."""
    keys: list[SignerKey] = [parse_organisation_key(jwk, "key") for _, jwk, _ in CASES]
    for _, _, signed in CASES:
        for (algorithm, _, own), key in zip(CASES, keys, strict=True):
            if own is not signed:
                with pytest.raises(Malformed, match="does not verify"):
                    verify(detached(algorithm, key.thumbprint, signed), PAYLOAD, key)


def test_our_own_signer_signs_with_ed25519() -> None:
    """What the client makes is what is verified here."""
    key = parse_organisation_key(public_key(OKP_KEY).to_json(), "key")
    assert verify(sign(OKP_KEY, PAYLOAD), PAYLOAD, key) is None


@pytest.mark.parametrize(
    ("jwk", "field"),
    [
        ({**RSA_JWK, "n": number((1 << 2046) + 1, 256)}, "key.n"),
        ({**RSA_JWK, "e": "Aw"}, "key.e"),
        ({**RSA_JWK, "n": number(1 << 4096 | 1, 513)}, "key.n"),
        ({**RSA_JWK, "n": number((1 << 2047) + 2, 256)}, "key.n"),
        ({**RSA_JWK, "n": number((1 << 2047) + 1, 257)}, "key.n"),
        ({**RSA_JWK, "n": ""}, "key.n"),
        ({**RSA_JWK, "d": "AQAB"}, "key.d"),
        ({**RSA_JWK, "alg": "none"}, "key.alg"),
        ({**EC_JWK, "crv": "P-384"}, "key.crv"),
        ({**EC_JWK, "crv": "secp256k1"}, "key.crv"),
        ({**EC_JWK, "y": EC_JWK["x"]}, "key"),
        ({**EC_JWK, "x": number(0, 32), "y": number(0, 32)}, "key"),
        ({**EC_JWK, "x": number(POINT.x, 33)}, "key.x"),
        ({**EC_JWK, "d": number(7, 32)}, "key.d"),
        ({"kty": "oct", "k": "AA"}, "key.kty"),
    ],
)
def test_a_weak_or_odd_key_is_named(jwk: c.Object, field: str) -> None:
    """Too short, off the curve, with a private part: refused before it is registered."""
    with pytest.raises(Malformed) as caught:
        parse_organisation_key(jwk, "key")
    assert caught.value.field.startswith(field.removesuffix(".kty"))


def test_an_ecdsa_signature_has_one_length() -> None:
    """No DER, nothing longer or shorter."""
    key = parse_organisation_key(EC_JWK, "key")
    mangled: tuple[Callable[[bytes], bytes], ...] = (
        lambda message: es256(message)[:-1],
        lambda message: es256(message) + b"\0",
        lambda message: bytes(len(message[:64])),
    )
    for signed in mangled:
        with pytest.raises(Malformed, match="does not verify"):
            verify(detached("ES256", key.thumbprint, signed), PAYLOAD, key)


def test_rfc_7638_thumbprint() -> None:
    """RFC 7638, section 3.1: the published RSA example."""
    modulus = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3"
        "oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdA"
        "ZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-"
        "kEgU8awapJzKnqDKgw"
    )
    assert (
        parse_organisation_key({"e": "AQAB", "kty": "RSA", "n": modulus}, "key").thumbprint
        == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    )


def test_rfc_8037_thumbprint() -> None:
    """RFC 8037, appendix A.3."""
    jwk = {"crv": "Ed25519", "kty": "OKP", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    assert parse_organisation_key(jwk, "key").thumbprint == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
