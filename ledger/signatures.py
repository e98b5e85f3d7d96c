"""Signatures over exact bytes: detached JWS (RFC 7515, appendix F; RFC 7797, ``b64`` false).

    eyJhbGciOiJFZDI1NTE5IiwiYjY0IjpmYWxzZSwiY3JpdCI6WyJiNjQiXSwia2lkIjoi...In0..yN2x...

The protected header is ``{"alg":"Ed25519","b64":false,"crit":["b64"],"kid":<thumbprint>}`` and nothing else. The
algorithm is the key's own (RFC 9864; ES256 and RS256 for organisations that have such keys), so that no header picks
one, and a key is only ever looked up by its thumbprint, never fetched.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ledger import canonical as c
from ledger.malformed import Malformed
from ledger.organisation_key import SignerKey
from ledger.public_key import PublicKey

SIGNATURE_BYTES_MAX: Final = 1_000
ALGORITHMS: Final = ("Ed25519", "ES256", "RS256")


def public_key(private: Ed25519PrivateKey) -> PublicKey:
    """The public half as a JWK."""
    return PublicKey("Ed25519", c.base64url(private.public_key().public_bytes_raw()))


def sign(private: Ed25519PrivateKey, payload: bytes) -> str:
    """A detached JWS over ``payload``; ``kid`` is the key's thumbprint."""
    protected = _protected(public_key(private).thumbprint)
    return f"{protected}..{c.base64url(private.sign(_signing_input(protected, payload)))}"


def key_id_of(signature: str) -> str:
    """The thumbprint that a detached JWS names. Raises: Malformed, for any header but the one above."""
    return _header(signature)[1]


def _header(signature: str) -> tuple[str, str]:
    parts = signature.split(".") if len(signature) <= SIGNATURE_BYTES_MAX else []
    if len(parts) != 3 or parts[1]:
        raise Malformed("signature", "must be a detached JWS: header, two dots, signature")
    header = c.fields(
        c.parse(c.unbase64url(parts[0], "signature.header"), SIGNATURE_BYTES_MAX, "signature.header"),
        "signature.header",
        ("alg", "b64", "crit", "kid"),
    )
    if header["alg"] not in ALGORITHMS or header["b64"] is not False or header["crit"] != ["b64"]:
        raise Malformed("signature.header", 'must be {"alg":"Ed25519","b64":false,"crit":["b64"],"kid":...}')
    return str(header["alg"]), c.name_of_key(header["kid"], "signature.header.kid")


def verify(signature: str, payload: bytes, key: SignerKey) -> None:
    """Check a detached JWS over exactly these bytes. Raises: Malformed, if it is not that key's."""
    protected = _protected(key.thumbprint)
    # An Ed25519 key has one header; what bears another is read for what it is, or for what is wrong with it.
    if (
        not isinstance(key, PublicKey)
        or not signature.startswith(f"{protected}..")
        or len(signature) > SIGNATURE_BYTES_MAX
    ):
        algorithm, key_id = _header(signature)
        if key_id != key.thumbprint:
            raise Malformed("signature", "was made with another key")
        own = "Ed25519" if isinstance(key, PublicKey) else key.algorithm
        if algorithm != own:
            raise Malformed("signature.header.alg", f"must be {own}, the algorithm of this key")
        protected = signature.split(".", maxsplit=1)[0]
    value = signature[len(protected) + 2 :]
    if not _verifies(key, c.unbase64url(value, "signature"), _signing_input(protected, payload)):
        raise Malformed("signature", "does not verify over these bytes")


def _verifies(key: SignerKey, signature: bytes, message: bytes) -> bool:
    if not isinstance(key, PublicKey):
        return key.verifies(signature, message)
    try:
        Ed25519PublicKey.from_public_bytes(c.unbase64url(key.x, "key.x")).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _protected(key_id: str) -> str:
    """The protected header for a key, in RFC 8785 form; a key id holds nothing that JSON would escape."""
    header = f'{{"alg":"Ed25519","b64":false,"crit":["b64"],"kid":"{key_id}"}}'
    return c.base64url(header.encode("ascii"))


def _signing_input(protected: str, payload: bytes) -> bytes:
    # RFC 7797, section 3. Written out, because the JWS library takes payloads that are text for attached ones.
    return protected.encode("ascii") + b"." + payload
