"""Attestation of a clean room: an EAT (RFC 9711) as a JWT, signed by an attester the policy pins.

    {"alg":"Ed25519","typ":"eat+jwt"} . {"iss":"...","iat":1767225600,"exp":1767226200,"eat_nonce":"...",
     "dbgstat":"disabled-since-boot","swname":"...","charge":"run-1","plan":"<sha256>",
     "cnf":{"signing":{JWK},"sealing":{JWK}}} . signature

Only pinned keys verify a token: a header may carry ``kid``, which picks nothing, but no key and no address of
one. ``cnf`` (RFC 7800) holds two named keys, ours, because a clean room has one for each use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from ledger import canonical as c
from ledger.gate import Check
from ledger.malformed import Malformed
from ledger.public_key import PublicKey
from policy.documents import Attestation
from policy.findings import Findings, shown
from policy.reading import format_time

TOKEN_BYTES_MAX: Final = 16_384
SKEW_MS: Final = 60_000
LIFE_S_MAX: Final = 600
TIME_S_MAX: Final = 253_402_300_799
NOT_DEBUGGABLE: Final = "disabled-since-boot"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token must be bound to: the challenge, the charge and its plan, the clean room's two keys."""

    nonce: str
    charge: str
    plan: str
    signing: str
    sealing: str


def verify(token: bytes | None, attestation: Attestation, expected: Expected, now: int, source: str) -> list[Check]:
    """Every check of one token under one policy. Never raises on any token."""
    findings = Findings()
    try:
        text, claims = _read(token)
    except Malformed as fault:
        findings.failed("attestation_malformed", str(fault), source)
        return findings.checks
    findings.passed("attestation_malformed", "is an EAT signed with Ed25519", source)
    _signature(findings, text, claims, attestation, source)
    _times(findings, claims, now, source)
    for code, name, wanted in (
        ("attestation_nonce", "eat_nonce", expected.nonce),
        ("attestation_debuggable", "dbgstat", NOT_DEBUGGABLE),
        ("attestation_charge", "charge", expected.charge),
        ("attestation_plan", "plan", expected.plan),
    ):
        findings.equal(code, name, claims.get(name), wanted, source)
    _keys(findings, claims.get("cnf"), expected, source)
    for name, pinned in attestation.claims:
        findings.equal("attestation_claim", name, claims.get(name), pinned, source)
    return findings.checks


def _read(token: bytes | None) -> tuple[str, c.Object]:
    if token is None:
        raise Malformed("evidence", "is not stored")
    if len(token) > TOKEN_BYTES_MAX or not token.isascii():
        raise Malformed("evidence", f"must be ASCII text of at most {TOKEN_BYTES_MAX} bytes")
    text = token.decode("ascii")
    parts = text.split(".")
    if len(parts) != 3:
        raise Malformed("evidence", "must be a compact JWS: header, claims and signature between dots")
    header, payload, _ = (c.unbase64url(part, "evidence") for part in parts)
    known = c.fields(c.parse(header, TOKEN_BYTES_MAX, "header"), "header", ("alg", "typ"), optional=("kid",))
    if known["alg"] != "Ed25519" or known["typ"] != "eat+jwt":
        raise Malformed("header", "must say alg 'Ed25519' and typ 'eat+jwt'")
    claims = c.parse(payload, TOKEN_BYTES_MAX, "claims")
    if not isinstance(claims, dict):
        raise Malformed("claims", "must be an object")
    return text, claims


def _signature(findings: Findings, text: str, claims: c.Object, attestation: Attestation, source: str) -> None:
    issuer = claims.get("iss")
    pinned = [one.key for one in attestation.attesters if one.issuer == issuer]
    findings.says("attestation_issuer", bool(pinned), f"iss {shown(issuer)}", "a pinned attester", source)
    signed = any(_signed_by(text, key) for key in pinned)
    verifies = f"signature {'verifies' if signed else 'does not verify'} with {len(pinned)} pinned key(s)"
    findings.that("attestation_signature", signed, verifies, source)


def _signed_by(text: str, key: PublicKey) -> bool:
    try:
        jws.deserialize_compact(
            text, OKPKey.import_key({"crv": key.curve, "kty": "OKP", "x": key.x}), algorithms=["Ed25519"]
        )
    except (JoseError, InvalidSignature, ValueError):
        return False
    return True


def _times(findings: Findings, claims: c.Object, now: int, source: str) -> None:
    try:
        issued = c.integer(claims.get("iat"), "iat", 0, TIME_S_MAX)
        expires = c.integer(claims.get("exp"), "exp", 0, TIME_S_MAX)
    except Malformed as fault:
        findings.failed("attestation_times", str(fault), source)
        return
    findings.passed("attestation_times", f"iat {issued}, exp {expires}", source)
    early, late = issued * 1000 - SKEW_MS, expires * 1000 + SKEW_MS
    told = f"now {format_time(now)}, issued {format_time(issued * 1000)}, skew {SKEW_MS} ms"
    findings.that("attestation_future", early <= now, told, source)
    told = f"now {format_time(now)}, expires {format_time(expires * 1000)}, skew {SKEW_MS} ms"
    findings.that("attestation_expired", now < late, told, source)
    life = expires - issued
    told = f"exp - iat: {life} s, more than 0 and at most {LIFE_S_MAX} s"
    findings.that("attestation_life", 0 < life <= LIFE_S_MAX, told, source)


def _keys(findings: Findings, cnf: c.Json, expected: Expected, source: str) -> None:
    try:
        known = c.fields(cnf, "cnf", ("sealing", "signing"))
        signing = PublicKey.parse(known["signing"], "cnf.signing", "Ed25519")
        sealing = PublicKey.parse(known["sealing"], "cnf.sealing", "X25519")
    except Malformed as fault:
        findings.failed("attestation_keys", str(fault), source)
        return
    findings.passed("attestation_keys", "cnf holds a signing and a sealing key", source)
    findings.equal("attestation_signing_key", "cnf.signing", signing.thumbprint, expected.signing, source)
    findings.equal("attestation_sealing_key", "cnf.sealing", sealing.x, expected.sealing, source)
