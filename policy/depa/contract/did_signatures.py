"""The signatures of an envelope: each verified with the key of its signer's DID document, as the checker stores it.

    {"id":"did:web:tdp.example","assertionMethod":[{"id":"did:web:tdp.example#key-1","publicKeyJwk":{"kty":"EC",...}}]}

A key signs contracts if ``assertionMethod`` holds it or refers to it (DID Core 1.0, section 5.3.2); a key under
``verificationMethod`` alone does not. DEPA's tool writes the numbers of a key in base64url with padding, which RFC 7518
does not have: such padding is read, and nothing else that differs. A method that cannot be used spoils no other one.
DEPA's contract service verifies no signature when it registers a contract; here every participant's is. A key is only
ever looked up in a document given, never fetched. A certificate chain picks no key: the first certificate must hold the
very key that the DID document has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import load_der_x509_certificate
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.depa.contract.contract import Contract
from policy.depa.contract.cose_sign import Envelope, Signature
from policy.depa.contract.decimal_json import parse
from policy.depa.contract.reasons import Reasons

METHODS_MAX: Final = 64
DOCUMENTS_MAX: Final = 64
RSA_BITS: Final = (2_048, 8_192)
Key = ec.EllipticCurvePublicKey | Ed25519PublicKey | rsa.RSAPublicKey
Methods = dict[str, Key | Malformed]
"""The methods of a document that sign contracts, by their fragments: a key, or the error that makes it unusable."""
_PADDED: Final = ("x", "y", "n", "e")
"""The members of a public JWK that are base64url (RFC 7518, sections 6.2.1, 6.3.1; RFC 8037, section 2)."""
_CURVES: Final = {
    -7: ("secp256r1", SHA256()),
    -35: ("secp384r1", SHA384()),
    -36: ("secp521r1", SHA512()),
}
_PSS: Final = {-37: SHA256(), -38: SHA384(), -39: SHA512()}
_EDDSA: Final = (-8, -19)
"""EdDSA, and Ed25519 by its own name (RFC 9864)."""


def read_keys(documents: Iterable[bytes]) -> dict[str, Methods]:
    """The methods of DID documents that sign contracts, by DID.

    Raises:
        Malformed: for an invalid document, or a DID given twice.
    """
    methods: dict[str, Methods] = {}
    for place, data in enumerate(documents):
        where = f"did_document[{place}]"
        if place >= DOCUMENTS_MAX:
            raise Malformed(where, f"there may be at most {DOCUMENTS_MAX}")
        value = parse(data, where)
        did = c.did(value.get("id") if isinstance(value, dict) else None, f"{where}.id")
        if did in methods:
            raise Malformed(f"{where}.id", f"{did} is given twice")
        methods[did] = _methods(value, did, where)
    return methods


def check_signatures(envelope: Envelope, contract: Contract, keys: Mapping[str, Methods], reasons: Reasons) -> None:
    """Check that exactly the contract's parties are its participants, and that each of them has signed."""
    parties = {*contract.tdps, contract.tdc} - {None}
    for party in sorted(party for party in parties if party is not None and party not in envelope.participants):
        reasons.refuse("participants_differ", "envelope.protected.491", party, "a party of the contract is missing")
    signed: set[str] = set()
    for signature in envelope.signatures:
        if signature.signer not in envelope.participants:
            reasons.refuse("signer_not_participant", signature.path, signature.signer)
        if signature.signer in signed:
            reasons.refuse("signer_twice", signature.path, signature.signer)
        signed.add(signature.signer)
        _check(envelope, signature, keys.get(signature.signer), reasons)
    for participant in envelope.participants:
        if participant not in signed:
            reasons.refuse("signature_missing", "envelope.signatures", participant)


def _check(envelope: Envelope, signature: Signature, keys: Methods | None, reasons: Reasons) -> None:
    key = (keys or {}).get(signature.key_id.rpartition("#")[2])
    if key is None or isinstance(key, Malformed):
        detail = "no DID document of it was given" if keys is None else f"key id {signature.key_id!r}"
        detail += "" if key is None else f": {key}"
        reasons.refuse("signer_key_unknown", signature.path, signature.signer, detail)
        return
    if signature.certificates and not _certifies(signature.certificates[0], key):
        reasons.refuse("certificate_differs", f"{signature.path}.protected.33", signature.signer)
    if not fits(signature.algorithm, key):
        reasons.refuse("signature_algorithm", f"{signature.path}.protected.1", signature.algorithm)
    elif not verifies(key, signature.algorithm, signature.signature, envelope.to_be_signed(signature)):
        reasons.refuse("signature_invalid", signature.path, signature.signer)


def fits(algorithm: int, key: Key) -> bool:
    """Whether a COSE algorithm fits this key: curve and hash, or RSA of 2,048 to 8,192 bits with PSS."""
    match key:
        case ec.EllipticCurvePublicKey():
            return algorithm in _CURVES and _CURVES[algorithm][0] == key.curve.name
        case rsa.RSAPublicKey():
            return algorithm in _PSS and RSA_BITS[0] <= key.key_size <= RSA_BITS[1]
        case _:
            return algorithm in _EDDSA


def verifies(key: Key, algorithm: int, signature: bytes, data: bytes) -> bool:
    """Whether a signature verifies; ``algorithm`` fits the key (RFC 9053, sections 2.1 and 2.2; RFC 8230)."""
    try:
        match key:
            case ec.EllipticCurvePublicKey():
                half = -(-key.curve.key_size // 8)
                if len(signature) != 2 * half:
                    return False
                r, s = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
                key.verify(encode_dss_signature(r, s), data, ec.ECDSA(_CURVES[algorithm][1]))
            case rsa.RSAPublicKey():
                of = _PSS[algorithm]
                key.verify(signature, data, padding.PSS(padding.MGF1(of), of.digest_size), of)
            case _:
                key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _methods(value: Any, did: str, where: str) -> Methods:  # noqa: ANN401 - JSON
    elsewhere = dict(_named_methods(value, "verificationMethod", did, where))
    methods: Methods = {}
    for fragment, key in _named_methods(value, "assertionMethod", did, where):
        meant = elsewhere.get(fragment) if key is None else key
        if meant is None:
            meant = Malformed(where, "refers to a method that the document does not hold")
        if fragment in methods and not _equal_or_malformed(methods[fragment], meant):
            meant = Malformed(where, f"holds two keys named {fragment[:80]!r}")
        methods[fragment] = meant
    return methods


def _named_methods(value: Any, name: str, did: str, where: str) -> Iterator[tuple[str, Key | Malformed | None]]:  # noqa: ANN401 - JSON
    """The methods of a list that have a name: each by its fragment, None for a reference to a method elsewhere."""
    listed = value.get(name, [])
    if not isinstance(listed, list) or len(listed) > METHODS_MAX:
        raise Malformed(f"{where}.{name}", f"must list at most {METHODS_MAX} methods")
    for item in listed:
        identifier = item.get("id") if isinstance(item, dict) else item
        if not isinstance(identifier, str) or identifier.rpartition("#")[0] not in {"", did} or "#" not in identifier:
            continue  # of another document, or without a name that a signature could use
        yield identifier.rpartition("#")[2], _key(item.get("publicKeyJwk"), where) if isinstance(item, dict) else None


def _key(jwk: object, where: str) -> Key | Malformed:
    if not isinstance(jwk, dict) or "d" in jwk or "k" in jwk:
        return Malformed(where, "holds a method without a public key as JWK")
    try:
        key = JWKRegistry.import_key({name: _without_padding(name, part) for name, part in jwk.items()}).get_op_key(
            "verify"
        )
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
        return Malformed(where, f"holds a JWK that is no public key: {type(error).__name__}")
    if not isinstance(key, ec.EllipticCurvePublicKey | Ed25519PublicKey | rsa.RSAPublicKey):
        return Malformed(where, "holds a key of a kind that signs no contract")
    return key


def _without_padding(name: str, part: Any) -> Any:  # noqa: ANN401 - JSON
    """A member of a JWK; without the padding of RFC 4648, section 4, if it has exactly that."""
    if name not in _PADDED or not isinstance(part, str) or len(part) % 4:
        return part
    return part[:-2] if part.endswith("==") else part.removesuffix("=")


def _equal_or_malformed(key: Key | Malformed, other: Key | Malformed) -> bool:
    return not isinstance(key, Malformed) and not isinstance(other, Malformed) and _same(key, other)


def _certifies(certificate: bytes, key: Key) -> bool:
    try:
        held = load_der_x509_certificate(certificate).public_key()
    except ValueError:
        return False
    return isinstance(held, ec.EllipticCurvePublicKey | Ed25519PublicKey | rsa.RSAPublicKey) and _same(held, key)


def _same(key_: Key, other: Key) -> bool:
    first, second = (key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) for key in (key_, other))
    return first == second
