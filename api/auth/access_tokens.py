"""Access tokens: JWTs of RFC 9068 (``at+jwt``) from issuers whose keys are pinned, and a clean room's own.

    {"alg":"Ed25519","typ":"at+jwt"} . {"aud":"epsilon.example/ledger","client_id":"did:web:bank-a.example",
     "exp":1795233900,"iat":1795233600,"iss":"https://login.example","jti":"...","sub":"did:web:bank-a.example"}

A machine's ``client_id`` is its organisation's DID. A person's token says ``organisation``, and may say ``roles``:
of those only AUDITOR and OPERATOR count, because the others are what the ledger has on record. A clean room signs a
token for itself with the key that its charge names: ``iss``, ``sub`` and ``client_id`` are that key's thumbprint.

An issuer's keys come with the settings (:mod:`api.auth.jwks_files`): ``kid`` and ``jku`` pick nothing, and no address
in a token is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, OKPKey, RSAKey
from joserfc.jwt import ClaimsOption

from api.auth.issuer_bounds import OWN_ROLES, UNBOUND, IssuerBounds
from client.http.jwt_claim_checks import JwtClaims
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

TOKEN_BYTES_MAX: Final = 8_192
LIFE_S_MAX: Final = 600
KEYS_MAX: Final = 32
JWKS_BYTES_MAX: Final = 1 << 16
VERIFIED_MAX: Final = 4_096
"""Tokens whose signatures are cached as verified; the cache is emptied when it is full."""
_TIMES: Final = ("exp", "iat", "nbf")
_HEADER: Final = (("alg", "typ"), ("jku", "kid"))
_ALGORITHMS: Final = {"OKP": "Ed25519", "RSA": "RS256", "EC": "ES256"}
_RSA_BITS_MIN: Final = 2048


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorisation server: the name that it writes into tokens, its public keys by algorithm, and its bounds."""

    name: str
    keys: tuple[tuple[str, Key], ...]
    bounds: IssuerBounds = UNBOUND

    @classmethod
    def parse(cls, name: str, jwks: bytes, bounds: IssuerBounds = UNBOUND) -> Issuer:
        """Read a JWK Set (RFC 7517, section 5) of at most 32 public keys. Raises: Malformed."""
        document = c.parse(jwks, JWKS_BYTES_MAX, "jwks")
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list) or not 1 <= len(listed) <= KEYS_MAX:
            raise Malformed("jwks.keys", f"must be a list of 1 to {KEYS_MAX} keys")
        return cls(name, tuple(_public(issuer, f"jwks.keys[{place}]") for place, issuer in enumerate(listed)), bounds)


def _public(value: object, where: str) -> tuple[str, Key]:
    kind = value.get("kty") if isinstance(value, dict) else None
    if not isinstance(value, dict) or kind not in _ALGORITHMS or "d" in value:
        raise Malformed(where, f"must be a public key of type {', '.join(_ALGORITHMS)}")
    try:
        imported = JWKRegistry.import_key(value)
    except (JoseError, ValueError, TypeError, KeyError):
        raise Malformed(where, "is not a key") from None
    curve = {"OKP": "Ed25519", "EC": "P-256"}.get(str(kind))
    if curve and value.get("crv") != curve:
        raise Malformed(f"{where}.crv", f"must be '{curve}'")
    if isinstance(imported, RSAKey) and imported.raw_value.key_size < _RSA_BITS_MIN:
        raise Malformed(f"{where}.n", f"must have at least {_RSA_BITS_MIN} bits")
    return _ALGORITHMS[str(kind)], imported


@dataclass(frozen=True, slots=True)
class Token:
    """What a verified token says.

    Attributes:
        organisation: the DID that the caller acts for; empty for a clean room.
        key_id: for a clean room, the thumbprint of the key that signed; else empty.
        roles: AUDITOR or OPERATOR, where the issuer says so.
    """

    subject: str
    organisation: str
    key_id: str
    roles: tuple[str, ...]


class _Verified(NamedTuple):
    """A token whose signature was verified: its time claims, when all of them were met, and its content."""

    times: c.Object
    since_s: int
    token: Token

    def is_met(self, now_s: int) -> bool:
        """Whether the claims are met for sure: they were before, and the token has not expired, on any clock."""
        ends = self.times["exp"]
        return isinstance(ends, int | float) and self.since_s <= now_s < ends


Verified = tuple[Iterable[Issuer], dict[bytes, _Verified]]
"""The issuers, and the tokens verified with their keys, by the token's digest."""


class TokenInvalid(Exception):  # noqa: N818 - what is the case
    """A bearer token that is refused; says why, and holds nothing of it."""


class Tokens:
    """Verifies tokens for one audience."""

    def __init__(
        self, issuers: Iterable[Issuer] | Callable[[], Iterable[Issuer]], audience: str, clock: Callable[[], int]
    ) -> None:
        """``issuers`` may be a function, called for each token; ``clock`` gives Unix milliseconds."""
        fixed = () if callable(issuers) else tuple(issuers)
        self._issuers = issuers if callable(issuers) else lambda: fixed
        self._verified: Verified = self._issuers(), {}
        required: ClaimsOption = {"essential": True}
        self._now_s: Callable[[], int] = lambda: clock() // 1000
        self._times = JwtClaims(self._now_s)
        self._claims = JwtClaims(
            self._now_s,
            life_s_max=LIFE_S_MAX,
            aud={"essential": True, "value": audience},
            exp=required,
            iat=required,
            iss=required,
            jti=required,
            sub=required,
        )

    def verify(self, text: str, clean_room: Callable[[str], str | None]) -> Token:
        """Verify a token and give what it says.

        Args:
            text: the compact JWS.
            clean_room: the public key (base64url ``x``, Ed25519) of a clean room by its thumbprint, if it has one.

        Raises:
            TokenInvalid: if it is not one, not signed by a pinned key, for another audience, or out of its time.
        """
        # An issuer's signature is verified once, its times at every request. A clean room's own token depends on the
        # key that the book has for it, so it is verified anew.
        digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
        issuers, cache = self._issuers(), self._verified
        if issuers is not cache[0]:
            # Tokens signed with a key that was removed are no longer accepted.
            cache = self._verified = issuers, {}
        verified, now_s = cache[1], self._now_s()
        try:
            if (known := verified.get(digest)) is not None:
                if not known.is_met(now_s):
                    self._times.check(known.times)
                return known.token
            algorithm, claims = _read(text)
            self._claims.check(claims)
            name = c.string(claims["iss"], "iss", 500)
            c.string(claims["jti"], "jti", 200)
            if (issuer := next((known for known in issuers if known.name == name), None)) is None:
                return _of_clean_room(text, algorithm, claims, name, clean_room(name))
            check_signature(text, algorithm, [key for word, key in issuer.keys if word == algorithm])
            token = _of_issuer(claims)
            issuer.bounds.check(token.organisation, token.roles)
        except Malformed as error:
            raise TokenInvalid(f"the access token is refused: {error}") from None
        if len(verified) >= VERIFIED_MAX:
            verified.clear()
        verified[digest] = _Verified({claim: claims[claim] for claim in _TIMES if claim in claims}, now_s, token)
        return token


def _read(text: str) -> tuple[str, c.Object]:
    if len(text) > TOKEN_BYTES_MAX or not text.isascii():
        raise Malformed("token", f"must be ASCII text of at most {TOKEN_BYTES_MAX} bytes")
    parts = text.split(".")
    if len(parts) != 3:
        raise Malformed("token", "must be a compact JWS: header, claims and signature between dots")
    header, payload, _ = (c.unbase64url(part, "token") for part in parts)
    members = c.fields(c.parse(header, TOKEN_BYTES_MAX, "header"), "header", *_HEADER)
    if members["typ"] not in {"at+jwt", "application/at+jwt"}:
        raise Malformed("header.typ", "must be 'at+jwt' (RFC 9068)")
    algorithm = c.one_of(members["alg"], "header.alg", tuple(_ALGORITHMS.values()))
    claims = c.parse(payload, TOKEN_BYTES_MAX, "claims")
    if not isinstance(claims, dict):
        raise Malformed("claims", "must be an object")
    return algorithm, claims


def check_signature(text: str, algorithm: str, keys: Iterable[Key]) -> None:
    """Raises: Malformed, unless a compact JWS verifies with one of the keys."""
    for key in keys:
        try:
            jws.deserialize_compact(text, key, algorithms=[algorithm])
        except (JoseError, InvalidSignature, ValueError):
            continue
        return
    raise Malformed("signature", "does not verify with a key of its issuer")


def _of_issuer(claims: c.Object) -> Token:
    subject, client = c.string(claims.get("sub"), "sub", 500), c.string(claims.get("client_id"), "client_id", 500)
    person = "organisation" in claims
    organisation = c.did(claims["organisation"] if person else client, "organisation" if person else "client_id")
    roles = c.strings(claims["roles"], "roles", 16) if "roles" in claims else ()
    return Token(subject, organisation, "", tuple(role for role in OWN_ROLES if role in roles))


def _of_clean_room(text: str, algorithm: str, claims: c.Object, name: str, x: str | None) -> Token:
    """A token that a clean room signed with its own key, named by its thumbprint; ``x`` is the key on record."""
    if x is None:
        raise Malformed("iss", "is no issuer that this service trusts, and no clean room's key")
    check_signature(text, algorithm, [OKPKey.import_key({"crv": "Ed25519", "kty": "OKP", "x": x})])
    if algorithm != "Ed25519" or {claims.get("sub"), claims.get("client_id")} != {name}:
        raise Malformed("sub", "must be the clean room's key, as iss and client_id")
    return Token(name, "", name, ())
