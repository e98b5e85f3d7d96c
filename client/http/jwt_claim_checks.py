"""Claims of JSON Web Tokens (RFC 7519, section 4.1), checked by joserfc's registry of claims.

The library checks presence, type, time and value; what it leaves open is closed here: a list of audiences or nonces
matches none of its members, because its other members could use the same token, and a token lives for minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from joserfc.errors import ClaimError, InvalidClaimError
from joserfc.jwt import ClaimsOption, JWTClaimsRegistry

from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed

SKEW_S: Final = 60
"""Seconds by which the clocks of two machines may differ."""


class JwtClaims(JWTClaimsRegistry):
    """What the claims of one kind of token must be."""

    def __init__(
        self, now: int | Callable[[], int], *, life_s_max: int | None = None, prefix: str = "", **options: ClaimsOption
    ) -> None:
        """Check against ``options``, by claim, at ``now`` in Unix seconds.

        Args:
            now: the time, or a clock.
            life_s_max: seconds from ``iat`` to ``exp`` at most; None for any.
            prefix: precedes the name of a claim in an error's field.
            options: as :class:`joserfc.jwt.JWTClaimsRegistry` takes them.
        """
        super().__init__(now, SKEW_S, **options)
        self._life_s_max, self._prefix = life_s_max, prefix

    def check(self, claims: Object) -> None:
        """Raises: Malformed, naming the first claim that is missing or wrong."""
        try:
            self.validate(claims)
            self._check_life(claims)
        except ClaimError as error:
            raise Malformed(f"{self._prefix}{error.claim}", error.description) from None

    def _check_life(self, claims: Object) -> None:
        """Hold ``exp`` to ``iat``. Raises: InvalidClaimError."""
        if self._life_s_max is None:
            return
        begins, ends = claims["iat"], claims["exp"]
        # Numbers, as validated; the comparison shows the type checker so.
        if not (
            isinstance(begins, int | float) and isinstance(ends, int | float) and 0 < ends - begins <= self._life_s_max
        ):
            raise InvalidClaimError("exp", f"must be after iat by at most {self._life_s_max} s")

    def check_value(self, claim_name: str, value: Any) -> None:  # noqa: ANN401 - any JSON
        """Compare one claim with its option; a list is no value. Raises: InvalidClaimError."""
        if isinstance(value, list):
            raise InvalidClaimError(claim_name)
        super().check_value(claim_name, value)

    def validate_aud(self, value: object) -> None:
        """Accept one audience alone, as a string or as the only member of a list. Raises: InvalidClaimError."""
        super().validate_aud(value[0] if isinstance(value, list) and len(value) == 1 else value)
