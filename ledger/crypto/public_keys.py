"""Public keys: Ed25519 for signing, X25519 for sealing, as JWKs (RFC 8037)."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec

from ledger.wire import canonical_json as c
from ledger.wire.field_types import KeyBytes, rule
from ledger.wire.json_schema import json_schema
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert

_PRIME = 2**255 - 19


def _points(*coordinates: int) -> frozenset[str]:
    signed = (coordinate | sign << 255 for coordinate in coordinates for sign in (0, 1))
    return frozenset(c.base64url(encoded.to_bytes(32, "little")) for encoded in signed)


# Every encoding, with either sign bit, of a point whose order divides 8: with such a key any signature verifies and a
# shared secret is known to everyone (RFC 7748, section 6.1; RFC 8032, section 5.1.7).
_SMALL_ORDER: Final = {
    "Ed25519": _points(
        0,
        1,
        _PRIME - 1,
        _PRIME,
        _PRIME + 1,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    ),
    "X25519": _points(
        0,
        1,
        _PRIME - 1,
        _PRIME,
        _PRIME + 1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
    ),
}


class PublicKey(Record, frozen=True, tag_field="kty", tag="OKP"):
    """A public key as a JWK of type OKP (RFC 8037), without its private part: curve and base64url ``x``."""

    curve: Literal["Ed25519", "X25519"] = msgspec.field(name="crv")
    x: KeyBytes

    @classmethod
    def parse(cls, value: object, where: str, curve: str) -> PublicKey:
        """Read a public JWK of one curve. Raises: Malformed; for a JWK with a private part too."""
        key = convert(PublicKey, value, where, f"must be an OKP key on {curve}")
        check_key(key, curve, where)
        return key

    @property
    def thumbprint(self) -> str:
        """RFC 7638 thumbprint (SHA-256, base64url): the id of the key."""
        return _thumbprint(self.curve, self.x)


@lru_cache(maxsize=4_096)
def _thumbprint(curve: str, x: str) -> str:
    # RFC 7638, section 3.2: the required members, sorted; neither value holds what JSON would escape.
    form = f'{{"crv":"{curve}","kty":"OKP","x":"{x}"}}'
    return c.base64url(hashlib.sha256(form.encode("ascii")).digest())


def check_key(key: PublicKey, curve: str, where: str) -> None:
    """Raises: Malformed, for a key on another curve, or one that anyone could use."""
    if key.curve != curve:
        raise Malformed(where, f"must be an OKP key on {curve}")
    if key.x in _SMALL_ORDER[curve]:
        raise Malformed(f"{where}.x", "is a point of small order: anyone could use it")


def on_curve(curve: str) -> msgspec.Meta:
    """The schema of a key that must be on one curve."""
    fields = {"crv": {"const": curve}, "kty": {"const": "OKP"}, "x": json_schema(KeyBytes)}
    return msgspec.Meta(extra_json_schema={"title": f"{curve}Key", "properties": fields})


class CleanRoomKeys(Record, frozen=True):
    """The two keys by which a clean room is known: one that it signs with, one that data keys are sealed for."""

    sealing: Annotated[PublicKey, rule("must be an OKP key on X25519"), on_curve("X25519")]
    signing: Annotated[PublicKey, rule("must be an OKP key on Ed25519"), on_curve("Ed25519")]

    def __post_init__(self) -> None:
        """Hold each key to its curve. Raises: Malformed."""
        check_key(self.sealing, "X25519", "sealing")
        check_key(self.signing, "Ed25519", "signing")
