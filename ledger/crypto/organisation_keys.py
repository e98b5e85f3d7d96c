"""Signing keys of organisations: Ed25519 (ours), and the RSA and P-256 keys that many already have, as JWKs.

    {"crv":"Ed25519","kty":"OKP","x":"..."}          signs with Ed25519 (RFC 8037, RFC 9864)
    {"crv":"P-256","kty":"EC","x":"...","y":"..."}   signs with ES256 (RFC 7518, section 3.4)
    {"e":"AQAB","kty":"RSA","n":"..."}               signs with RS256 (RFC 7518, section 3.3)

A key has exactly one algorithm, and the header of a signature must name it. Clean rooms and
the log itself sign with Ed25519 alone.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.field_types import KeyBytes, pattern, rule
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert, write

RSA_BITS: Final = (2048, 4096)
_JWK_BYTES_MAX: Final = 2_000


class _WholeJwk(Record, frozen=True):
    """A key that the registry stores as its whole JWK."""

    @property
    def x(self) -> str:
        """The whole key as text, as the registry stores it."""
        return write(self).decode()

    @property
    def thumbprint(self) -> str:
        """RFC 7638."""
        return c.base64url(hashlib.sha256(write(self)).digest())


class P256Key(_WholeJwk, frozen=True, tag_field="kty", tag="EC"):
    """A point of NIST P-256, its coordinates in base64url."""

    point_x: KeyBytes = msgspec.field(name="x")
    point_y: KeyBytes = msgspec.field(name="y")
    curve: Literal["P-256"] = msgspec.field(name="crv", default_factory=lambda: "P-256")
    algorithm: ClassVar = "ES256"

    def __post_init__(self) -> None:
        """Raises: Malformed, for a point that is not on the curve."""
        try:
            self._public()
        except ValueError:
            raise Malformed("", "is not a point of P-256") from None

    def _public(self) -> ec.EllipticCurvePublicKey:
        x, y = (int.from_bytes(c.unbase64url(coordinate, "key"), "big") for coordinate in (self.point_x, self.point_y))
        return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether a signature, r and s of 32 bytes each, is this key's."""
        if len(signature) != 64:
            return False
        pair = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        try:
            self._public().verify(encode_dss_signature(*pair), message, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


class RsaKey(_WholeJwk, frozen=True, tag_field="kty", tag="RSA"):
    """An RSA key of 2048 to 4096 bits with the exponent 65537."""

    modulus: Annotated[str, pattern("[A-Za-z0-9_-]{1,10000}", "is not base64url")] = msgspec.field(name="n")
    exponent: Annotated[Literal["AQAB"], rule("must be 'AQAB', which is 65537")] = msgspec.field(
        name="e", default_factory=lambda: "AQAB"
    )
    algorithm: ClassVar = "RS256"

    def __post_init__(self) -> None:
        """Raises: Malformed, for an invalid modulus or one of another size."""
        raw = c.unbase64url(self.modulus, "n")
        number = int.from_bytes(raw, "big")
        if not raw or raw[0] == 0 or number % 2 == 0:
            raise Malformed("n", "must be an odd number without leading zeros")
        if not RSA_BITS[0] <= number.bit_length() <= RSA_BITS[1]:
            raise Malformed("n", f"must have {RSA_BITS[0]} to {RSA_BITS[1]} bits, not {number.bit_length()}")

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether a signature (PKCS #1 v1.5, SHA-256) is this key's."""
        number = int.from_bytes(c.unbase64url(self.modulus, "key.n"), "big")
        try:
            rsa.RSAPublicNumbers(65537, number).public_key().verify(
                signature, message, padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            return False
        return True


SignerKey = PublicKey | P256Key | RsaKey


def parse_organisation_key(value: object, where: str) -> SignerKey:
    """Read the public JWK of an organisation. Raises: Malformed; for a JWK with a private part too."""
    kind = value.get("kty") if isinstance(value, dict) else None
    if kind not in {"EC", "RSA"}:
        return PublicKey.parse(value, where, "Ed25519")
    return convert(P256Key, value, where) if kind == "EC" else convert(RsaKey, value, where)


@lru_cache(maxsize=4_096)
def key_of(text: str) -> SignerKey:
    """A key as the registry stores it: the ``x`` of an Ed25519 key, the whole JWK of another. Raises: Malformed."""
    if text.startswith("{"):
        return parse_organisation_key(c.parse(text.encode(), _JWK_BYTES_MAX, "key"), "key")
    return PublicKey("Ed25519", text)
