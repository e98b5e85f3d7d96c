"""The receipt of DEPA's contract service: proof that the service has registered the very envelope that is imported.

    [<< {"tree_alg": "CCF", "service_id": "5f1e...", "registration_time": 1767225600} >>,
     [signature, node_certificate, [[true, hash], [false, hash]], [internal_hash, internal_data]]]

The service is a fork of the SCITT ledger on CCF. A leaf of its Merkle tree holds the SHA-256 of a Countersign_structure
(RFC 9338, section 3.3) over the envelope's protected header, its payload and, joined, the protected header and
the signature of every signer. A node of the service signs the tree's root by ECDSA, and the service's own key, which is
pinned here, has signed the node's certificate (draft-birkholz-scitt-receipts-03). The service verifies no party's
signature when it registers a contract, so a receipt replaces none of these signatures.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import cbor2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import Certificate, load_der_x509_certificate

from ledger.wire import canonical_json as c
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from policy.checks.field_readers import format_time
from policy.depa.contract.cose_sign import Envelope, decode
from policy.depa.contract.decimal_json import parse
from policy.depa.contract.reasons import Reasons

PATH: Final = "receipt"
RECEIPT_BYTES_MAX: Final = 65_536
PROOF_MAX: Final = 64
"""The longest proof: that of a tree of 2^64 leaves."""
CERTIFICATE_BYTES_MAX: Final = 16_384
_HASH_BYTES: Final = 32
_TIME_MAX: Final = 253_402_300_799
"""The last second of the year 9999."""


@dataclass(frozen=True, slots=True)
class ContractService:
    """A pinned contract service: its ``/parameters`` answer, as the importer stored it.

    Attributes:
        certificate: holds the service's own key, which signs the certificates of its nodes.
    """

    service_id: str
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class Receipt:
    """A parsed receipt; nothing in it is verified yet.

    Attributes:
        protected: its protected header's bytes.
        registered: Unix seconds; None if not stated.
        proof: from the leaf to the root, each a hash and whether it is the left one.
        internal_hash: what else the leaf holds, as a hash; ``internal_data`` as bytes, of which the leaf has the hash.
    """

    protected: bytes
    service_id: str
    registered: int | None
    signature: bytes
    node_certificate: bytes
    proof: tuple[tuple[bool, bytes], ...]
    internal_hash: bytes
    internal_data: bytes

    def root(self, envelope: Envelope) -> bytes:
        """The tree's root, if the leaf is this envelope's."""
        signers = b"".join(signature.protected + signature.signature for signature in envelope.signatures)
        parts = ["CounterSignatureV2", envelope.protected, self.protected, b"", envelope.payload, [signers]]
        claims = sha256(cbor2.dumps(parts)).digest()
        node = sha256(self.internal_hash + sha256(self.internal_data).digest() + claims).digest()
        for is_left, other in self.proof:
            node = sha256(other + node if is_left else node + other).digest()
        return node


def read_service(data: bytes, where: str) -> ContractService:
    """Read a service's parameters as its ``/parameters`` answers them.

    Raises:
        Malformed: naming the member; for another tree or signature algorithm, or a certificate without an ECDSA key.
    """
    value = parse(data, where)
    if not isinstance(value, dict):
        raise Malformed(where, "must be a JSON object, as the contract service's /parameters answers")
    for name, expected in (("treeAlgorithm", "CCF"), ("signatureAlgorithm", "ES256")):
        if value.get(name) != expected:
            raise Malformed(f"{where}.{name}", f"must be {expected!r}")
    encoded = c.string(value.get("serviceCertificate"), f"{where}.serviceCertificate", 2 * CERTIFICATE_BYTES_MAX)
    try:
        der = base64.b64decode(encoded, validate=True)
        certificate = load_der_x509_certificate(der)
        held = certificate.public_key()
    except (binascii.Error, ValueError):
        raise Malformed(f"{where}.serviceCertificate", "must be a certificate: DER in base64") from None
    if not isinstance(held, ec.EllipticCurvePublicKey):
        raise Malformed(f"{where}.serviceCertificate", "must hold a key of an elliptic curve")
    return ContractService(c.string(value.get("serviceId"), f"{where}.serviceId"), certificate)


def read_receipt(value: object) -> Receipt:
    """Read a receipt: its CBOR bytes, or its parts in an envelope.

    Raises:
        Malformed: naming the part.
    """
    if isinstance(value, bytes):
        if len(value) > RECEIPT_BYTES_MAX:
            raise Malformed(PATH, f"has {len(value)} bytes, more than the {RECEIPT_BYTES_MAX} allowed")
        value = decode(value, PATH)
    protected, contents = _parts(value, PATH, "a protected header and the contents", 2)
    signature, certificate, proof, leaf = _parts(
        contents, f"{PATH}.contents", "signature, node certificate, proof and leaf", 4
    )
    internal_hash, internal_data = _parts(leaf, f"{PATH}.leaf", "the internal hash and data", 2)
    header = decode(_bytes(protected, f"{PATH}.protected", RECEIPT_BYTES_MAX), f"{PATH}.protected")
    if not isinstance(header, dict) or header.get("tree_alg") != "CCF":
        raise Malformed(f"{PATH}.protected.tree_alg", "must be 'CCF'")
    registered = header.get("registration_time")
    return Receipt(
        protected=protected,
        service_id=c.string(header.get("service_id"), f"{PATH}.protected.service_id"),
        registered=None
        if registered is None
        else c.integer(registered, f"{PATH}.protected.registration_time", 0, _TIME_MAX),
        signature=_bytes(signature, f"{PATH}.signature", 132),  # P-521
        node_certificate=_bytes(certificate, f"{PATH}.node_certificate", CERTIFICATE_BYTES_MAX),
        proof=tuple(_step(step, f"{PATH}.proof[{place}]") for place, step in enumerate(_read_list(proof))),
        internal_hash=_hash(internal_hash, f"{PATH}.internal_hash"),
        internal_data=_bytes(internal_data, f"{PATH}.internal_data", RECEIPT_BYTES_MAX),
    )


def check_receipt(
    envelope: Envelope, given: bytes | None, service: ContractService, now: int, reasons: Reasons
) -> Receipt | None:
    """Check that the pinned service has registered this envelope; an error becomes a reason.

    Args:
        given: the receipt's own file; None for the one that the envelope holds in its unprotected header.
        now: Unix milliseconds: a receipt from later is refused.
    """
    candidates: Sequence[object] = envelope.receipts if given is None else (given,)
    if len(candidates) != 1:
        count = "holds several receipts" if candidates else "holds none"
        reasons.refuse("receipt_missing", PATH, None, f"the envelope {count}, and no file with one was given")
        return None
    try:
        receipt = read_receipt(candidates[0])
    except Malformed as error:
        reasons.refuse("receipt_invalid", error.field, None, error.rule)
        return None
    if receipt.service_id != service.service_id:
        reasons.refuse("receipt_service_differs", f"{PATH}.protected.service_id", receipt.service_id)
        return None
    problem = _problem(receipt, envelope, service)
    if problem:
        reasons.refuse("receipt_invalid", PATH, None, problem)
        return None
    if receipt.registered is not None and receipt.registered * 1_000 > now:
        time = format_time(receipt.registered * 1_000)
        reasons.refuse("receipt_time", f"{PATH}.protected.registration_time", time)
        return None
    return receipt


def to_json(receipt: Receipt) -> Object:
    """A verified receipt as JSON: the service that registered the contract, and the time."""
    registered = None if receipt.registered is None else format_time(receipt.registered * 1_000)
    return {"registered": registered, "service_id": receipt.service_id}


def _problem(receipt: Receipt, envelope: Envelope, service: ContractService) -> str:
    """Why the receipt proves nothing; empty if it holds."""
    try:
        node = load_der_x509_certificate(receipt.node_certificate)
        key = node.public_key()
    except ValueError:
        return "the node's certificate cannot be read"
    try:
        node.verify_directly_issued_by(service.certificate)
    except (InvalidSignature, ValueError, TypeError):
        return "the pinned service has not signed the node's certificate"
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return "the node's key is not of an elliptic curve"
    half = -(-key.curve.key_size // 8)
    if len(receipt.signature) != 2 * half:
        return f"the node's signature must have {2 * half} bytes"
    r, s = (int.from_bytes(part, "big") for part in (receipt.signature[:half], receipt.signature[half:]))
    try:
        key.verify(encode_dss_signature(r, s), receipt.root(envelope), ec.ECDSA(Prehashed(SHA256())))
    except InvalidSignature:
        return "the node's signature is not of this envelope: its header, payload or signatures differ"
    return ""


def _step(value: object, path: str) -> tuple[bool, bytes]:
    is_left, other = _parts(value, path, "whether it is the left one, and a hash", 2)
    if not isinstance(is_left, bool):
        raise Malformed(path, "must begin with true or false")
    return is_left, _hash(other, path)


def _read_list(value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > PROOF_MAX:
        raise Malformed(f"{PATH}.proof", f"must list at most {PROOF_MAX} hashes")
    return value


def _parts(value: object, path: str, names: str, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise Malformed(path, f"must hold {names}")
    return value


def _hash(value: object, path: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != _HASH_BYTES:
        raise Malformed(path, f"must be a hash of {_HASH_BYTES} bytes")
    return value


def _bytes(value: object, path: str, most: int) -> bytes:
    if not isinstance(value, bytes) or not 1 <= len(value) <= most:
        raise Malformed(path, f"must be 1 to {most} bytes")
    return value
