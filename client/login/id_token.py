"""ID tokens: who has logged in, by the issuer's signed word (OpenID Connect Core 1.0, section 3.1.3.7)."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final, cast

from cryptography.exceptions import InvalidSignature
from joserfc import jwt
from joserfc.errors import ClaimError, JoseError
from joserfc.jwk import KeySet

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

SKEW_S: Final = 60
SUBJECT_LENGTH_MAX: Final = 255
_HASHES: Final = {"Ed25519": hashlib.sha512, "ES256": hashlib.sha256, "PS256": hashlib.sha256, "RS256": hashlib.sha256}
"""By algorithm, that of ``at_hash`` (section 3.1.3.6). There is no ``none``, and none with a shared secret."""


def subject_of(  # noqa: PLR0913 - what is held against what
    text: str, keys: c.Object, *, issuer: str, client_id: str, nonce: str, access_token: str, now: int
) -> str:
    """Who has logged in: the ``sub`` of an ID token that is believed.

    Args:
        text: the ID token, a compact JWS.
        keys: the issuer's JWK Set.
        issuer: who has to have made it.
        client_id: whom it has to be for, and for nobody else.
        nonce: what this login asked with.
        access_token: what came with it, which ``at_hash`` binds where it is told.
        now: Unix seconds.

    Raises:
        Malformed: naming the claim, or ``id_token`` where it is no token or not signed by the issuer.
    """
    try:
        # Keys that nobody has checked make faults of any kind.
        known = jwt.decode(text, KeySet.import_key_set(cast("Any", keys)), algorithms=[*_HASHES])
    except (JoseError, InvalidSignature, ValueError, TypeError, KeyError, AttributeError) as fault:
        raise Malformed("id_token", f"is not signed by the issuer as it has to be ({type(fault).__name__})") from None
    claims = known.claims
    registry = jwt.JWTClaimsRegistry(
        now,
        SKEW_S,
        aud={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
        iss={"essential": True, "value": issuer},
        nonce={"essential": True, "value": nonce},
        sub={"essential": True},
    )
    try:
        registry.validate(claims)
    except ClaimError as fault:
        raise Malformed(f"id_token.{fault.claim}", fault.description) from None
    _check_audience(claims, client_id)
    _check_bound(claims, access_token, _HASHES[known.header["alg"]])
    # A list that holds the nonce has passed as the nonce.
    if claims["nonce"] != nonce:
        raise Malformed("id_token.nonce", "is not the one of this login")
    return c.string(claims["sub"], "id_token.sub", SUBJECT_LENGTH_MAX)


def _check_audience(claims: dict[str, Any], client_id: str) -> None:
    """Items 3 to 5: no other audience is trusted."""
    if claims["aud"] not in (client_id, [client_id]):
        raise Malformed("id_token.aud", f"is not {client_id} alone")
    if claims.get("azp", client_id) != client_id:
        raise Malformed("id_token.azp", f"is not {client_id}")


def _check_bound(claims: dict[str, Any], access_token: str, make: Any) -> None:  # noqa: ANN401 - hashlib's constructors
    """``at_hash``, where it is there (section 3.1.3.8): the left half of the access token's digest."""
    if "at_hash" not in claims:
        return
    made = make(access_token.encode("ascii", "replace")).digest()
    half = c.base64url(made[: len(made) // 2])
    if not isinstance(claims["at_hash"], str) or not hmac.compare_digest(half.encode(), claims["at_hash"].encode()):
        raise Malformed("id_token.at_hash", "is not the access token's")
