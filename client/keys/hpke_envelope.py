"""The envelope of a key release: each partition's data key, sealed to one clean room with HPKE (RFC 9180).

    {"info":{"charge":"run-1","contract":"9f86...","entry":17,"evidence":"60e2...","key_release":"release-1",
     "not_after":1795240800000,"v":1},"sealed":{"did:web:hospital.example/digits/2026-q1":"mXfT..."},
     "suite":"X25519-HKDF-SHA256-AES-256-GCM","v":1}

HPKE's ``info`` is the RFC 8785 form of ``info`` with the partition's reference beside it, so a sealed key
opens for the charge, contract, entry, evidence and expiry it was released for, and for no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from msgspec import Meta

from ledger.commands.command_fields import Index
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Name, Sha256, Time, constant
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert

SUITE: Final = "X25519-HKDF-SHA256-AES-256-GCM"
DATA_KEY_BYTES: Final = 32
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class EnvelopeInfo(Record, frozen=True):
    """What an envelope is bound to."""

    charge: Name
    contract: Annotated[Sha256, Meta(description="SHA-256 in lower-case hexadecimal")]
    entry: Index
    evidence: Annotated[Sha256, Meta(description="SHA-256 in lower-case hexadecimal")]
    key_release: Name
    not_after: Annotated[Time, Meta(description="Unix milliseconds")]
    v: Literal[1] = constant(1)


class Envelope(Record, frozen=True):
    """Each key sealed with HPKE (RFC 9180) to the clean room, by what it opens; info is bound in."""

    info: EnvelopeInfo
    sealed: dict[str, Annotated[str, Meta(pattern="^[A-Za-z0-9_-]+$", description="bytes in base64url")]]
    suite: Literal["X25519-HKDF-SHA256-AES-256-GCM"] = constant(SUITE)
    v: Literal[1] = constant(1)

    @classmethod
    def seal(cls, info: EnvelopeInfo, sealing: str, data_keys: Mapping[str, bytes]) -> Self:
        """Data keys by partition, sealed to the X25519 key ``sealing`` (base64url). Raises: Malformed."""
        bound = info.to_json()
        return cls(info=info, sealed={ref: seal(key, sealing, bound, ref) for ref, key in data_keys.items()})


def seal(data_key: bytes, sealing: str, info: c.Object, partition: str) -> str:
    """One partition's data key, sealed to the X25519 key ``sealing`` (base64url). Raises: Malformed."""
    public = X25519PublicKey.from_public_bytes(c.unbase64url(sealing, "sealing"))
    return c.base64url(_SUITE.encrypt(data_key, public, info=_bytes(info, partition)))


def unseal(envelope: object, private: X25519PrivateKey, expected: c.Object) -> dict[str, bytes]:
    """The data keys by partition.

    Args:
        envelope: as the service answered a key release.
        private: the clean room's sealing key.
        expected: what the clean room itself knows of ``info`` (charge, contract, evidence, ...).

    Raises:
        Malformed: if the envelope is not one, says other than expected, or was sealed to another key or info.
    """
    parsed = convert(Envelope, envelope, "envelope")
    info = parsed.info.to_json()
    for name, value in expected.items():
        if name not in info or info[name] != value:
            raise Malformed(f"envelope.info.{name}", "is not what this clean room requested")
    return {ref: open_key(text, private, info, ref) for ref, text in parsed.sealed.items()}


def open_key(text: object, private: X25519PrivateKey, info: c.Object, ref: str) -> bytes:
    """One key that :func:`seal` sealed. Raises: Malformed, if it was sealed to another key, info or reference."""
    field = f"envelope.sealed.{ref}"
    raw = c.unbase64url(text, field)
    try:
        data_key = bytes(_SUITE.decrypt(raw, private, info=_bytes(info, ref)))
    except (InvalidTag, ValueError):
        raise Malformed(field, "does not open with this key for this release") from None
    if len(data_key) != DATA_KEY_BYTES:
        raise Malformed(field, f"does not hold {DATA_KEY_BYTES} bytes")
    return data_key


def _bytes(info: c.Object, partition: str) -> bytes:
    return c.dump({**info, "partition": partition})
