"""The attestation services that a policy trusts, with their pinned keys, and the claims that their tokens must make.

    "attestation":{"attesters":[
        {"issuer":"https://attester.example","key":{"crv":"Ed25519","kty":"OKP","x":"..."}},
        {"format":"azure","issuer":"https://sharedneu.neu.attest.azure.net",
         "keys":[{"e":"AQAB","kty":"RSA","n":"..."}]}],
      "claims":{"swname":"epsilon-trainer"},
      "release_policy":{"version":"1.0.0","anyOf":[...]}}

``claims`` are checked against EAT tokens, ``release_policy`` (:mod:`policy.documents.attestation_conditions`) against
every token. Each pins the software: without it, any program that a pinned attester vouches for would get the keys.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from joserfc.errors import JoseError
from joserfc.jwk import RSAKey
from msgspec import Meta, structs

from ledger.crypto.public_keys import PublicKey, check_key
from ledger.domain.command import REASON_MAX
from ledger.wire import canonical_json as c
from ledger.wire.field_types import distinct, register_type, rule, text, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record
from policy.documents.attestation_conditions import ReleasePolicy
from policy.documents.document import Time

ATTESTERS_MAX: Final = 16
KEYS_MAX: Final = 32
CLAIMS_MAX: Final = 32
RSA_BITS: Final = (2048, 8192)
FORMATS: Final = ("eat", "azure")
CLAIMS_ALWAYS_CHECKED: Final = ("iss", "iat", "exp", "eat_nonce", "dbgstat", "cnf", "charge", "plan", "pipeline")
SOFTWARE_CLAIMS: Final = frozenset(
    {
        "swname",
        *(
            f"{under}x-ms-sevsnpvm-{name}"
            for under in ("", "x-ms-isolation-tee.")
            for name in ("hostdata", "launchmeasurement")
        ),
    }
)
"""Claims that name the software of a clean room; a release policy must pin one of them for each authority."""


_Base64Url = Annotated[str, Meta(extra_json_schema={"pattern": r"^[A-Za-z0-9_-]+$"})]


class RsaPublicKey(Record, frozen=True, kw_only=True, tag_field="kty", tag="RSA"):
    """An RSA public key as a JWK (RFC 7518, section 6.3): base64url modulus and exponent.

    ``kid``, ``alg`` and ``use`` are accepted and ignored, since they select no key.
    """

    n: _Base64Url
    e: _Base64Url
    alg: Annotated[str, Meta(extra_json_schema={"const": "RS256"})] = "RS256"
    kid: Any = None
    use: Annotated[str, Meta(extra_json_schema={"const": "sig"})] = "sig"

    def __post_init__(self) -> None:
        """Check the key against its bounds. Raises: Malformed."""
        structs.force_setattr(self, "kid", None)
        if (self.alg, self.use) != ("RS256", "sig"):
            raise Malformed("", "must be an RSA key for RS256 signatures")
        n, e = (c.unbase64url(getattr(self, name), name) for name in ("n", "e"))
        bits, exponent = int.from_bytes(n).bit_length(), int.from_bytes(e)
        if not RSA_BITS[0] <= bits <= RSA_BITS[1]:
            raise Malformed("n", f"must have {RSA_BITS[0]} to {RSA_BITS[1]} bits, not {bits}")
        if exponent < 3 or exponent % 2 == 0 or exponent >= 2**32 or n[-1] % 2 == 0:
            raise Malformed("e", "must be an odd exponent from 3 to 2^32 under an odd modulus")
        try:
            self.imported()
        except (JoseError, ValueError):
            raise Malformed("", "is not an RSA public key") from None

    def imported(self) -> RSAKey:
        """The key in the form of the JOSE library. Raises: JoseError, ValueError."""
        return RSAKey.import_key({"e": self.e, "kty": "RSA", "n": self.n})


_RsaKey = Annotated[RsaPublicKey, rule("must be an RSA key for RS256 signatures")]


class Suspension(Record, frozen=True):
    """The time in which an attester's keys do not count: until a date, or until the next version without it."""

    starts: Time
    reason: Annotated[str, text(REASON_MAX)]
    until: Time | None = None

    def __post_init__(self) -> None:
        """Check the order of the dates. Raises: Malformed."""
        super().__post_init__()
        if self.until is not None and self.until <= self.starts:
            raise Malformed("until", "must lie after starts")

    def holds(self, now: int) -> bool:
        """Whether they do not count at a time (ms)."""
        return self.starts <= now and (self.until is None or now < self.until)


class Attester(Record, frozen=True):
    """An attestation service, pinned: the issuer it writes into tokens, their form, and the keys that sign them.

    These keys count from ``starts`` until ``until``; without them, as long as the policy does. A rotation lists the
    attester twice, with the old keys and with the new ones, and dates that overlap. While they are ``suspended``, they
    sign nothing that counts.
    """

    issuer: Annotated[str, text(500)]
    format: Annotated[str, words(*FORMATS)] = "eat"
    key: Annotated[PublicKey, rule("must be an OKP key on Ed25519")] | None = None
    keys: Annotated[tuple[_RsaKey, ...], distinct(KEYS_MAX)] | None = None
    starts: Time | None = None
    until: Time | None = None
    suspended: Suspension | None = None

    def __post_init__(self) -> None:
        """Check the keys against the form, and the order of the dates. Raises: Malformed."""
        super().__post_init__()
        if self.starts is not None and self.until is not None and self.until <= self.starts:
            raise Malformed("until", "must lie after starts")
        needed, other = ("key", "keys") if self.format == "eat" else ("keys", "key")
        if getattr(self, other) is not None:
            raise Malformed(other, "is not a known field")
        if getattr(self, needed) is None:
            raise Malformed(needed, "is missing")
        if self.key is not None:
            check_key(self.key, "Ed25519", "key")

    @property
    def pinned(self) -> tuple[PublicKey | RsaPublicKey, ...]:
        """The keys that may have signed its tokens."""
        return (self.key,) if self.key is not None else self.keys or ()

    def counts(self, now: int) -> bool:
        """Whether its keys count at a time (ms)."""
        if self.is_suspended(now):
            return False
        return (self.starts is None or self.starts <= now) and (self.until is None or now < self.until)

    def is_suspended(self, now: int) -> bool:
        """Whether its keys are suspended at a time (ms)."""
        return self.suspended is not None and self.suspended.holds(now)


_FORMS: Final = Meta(
    extra_json_schema={
        "oneOf": [
            {"not": {"required": ["keys"]}, "properties": {"format": {"const": "eat"}}, "required": ["key"]},
            {
                "not": {"required": ["key"]},
                "properties": {"format": {"const": "azure"}},
                "required": ["format", "keys"],
            },
        ]
    }
)


class Claims(tuple[tuple[str, str | int | bool], ...]):
    """The claims that a token must make, by name, beyond those that are always checked."""

    __slots__ = ()


class Attestation(Record, frozen=True):
    """The attesters that a policy trusts, and what a token must claim beyond what is always checked."""

    attesters: Annotated[tuple[Annotated[Attester, _FORMS], ...], distinct(ATTESTERS_MAX)]
    claims: Claims = Claims()
    release_policy: ReleasePolicy | None = None

    def __post_init__(self) -> None:
        """Refuse a policy that would accept some attester's tokens whatever software they name. Raises: Malformed."""
        super().__post_init__()
        for attester in self.attesters:
            if self.release_policy is None:
                if attester.format != "eat" or not self.claims:
                    missing = "claims" if attester.format == "eat" else "release_policy"
                    raise Malformed(missing, f"is missing: {attester.issuer[:80]} would vouch for any software")
                continue
            groups = self.release_policy.groups(attester.issuer)
            if not groups:
                raise Malformed("release_policy", f"names no authority {attester.issuer[:80]}")
            equal = [{part.claim for part in group.required() if part.operator == "equals"} for group in groups]
            pinned = not any(SOFTWARE_CLAIMS.isdisjoint(claims) for claims in equal)
            if not pinned and not (attester.format == "eat" and self.claims):
                software = ", ".join(sorted(SOFTWARE_CLAIMS))
                detail = f"must pin what runs for {attester.issuer[:80]}: one of {software}, by equals, in an allOf"
                raise Malformed("release_policy", detail)


def _claims(value: object) -> Claims:
    if not isinstance(value, dict) or not 1 <= len(value) <= CLAIMS_MAX:
        raise Malformed("", f"must be an object of 1 to {CLAIMS_MAX} claims")
    for name, expected in value.items():
        c.string(name, "", 100)
        if name in CLAIMS_ALWAYS_CHECKED:
            raise Malformed(name, "is always checked, and cannot be set here")
        if isinstance(expected, str):
            c.string(expected, name[:80])
        elif not isinstance(expected, int):
            raise Malformed(name[:80], "must be a string, an integer, true or false")
    # Without it a policy would accept any software that a pinned attester vouches for.
    if "swname" not in value:
        raise Malformed("swname", "is missing: a policy says which software may run")
    return Claims(sorted(value.items()))


register_type(
    Claims,
    _claims,
    None,
    {
        "additionalProperties": {"maxLength": 1000, "minLength": 1, "type": ["string", "integer", "boolean"]},
        "maxProperties": CLAIMS_MAX,
        "minProperties": 1,
        "propertyNames": {"maxLength": 100, "minLength": 1, "not": {"enum": [*CLAIMS_ALWAYS_CHECKED]}},
        "required": ["swname"],
        "type": "object",
    },
)
