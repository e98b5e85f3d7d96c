"""Signatures over exact bytes: detached JWS (RFC 7515, appendix F; RFC 7797, ``b64`` false).

    eyJhbGciOiJFZDI1NTE5IiwiYjY0IjpmYWxzZSwiY3JpdCI6WyJiNjQiXSwia2lkIjoi...In0..yN2x...

The protected header is ``{"alg":"Ed25519","b64":false,"crit":["b64"],"kid":<thumbprint>}`` and nothing else; or, of a
signature made for one request, that and the whole of the request's name:

    "htm":"POST","htu":"https://ledger.example/v1/charges","iat":1795233600,"jti":"run-1"

``htm``, ``htu`` and ``iat`` are DPoP's (RFC 9449, section 4.2): method, URL without query, Unix seconds. ``jti`` is
the command's id, or the digest of a document. They are outside ``crit``, so that verifiers of plain detached
JWS verify these too. The algorithm is the key's own (RFC 9864; ES256 and RS256 for organisations that have such keys),
so that no header picks one, and a key is only ever looked up by its thumbprint, never fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.crypto import ed25519
from ledger.crypto.organisation_keys import SignerKey
from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.field_types import KeyBytes, Name, between, text, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, canonical_reader, convert

SIGNATURE_BYTES_MAX: Final = 2_000
"""Room for RSA of 4,096 bits, 683 characters, and the longest URL and id."""
URL_LENGTH_MAX: Final = 500
ALGORITHMS: Final = ("Ed25519", "ES256", "RS256")
_PLAIN: Final = ("alg", "b64", "crit", "kid")
_CALL: Final = ("htm", "htu", "iat", "jti")
_TIME_S_MAX: Final = 253_402_300_799


class Call(Record, frozen=True):
    """The one request that a signature was made for.

    Attributes:
        method: of HTTP, in capitals.
        url: scheme, authority and path; no query, no fragment.
        time_s: when it was signed, in Unix seconds.
        id: the command's id, or the SHA-256 of a document.
    """

    method: Annotated[str, words("POST", "PUT")] = msgspec.field(name="htm")
    url: Annotated[str, text(URL_LENGTH_MAX)] = msgspec.field(name="htu")
    time_s: Annotated[int, between(0, _TIME_S_MAX)] = msgspec.field(name="iat")
    id: Name = msgspec.field(name="jti")


@dataclass(frozen=True, slots=True)
class _Header:
    algorithm: str
    key_id: str
    call: Call | None


class _CallHeader(Call, frozen=True):
    """A whole header that names a request, as clients write it: in RFC 8785 form."""

    alg: Literal["Ed25519", "ES256", "RS256"]
    b64: bool
    crit: tuple[Literal["b64"]]
    kid: KeyBytes


_read_call_header: Final = canonical_reader(_CallHeader)


def public_key(private: Ed25519PrivateKey) -> PublicKey:
    """The public half as a JWK."""
    return PublicKey("Ed25519", c.base64url(private.public_key().public_bytes_raw()))


def sign(private: Ed25519PrivateKey, payload: bytes, call: Call | None = None) -> str:
    """A detached JWS over ``payload``, for one request if ``call`` is given; ``kid`` is the key's thumbprint."""
    key_id = public_key(private).thumbprint
    protected = _protected_header(key_id, call)
    return f"{protected}..{c.base64url(private.sign(_signing_input(protected, payload)))}"


def key_id_of(signature: str) -> str:
    """The thumbprint that a detached JWS names. Raises: Malformed, for any header but those above."""
    return _header(signature).key_id


def call_of(signature: str) -> Call | None:
    """The request that a detached JWS says it is for, believed once it verifies. Raises: Malformed."""
    return _header(signature).call


@lru_cache(maxsize=1_024)
def _header(signature: str) -> _Header:
    where = "signature.header"
    parts = signature.split(".") if len(signature) <= SIGNATURE_BYTES_MAX else []
    if len(parts) != 3 or parts[1]:
        raise Malformed("signature", "must be a detached JWS: header, two dots, signature")
    data = c.unbase64url(parts[0], where)
    found = _read_call_header(data)
    if found is not None and not found.b64:
        return _Header(found.alg, found.kid, Call.project(found))
    # Any other form is read member by member, which takes three times as long, to accept it or to report its error.
    known = c.parse(data, SIGNATURE_BYTES_MAX, where)
    header = c.fields(known, where, _PLAIN, _CALL)
    if header["alg"] not in ALGORITHMS or header["b64"] is not False or header["crit"] != ["b64"]:
        raise Malformed(where, 'must be {"alg":"Ed25519","b64":false,"crit":["b64"],"kid":...}')
    key_id = c.key_bytes(header["kid"], f"{where}.kid")
    members = {name: value for name, value in header.items() if name not in _PLAIN}
    # It names no part of a request, or all of it.
    return _Header(str(header["alg"]), key_id, convert(Call, members, where) if members else None)


def verify(signature: str, payload: bytes, key: SignerKey) -> Call | None:
    """Check a detached JWS over exactly these bytes; the request it is for, if for any. Raises: Malformed."""
    protected, call = _matching_header(signature, key)
    value = c.unbase64url(signature[len(protected) + 2 :], "signature")
    if not _verifies(key, value, _signing_input(protected, payload)):
        raise Malformed("signature", "does not verify over these bytes")
    return call


def ed25519_check(signature: str, payload: bytes, key: PublicKey) -> tuple[Call | None, ed25519.Check]:
    """The check of :func:`verify` for an Ed25519 key as plain values, for another process. Raises: Malformed."""
    protected, call = _matching_header(signature, key)
    value = c.unbase64url(signature[len(protected) + 2 :], "signature")
    return call, (_key_bytes(key.x), value, _signing_input(protected, payload))


def _matching_header(signature: str, key: SignerKey) -> tuple[str, Call | None]:
    """The protected header of a signature that may be by a key, and the request that it is for. Raises: Malformed."""
    protected = _plain_header(key.thumbprint)
    # An Ed25519 key has one plain header; any other header is parsed, to accept it or to report its error.
    if isinstance(key, PublicKey) and signature.startswith(f"{protected}..") and len(signature) <= SIGNATURE_BYTES_MAX:
        return protected, None
    header = _header(signature)
    if header.key_id != key.thumbprint:
        raise Malformed("signature", "was made with another key")
    own = "Ed25519" if isinstance(key, PublicKey) else key.algorithm
    if header.algorithm != own:
        raise Malformed("signature.header.alg", f"must be {own}, the algorithm of this key")
    return signature.split(".", maxsplit=1)[0], header.call


@lru_cache(maxsize=4_096)
def _key_bytes(x: str) -> bytes:
    return c.unbase64url(x, "key.x")


def _verifies(key: SignerKey, signature: bytes, message: bytes) -> bool:
    if not isinstance(key, PublicKey):
        return key.verifies(signature, message)
    return ed25519.verifies(_key_bytes(key.x), signature, message)


@lru_cache(maxsize=4_096)
def _plain_header(key_id: str) -> str:
    return _protected_header(key_id)


def _protected_header(key_id: str, call: Call | None = None) -> str:
    """The protected header for a key, in RFC 8785 form."""
    if call is None:
        # Each clean room has a key of its own, so this is made for each run; a thumbprint is base64url.
        return c.base64url(b'{"alg":"Ed25519","b64":false,"crit":["b64"],"kid":"%b"}' % key_id.encode("ascii"))
    header: c.Object = {"alg": "Ed25519", "b64": False, "crit": ["b64"], "kid": key_id, **call.to_json()}
    return c.base64url(c.dump(header))


def _signing_input(protected: str, payload: bytes) -> bytes:
    # RFC 7797, section 3. Written out, because the JWS library takes payloads that are text for attached ones.
    return protected.encode("ascii") + b"." + payload
