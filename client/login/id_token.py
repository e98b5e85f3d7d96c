"""ID tokens: the person who has logged in, signed by the issuer (OpenID Connect Core 1.0, section 3.1.3.7)."""

from __future__ import annotations

import hashlib
from typing import Any, Final, cast

from cryptography.exceptions import InvalidSignature
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from client.http.jwt_claim_checks import JwtClaims
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

SUBJECT_LENGTH_MAX: Final = 255
_HASHES: Final = {"Ed25519": hashlib.sha512, "ES256": hashlib.sha256, "PS256": hashlib.sha256, "RS256": hashlib.sha256}
"""The hash of ``at_hash`` by algorithm (section 3.1.3.6). Neither ``none`` nor a shared secret is an algorithm here."""


def subject_of(  # noqa: PLR0913 - what is compared with what
    text: str, keys: c.Object, *, issuer: str, client_id: str, nonce: str, access_token: str, now: int
) -> str:
    """Verify an ID token and return its ``sub``, the person's identifier.

    Args:
        text: the ID token, a compact JWS.
        keys: the issuer's JWK Set.
        issuer: the required ``iss``.
        client_id: the only audience that is accepted, and the ``azp`` where there is one.
        nonce: the one that this login sent.
        access_token: what came with it, which ``at_hash`` binds where it is present (section 3.1.3.8).
        now: Unix seconds.

    Raises:
        Malformed: naming the claim, or ``id_token`` where it is no token or not signed by the issuer.
    """
    try:
        # Unchecked keys raise errors of any of these kinds.
        token = jwt.decode(text, KeySet.import_key_set(cast("Any", keys)), algorithms=[*_HASHES])
    except (JoseError, InvalidSignature, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Malformed("id_token", f"is not signed by the issuer as it has to be ({type(error).__name__})") from None
    digest = _HASHES[token.header["alg"]](access_token.encode("ascii", "replace")).digest()
    required = JwtClaims(
        now,
        prefix="id_token.",
        at_hash={"value": c.base64url(digest[: len(digest) // 2])},
        aud={"essential": True, "value": client_id},
        azp={"value": client_id},
        exp={"essential": True},
        iat={"essential": True},
        iss={"essential": True, "value": issuer},
        nonce={"essential": True, "value": nonce},
        sub={"essential": True},
    )
    required.check(token.claims)
    return c.string(token.claims["sub"], "id_token.sub", SUBJECT_LENGTH_MAX)
