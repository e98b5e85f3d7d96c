"""The attestation services that a policy trusts, with their pinned keys, and the claims that their tokens must make.

    "attestation":{"attesters":[
        {"issuer":"https://attester.example","key":{"crv":"Ed25519","kty":"OKP","x":"..."}},
        {"format":"azure","issuer":"https://sharedneu.neu.attest.azure.net",
         "keys":[{"e":"AQAB","kty":"RSA","n":"..."}]}],
      "claims":{"swname":"epsilon-trainer"},
      "release_policy":{"version":"1.0.0","anyOf":[...]}}

``claims`` are held against EAT tokens, ``release_policy`` (:mod:`policy.documents.release_policy`) against every token.
Each pins the software: without, any program that a pinned attester vouches for would get the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.documents import field_shapes as s
from policy.documents.release_policy import VERSIONS, Condition, ReleasePolicy

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
"""What names the software of a clean room; a release policy must pin one of them for each authority."""


@dataclass(frozen=True, slots=True)
class RsaPublicKey:
    """An RSA public key as a JWK (RFC 7518, section 6.3): base64url modulus and exponent."""

    n: str
    e: str

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read ``{"e","kty","n"}`` with at most a ``kid``, ``alg`` and ``use`` beside. Raises: Malformed."""
        known = c.fields(value, where, ("e", "kty", "n"), ("alg", "kid", "use"))
        n, e = (c.unbase64url(known[name], f"{where}.{name}") for name in ("n", "e"))
        bits, exponent = int.from_bytes(n).bit_length(), int.from_bytes(e)
        if known["kty"] != "RSA" or known.get("alg", "RS256") != "RS256" or known.get("use", "sig") != "sig":
            raise Malformed(where, "must be an RSA key for RS256 signatures")
        if not RSA_BITS[0] <= bits <= RSA_BITS[1]:
            raise Malformed(f"{where}.n", f"must have {RSA_BITS[0]} to {RSA_BITS[1]} bits, not {bits}")
        if exponent < 3 or exponent % 2 == 0 or exponent >= 2**32 or n[-1] % 2 == 0:
            raise Malformed(f"{where}.e", "must be an odd exponent from 3 to 2^32 under an odd modulus")
        return cls(str(known["n"]), str(known["e"]))

    def imported(self) -> RSAKey:
        """The key as the JOSE library takes it. Raises: JoseError, ValueError."""
        return RSAKey.import_key({"e": self.e, "kty": "RSA", "n": self.n})


@dataclass(frozen=True, slots=True)
class Attester:
    """An attestation service, pinned: the issuer it writes into tokens, their form, and the keys that sign them."""

    issuer: str
    format: str
    keys: tuple[PublicKey | RsaPublicKey, ...]

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read ``{"issuer","key"}``, or ``{"format":"azure","issuer","keys"}``. Raises: Malformed."""
        form = c.one_of(value.get("format", "eat") if isinstance(value, dict) else "eat", f"{where}.format", FORMATS)
        if form == "eat":
            known = c.fields(value, where, ("issuer", "key"), ("format",))
            keys: tuple[PublicKey | RsaPublicKey, ...] = (PublicKey.parse(known["key"], f"{where}.key", "Ed25519"),)
        else:
            known = c.fields(value, where, ("issuer", "keys"), ("format",))
            keys = _rsa_keys(known["keys"], f"{where}.keys")
        return cls(c.string(known["issuer"], f"{where}.issuer", 500), form, keys)


def _rsa_keys(value: object, where: str) -> tuple[RsaPublicKey, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= KEYS_MAX:
        raise Malformed(where, f"must be a list of 1 to {KEYS_MAX} keys")
    keys = tuple(RsaPublicKey.parse(one, f"{where}[{place}]") for place, one in enumerate(value))
    for place, key in enumerate(keys):
        try:
            key.imported()
        except (JoseError, ValueError):
            raise Malformed(f"{where}[{place}]", "is not an RSA public key") from None
    if len(set(keys)) != len(keys):
        raise Malformed(where, "names a key twice")
    return keys


@dataclass(frozen=True, slots=True)
class Attestation:
    """Whom a policy believes about clean rooms, and what a token must claim beyond what is always checked."""

    attesters: tuple[Attester, ...]
    claims: tuple[tuple[str, str | int | bool], ...]
    release_policy: ReleasePolicy | None

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read ``{"attesters","claims","release_policy"}``, of the last two one or both. Raises: Malformed."""
        known = c.fields(value, where, ("attesters",), ("claims", "release_policy"))
        listed = known["attesters"]
        if not isinstance(listed, list) or not 1 <= len(listed) <= ATTESTERS_MAX:
            raise Malformed(f"{where}.attesters", f"must be a list of 1 to {ATTESTERS_MAX} attesters")
        attesters = tuple(Attester.parse(one, f"{where}.attesters[{place}]") for place, one in enumerate(listed))
        if len(set(attesters)) != len(attesters):
            raise Malformed(f"{where}.attesters", "names an attester twice")
        claims = _claims(known["claims"], f"{where}.claims") if "claims" in known else ()
        stated = known.get("release_policy")
        policy = ReleasePolicy.parse(stated, f"{where}.release_policy") if "release_policy" in known else None
        _check_pinned(attesters, claims, policy, where)
        return cls(attesters, claims, policy)


def _claims(value: object, where: str) -> tuple[tuple[str, str | int | bool], ...]:
    if not isinstance(value, dict) or not 1 <= len(value) <= CLAIMS_MAX:
        raise Malformed(where, f"must be an object of 1 to {CLAIMS_MAX} claims")
    for name, expected in value.items():
        c.string(name, where, 100)
        if name in CLAIMS_ALWAYS_CHECKED:
            raise Malformed(f"{where}.{name}", "is always checked, and cannot be set here")
        if isinstance(expected, str):
            c.string(expected, f"{where}.{name[:80]}")
        elif not isinstance(expected, int):
            raise Malformed(f"{where}.{name[:80]}", "must be a string, an integer, true or false")
    # Without it a policy would accept any software that a pinned attester vouches for.
    if "swname" not in value:
        raise Malformed(f"{where}.swname", "is missing: a policy says which software may run")
    return tuple(sorted(value.items()))


def _check_pinned(
    attesters: tuple[Attester, ...],
    claims: tuple[tuple[str, str | int | bool], ...],
    policy: ReleasePolicy | None,
    where: str,
) -> None:
    """Raises: Malformed, if some attester's tokens would be taken whatever software they name."""
    for one in attesters:
        if policy is None:
            if one.format != "eat" or not claims:
                missing = "claims" if one.format == "eat" else "release_policy"
                raise Malformed(f"{where}.{missing}", f"is missing: {one.issuer[:80]} would vouch for any software")
            continue
        groups = policy.groups(one.issuer)
        if not groups:
            raise Malformed(f"{where}.release_policy", f"names no authority {one.issuer[:80]}")
        pinned = all(any(_pins_software(condition) for condition in group.required()) for group in groups)
        if not pinned and not (one.format == "eat" and claims):
            named = ", ".join(sorted(SOFTWARE_CLAIMS))
            detail = f"must pin what runs for {one.issuer[:80]}: one of {named}, by equals, in an allOf"
            raise Malformed(f"{where}.release_policy", detail)


def _pins_software(condition: Condition) -> bool:
    return condition.operator == "equals" and condition.claim in SOFTWARE_CLAIMS


def pinned_keys(attestation: Attestation, form: str, issuer: object) -> Iterator[PublicKey | RsaPublicKey]:
    """The keys that may have signed a token of this form and issuer."""
    for one in attestation.attesters:
        if one.format == form and one.issuer == issuer:
            yield from one.keys


_ISSUER: Final = {"maxLength": 500, "minLength": 1, "type": "string"}
_BASE64URL: Final = {"pattern": r"^[A-Za-z0-9_-]+$", "type": "string"}
_RSA: Final = {
    "additionalProperties": False,
    "properties": {
        "alg": {"const": "RS256"},
        "e": _BASE64URL,
        "kid": {},
        "kty": {"const": "RSA"},
        "n": _BASE64URL,
        "use": {"const": "sig"},
    },
    "required": ["e", "kty", "n"],
    "type": "object",
}
_EAT: Final = {
    "additionalProperties": False,
    "properties": {"format": {"const": "eat"}, "issuer": _ISSUER, "key": s.ED25519.schema},
    "required": ["issuer", "key"],
    "type": "object",
}
_AZURE: Final = {
    "additionalProperties": False,
    "properties": {
        "format": {"const": "azure"},
        "issuer": _ISSUER,
        "keys": {"items": _RSA, "maxItems": KEYS_MAX, "minItems": 1, "type": "array", "uniqueItems": True},
    },
    "required": ["format", "issuer", "keys"],
    "type": "object",
}
_CLAIMS: Final = {
    "additionalProperties": {"maxLength": 1000, "minLength": 1, "type": ["string", "integer", "boolean"]},
    "maxProperties": CLAIMS_MAX,
    "minProperties": 1,
    "propertyNames": {"maxLength": 100, "minLength": 1, "not": {"enum": list(CLAIMS_ALWAYS_CHECKED)}},
    "required": ["swname"],
    "type": "object",
}
_RELEASE_POLICY: Final = {
    "properties": {"anyOf": {"minItems": 1, "type": "array"}, "version": {"enum": list(VERSIONS)}},
    "required": ["anyOf", "version"],
    "type": "object",
}
ATTESTATION: Final = s.Shape(
    Attestation.parse,
    {
        "additionalProperties": False,
        "properties": {
            "attesters": {
                "items": {"anyOf": [_EAT, _AZURE]},
                "maxItems": ATTESTERS_MAX,
                "minItems": 1,
                "type": "array",
                "uniqueItems": True,
            },
            "claims": _CLAIMS,
            "release_policy": _RELEASE_POLICY,
        },
        "required": ["attesters"],
        "type": "object",
    },
)
