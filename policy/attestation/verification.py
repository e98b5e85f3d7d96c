"""The checks of one attestation token under one policy. See :mod:`policy.attestation.token` for a token's claims.

A token is bound to the challenge, the charge and its plan, and to the clean room's two keys; its signature verifies
with a key that the policy pins for its issuer; no debugger can attach; it meets every condition of the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from ledger.crypto.public_keys import PublicKey
from ledger.domain.gate import Check
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.attestation.token import VMPL, Evidence
from policy.checks.field_readers import format_time
from policy.checks.findings import Findings, shown
from policy.documents.trusted_attesters import Attestation, RsaPublicKey

SKEW_MS: Final = 60_000
LIFE_S_MAX: Final = {"eat": 600, "azure": 28_800}
"""A token of Azure's lives eight hours; what makes it fresh is the challenge in it, not its age."""
TIME_S_MAX: Final = 253_402_300_799
VMPL_CHECK: Final = "attestation_vmpl"
VMPL_SINCE_MS: Final = 1_795_478_400_000
"""2026-11-24 (UTC): earlier entries may be of a program that did not require VMPL 0. Today's program always does;
replay accepts earlier entries without it."""
TYPE_WANTED: Final = "sevsnpvm"


@dataclass(frozen=True, slots=True)
class Expected:
    """The values that a token must be bound to: the challenge, the charge and its plan, the clean room's two keys.

    Attributes:
        pipeline: the digest of what is to run; None if the charge names none, and then the token must name none.
    """

    nonce: str
    charge: str
    plan: str
    signing: str
    sealing: str
    pipeline: str | None = None


def verify(token: bytes | None, attestation: Attestation, expected: Expected, now: int, source: str) -> list[Check]:
    """Every check of one token under one policy. Never raises on any token."""
    findings = Findings()
    try:
        evidence = Evidence.parse(token)
    except Malformed as error:
        findings.failed("attestation_malformed", str(error), source)
        return findings.checks
    findings.passed("attestation_malformed", f"is a token of the form {evidence.form}", source)
    _signature(findings, evidence, attestation, now, source)
    _times(findings, evidence, now, source)
    findings.equal("attestation_nonce", "nonce", evidence.bound.get("nonce"), expected.nonce, source)
    findings.check("attestation_debuggable", not evidence.debuggable, "the clean room", "closed to debuggers", source)
    for name, expected_value in (("charge", expected.charge), ("plan", expected.plan)):
        findings.equal(f"attestation_{name}", name, evidence.bound.get(name), expected_value, source)
    pipeline = evidence.bound.get("pipeline")
    if pipeline is not None or expected.pipeline is not None:
        findings.equal("attestation_pipeline", "pipeline", pipeline, expected.pipeline, source)
    _keys(findings, evidence.bound.get("cnf"), expected, source)
    _claims(findings, evidence, attestation, source)
    return findings.checks


def _signature(findings: Findings, evidence: Evidence, attestation: Attestation, now: int, source: str) -> None:
    issuer = evidence.claims.get("iss")
    attesters = [
        attester for attester in attestation.attesters if (attester.format, attester.issuer) == (evidence.form, issuer)
    ]
    pinned = [key for attester in attesters if attester.counts(now) for key in attester.pinned]
    expectation = "a pinned attester"
    if any(attester.is_suspended(now) for attester in attesters):
        expectation = f"{expectation} that is not suspended"
    findings.check("attestation_issuer", bool(pinned), f"iss {shown(issuer)}", expectation, source)
    signed = any(_signed_by(evidence.text, key) for key in pinned)
    verifies = f"signature {'verifies' if signed else 'does not verify'} with {len(pinned)} pinned key(s)"
    findings.add("attestation_signature", signed, verifies, source)


def _signed_by(text: str, key: PublicKey | RsaPublicKey) -> bool:
    try:
        if isinstance(key, RsaPublicKey):
            jws.deserialize_compact(text, key.imported(), algorithms=["RS256"])
        else:
            imported = OKPKey.import_key({"crv": key.curve, "kty": "OKP", "x": key.x})
            jws.deserialize_compact(text, imported, algorithms=["Ed25519"])
    except (JoseError, InvalidSignature, ValueError):
        return False
    return True


def _times(findings: Findings, evidence: Evidence, now: int, source: str) -> None:
    claims = evidence.claims
    try:
        issued = c.integer(claims.get("iat"), "iat", 0, TIME_S_MAX)
        expires = c.integer(claims.get("exp"), "exp", 0, TIME_S_MAX)
        begins = c.integer(claims.get("nbf", issued), "nbf", 0, TIME_S_MAX)
    except Malformed as error:
        findings.failed("attestation_times", str(error), source)
        return
    findings.passed("attestation_times", f"iat {issued}, nbf {begins}, exp {expires}", source)
    early, late = max(issued, begins) * 1000 - SKEW_MS, expires * 1000 + SKEW_MS
    text = f"now {format_time(now)}, valid from {format_time(max(issued, begins) * 1000)}, skew {SKEW_MS} ms"
    findings.add("attestation_future", early <= now, text, source)
    text = f"now {format_time(now)}, expires {format_time(expires * 1000)}, skew {SKEW_MS} ms"
    findings.add("attestation_expired", now < late, text, source)
    life, most = expires - issued, LIFE_S_MAX[evidence.form]
    text = f"exp - iat: {life} s, more than 0 and at most {most} s"
    findings.add("attestation_life", 0 < life <= most, text, source)


def _keys(findings: Findings, cnf: c.Json, expected: Expected, source: str) -> None:
    try:
        members = c.fields(cnf, "cnf", ("sealing", "signing"))
        signing = PublicKey.parse(members["signing"], "cnf.signing", "Ed25519")
        sealing = PublicKey.parse(members["sealing"], "cnf.sealing", "X25519")
    except Malformed as error:
        findings.failed("attestation_keys", str(error), source)
        return
    findings.passed("attestation_keys", "cnf holds a signing and a sealing key", source)
    findings.equal("attestation_signing_key", "cnf.signing", signing.thumbprint, expected.signing, source)
    findings.equal("attestation_sealing_key", "cnf.sealing", sealing.x, expected.sealing, source)


def _claims(findings: Findings, evidence: Evidence, attestation: Attestation, source: str) -> None:
    if evidence.form == "eat":
        for name, pinned in attestation.claims:
            findings.equal("attestation_claim", name, evidence.claims.get(name), pinned, source)
    else:
        findings.equal("attestation_type", "x-ms-attestation-type", evidence.hardware, TYPE_WANTED, source)
        # A less privileged layer of the same machine could request a report, too, and Azure's policies do not restrict
        # that.
        findings.equal(VMPL_CHECK, VMPL, evidence.vmpl, 0, source)
    if attestation.release_policy is not None:
        error = attestation.release_policy.unmet(evidence.claims.get("iss"), evidence.claims)
        text = f"not met: {error}" if error else "every condition of the release policy is met"
        findings.add("attestation_policy", not error, text, source)
