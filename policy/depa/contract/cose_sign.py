"""The envelope of DEPA's contract service: COSE_Sign (RFC 9052, section 4.1) over a contract's JSON.

    98([ << {3: "application/json", 491: ["did:web:tdp.example", "did:web:tdc.example"], 392: "feed"} >>, {},
         '{"id":...}', [[ << {1: -7, 4: '#key-1', 493: "did:web:tdp.example"} >>, {}, h'r and s']] ])

Two sets of temporary labels exist: the service's code has the feed at 392 and a signer's DID at 493; the
specification's CDDL has them at 492 and 494. Both are read; one header may not use both. Unprotected headers are never
relied on, as the specification demands; a receipt among them (at 394 or 493) proves itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import cbor2

from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from policy.depa.contract.decimal_json import BYTES_MAX

ENVELOPE_BYTES_MAX: Final = 2 * BYTES_MAX
SIGNATURES_MAX: Final = 32
TEXT_MAX: Final = 255
CERTIFICATES_MAX: Final = 8
_HEAD: Final = b"\xd8\x62"
"""Tag 98 in its shortest spelling."""
_DEPTH_MAX: Final = 8
_ALGORITHM, _CRITICAL, _CONTENT_TYPE, _KEY_ID, _X5CHAIN = 1, 2, 3, 4, 33
_PARTICIPANTS: Final = 491
_FEEDS: Final = {392: "code", 492: "specification"}
_SIGNERS: Final = {493: "code", 494: "specification"}
_RECEIPTS: Final = (394, 493)
_KNOWN: Final = frozenset({_ALGORITHM, _CONTENT_TYPE, _KEY_ID, _X5CHAIN, _PARTICIPANTS, *_FEEDS, *_SIGNERS})
_TAGS: Final = (*range(6), 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799)
"""Tags that the decoder knows; none is valid in an envelope, and some are costly."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One signer's part: the protected header's bytes and values.

    Attributes:
        key_id: a key of the signer's DID document; empty if absent.
        certificates: DER, the signer's first; empty without ``x5chain``.
    """

    path: str
    protected: bytes
    algorithm: int
    key_id: str
    signer: str
    certificates: tuple[bytes, ...]
    signature: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A parsed envelope; nothing in it is verified yet.

    Attributes:
        receipts: the receipts in the unprotected header, not parsed further.
    """

    protected: bytes
    payload: bytes
    content_type: str
    participants: tuple[str, ...]
    feed: str
    labels: str
    signatures: tuple[Signature, ...]
    receipts: tuple[object, ...]

    def to_be_signed(self, signature: Signature) -> bytes:
        """The Sig_structure of one signature (RFC 9052, section 4.4); without external data."""
        return cbor2.dumps(["Signature", self.protected, signature.protected, b"", self.payload])

    def to_json(self) -> Object:
        """As JSON."""
        return {
            "content_type": self.content_type,
            "feed": self.feed,
            "labels": self.labels,
            "participants": list(self.participants),
            "signers": [signature.signer for signature in self.signatures],
        }


def is_envelope(data: bytes) -> bool:
    """Whether these bytes begin like a tagged COSE_Sign; JSON never does."""
    return data.startswith(_HEAD)


def read_envelope(data: bytes) -> Envelope:
    """Read a tagged COSE_Sign, in the shortest encoding only, so that each envelope has one encoding.

    Raises:
        Malformed: naming the part; for more than 524,288 bytes, 8 levels or 32 signatures too.
    """
    if len(data) > ENVELOPE_BYTES_MAX:
        raise Malformed("envelope", f"has {len(data)} bytes, more than the {ENVELOPE_BYTES_MAX} allowed")
    if not is_envelope(data):
        raise Malformed("envelope", "must be a tagged COSE_Sign")
    parts = decode(data[len(_HEAD) :], "envelope")
    if not isinstance(parts, list) or len(parts) != 4:
        raise Malformed("envelope", "must hold protected and unprotected headers, payload and signatures")
    protected, unprotected, payload, signatures = parts
    header = _header(protected, unprotected, "envelope")
    if not isinstance(payload, bytes):
        raise Malformed("envelope.payload", "must be bytes: a detached payload is not accepted")
    if not isinstance(signatures, list) or not 1 <= len(signatures) <= SIGNATURES_MAX:
        raise Malformed("envelope.signatures", f"must be 1 to {SIGNATURES_MAX}")
    read = tuple(_signature(signature, f"envelope.signatures[{place}]") for place, signature in enumerate(signatures))
    feed, labels = _by_label(header, _FEEDS, "envelope.protected", "")
    kinds = {label for label in (labels, *(signature[1] for signature in read)) if label}
    return Envelope(
        protected=protected,
        payload=payload,
        content_type=_text(header.get(_CONTENT_TYPE), "envelope.protected.3"),
        participants=_participants(header.get(_PARTICIPANTS)),
        feed=feed,
        labels=" and ".join(sorted(kinds)),
        signatures=tuple(signature[0] for signature in read),
        receipts=tuple(
            receipt for label in _RECEIPTS if isinstance(unprotected.get(label), list) for receipt in unprotected[label]
        ),
    )


def _signature(value: object, path: str) -> tuple[Signature, str]:
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[2], bytes):
        raise Malformed(path, "must hold protected and unprotected headers and the signature")
    header = _header(value[0], value[1], path)
    algorithm = header.get(_ALGORITHM)
    if not isinstance(algorithm, int):
        raise Malformed(f"{path}.protected.1", "must be the algorithm, an integer")
    key_id = header.get(_KEY_ID, b"")
    if not isinstance(key_id, bytes) or len(key_id) > TEXT_MAX or not key_id.isascii():
        raise Malformed(f"{path}.protected.4", f"must be the key id, at most {TEXT_MAX} bytes of ASCII")
    signer, label = _by_label(header, _SIGNERS, f"{path}.protected", None)
    certificates = _certificates(header.get(_X5CHAIN), f"{path}.protected.33")
    return Signature(path, value[0], algorithm, key_id.decode("ascii"), signer, certificates, value[2]), label


def _header(protected: object, unprotected: object, path: str) -> dict[Any, Any]:
    if not isinstance(protected, bytes) or not isinstance(unprotected, dict):
        raise Malformed(path, "must begin with a protected and an unprotected header")
    header = decode(protected, f"{path}.protected")
    if not isinstance(header, dict):
        raise Malformed(f"{path}.protected", "must be a map")
    critical = header.get(_CRITICAL, [])
    supported = isinstance(critical, list) and all(isinstance(label, int) and label in _KNOWN for label in critical)
    if not supported:
        raise Malformed(f"{path}.protected.2", "names a critical header that is not known here")
    return header


def _by_label(header: dict[Any, Any], labels: dict[int, str], path: str, default: str | None) -> tuple[str, str]:
    """The value at one of two labels, and which label it is."""
    present = [label for label in labels if label in header]
    if len(present) > 1:
        raise Malformed(path, f"uses both labels {present[0]} and {present[1]}")
    if not present:
        if default is None:
            raise Malformed(path, f"has no {' or '.join(map(str, labels))}")
        return default, ""
    return _text(header[present[0]], f"{path}.{present[0]}"), labels[present[0]]


def _participants(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= SIGNATURES_MAX:
        raise Malformed("envelope.protected.491", f"must be a list of 1 to {SIGNATURES_MAX} participants")
    participants = tuple(_text(text, "envelope.protected.491") for text in value)
    if len(set(participants)) < len(participants):
        raise Malformed("envelope.protected.491", "names a participant twice")
    return participants


def _certificates(value: object, path: str) -> tuple[bytes, ...]:
    """One certificate is plain, several are a list (RFC 9360, section 2); a list of one occurs too."""
    listed = [] if value is None else value if isinstance(value, list) else [value]
    if len(listed) > CERTIFICATES_MAX or not all(isinstance(certificate, bytes) for certificate in listed):
        raise Malformed(path, f"must be at most {CERTIFICATES_MAX} certificates")
    return tuple(listed)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_MAX:
        raise Malformed(path, f"must be text of 1 to {TEXT_MAX} characters")
    return value


def decode(data: bytes, path: str) -> Any:  # noqa: ANN401 - CBOR
    """Decode CBOR without tags, floats or indefinite lengths, that encodes to the same bytes again.

    Raises:
        Malformed: for any other bytes.
    """
    try:
        value = cbor2.loads(
            data,
            tag_hook=_no_tag,
            semantic_decoders=dict.fromkeys(_TAGS, _no_tag),
            max_depth=_DEPTH_MAX,
            allow_indefinite=False,
            allow_duplicate_keys=False,
        )
        again = cbor2.dumps(value)
    except cbor2.CBORError as error:
        raise Malformed(path, f"is not CBOR without tags: {str(error)[:100]}") from None
    if again != data:
        raise Malformed(path, "is not in the one shortest encoding, or goes on after its end")
    return value


def _no_tag(*_: object) -> object:
    raise ValueError
