"""The documents, plans and evidence of the tests: each written once, as a builder whose fields a test can change."""

from __future__ import annotations

from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc import jws
from joserfc.jwk import OKPKey

from ledger.crypto.detached_jws import public_key
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from tests.factories.people import ATTESTER, DAY_MS, HOSPITAL, SRO, TSO, CleanRoom, private_key, short_name

NOW: Final = 1_795_000_000_000
"""When books of a clock of their own begin, in Unix milliseconds."""
DIGITS: Final = f"{HOSPITAL}/digits"
PARTITION: Final = f"{DIGITS}/2026-q4"
NONCE: Final = c.base64url(bytes(32))
MODEL: Final = "ab" * 32
"""The digest of a trained model."""


def plan(steps: int = 100, noise: str = "2", probability: str = "0.0625") -> c.Object:
    """A DP-SGD plan; of the default one, twelve fit into the default partition."""
    return {
        "batch_size_expected": 64,
        "clipping_norm": "1",
        "kind": "dp_sgd",
        "noise_multiplier": noise,
        "sampler": {"kind": "poisson", "probability": probability},
        "steps": steps,
        "v": 1,
    }


def dense_plan(steps: int, noise: str = "2", probability: str = "0.1") -> c.Object:
    """A DP-SGD plan that samples a tenth of the records at each step."""
    return plan(steps, noise, probability)


SMALL: Final = plan(1, "8")
"""A run of which hundreds fit into the default partition."""


def dataset(provider: str = HOSPITAL, name: str = "digits") -> dict[str, Any]:
    """A data set in the domain of :func:`policy`."""
    return {
        "deidentification": "no names",
        "domain": "health",
        "id": name,
        "kind": "dataset",
        "provider": provider,
        "schema": "8 by 8 pixels and a digit",
        "unit": "record",
        "v": 1,
    }


def partition(name: str = "2026-q4", **changes: c.Json) -> c.Object:
    """The body that opens a partition of the hospital's digits."""
    return {
        "data_key": f"digits-{name}",
        "dataset": "digits",
        "delta": "0.00001",
        "epsilon": "6",
        "partition": name,
        "provider": HOSPITAL,
        "records": 1000,
        "relation": "REPLACE_SPECIAL",
        "rule": "renyi",
        "unit": "record",
        **changes,
    }


def policy(
    effective: int = NOW,
    attester: Ed25519PrivateKey | None = None,
    **changes: Any,  # noqa: ANN401 - JSON
) -> dict[str, Any]:
    """Level 1; a lineage may know less than everyone together."""
    key = public_key(attester or private_key("attester")).to_json()
    return {
        "attestation": {"attesters": [{"issuer": ATTESTER, "key": key}], "claims": {"swname": "trainer"}},
        "budget": {"delta_max": "0.00001", "epsilon_max": "8"},
        "domain": "health",
        "effective": format_time(effective),
        "id": "health-policy",
        "issuer": SRO,
        "kind": "policy",
        "level": 1,
        "lineage": {"epsilon_max": "5"},
        "mechanisms": ["poisson_gaussian"],
        "model_release": True,
        "partition_age_days_max": 90,
        "records_min": 100,
        "relation": "REPLACE_SPECIAL",
        "rules": ["renyi"],
        "run": {"epsilon_max": "4"},
        "unit": "record",
        "v": 1,
        "version": 1,
        **changes,
    }


def contract_id(bank: str) -> str:
    """The id of a bank's contract on the hospital's digits."""
    return f"digits-{short_name(bank).removesuffix('.example')}"


def contract(bank: str, provider: str = HOSPITAL, starts: int = NOW, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Between a bank and a provider, on the provider's digits, for ninety days."""
    return {
        "datasets": [{"dataset": "digits", "provider": provider}],
        "ends": format_time(starts + 90 * DAY_MS),
        "id": contract_id(bank),
        "kind": "contract",
        "purpose": "reading digits",
        "run": {"epsilon_max": "2"},
        "runs_max": 100_000,
        "starts": format_time(starts),
        "tdc": bank,
        "tdps": [provider],
        "v": 1,
        "version": 1,
        **changes,
    }


def stream(provider: str = HOSPITAL, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A slice of the provider's digits each week, of persons who are in one slice only."""
    return {
        "appearances_max": 1,
        "budget": {"delta": "0.00001", "epsilon": "6"},
        "dataset": "digits",
        "kind": "stream",
        "life_days": 60,
        "period": "week",
        "provider": provider,
        "records_min": 500,
        "relation": "REPLACE_SPECIAL",
        "rule": "renyi",
        "unit": "record",
        "v": 1,
        "version": 1,
        "window_max": 52,
        **changes,
    }


def recommendation(name: str, provider: str = HOSPITAL, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """What the TSO recommends for a provider's digits."""
    return {
        "budget": {"delta_max": "0.00001", "epsilon_max": "8"},
        "dataset": "digits",
        "id": name,
        "issuer": TSO,
        "kind": "recommendation",
        "provider": provider,
        "v": 1,
        "version": 1,
        **changes,
    }


def attestation(  # noqa: PLR0913 - the claims that a gate checks
    room: CleanRoom,
    charge: str,
    plan_digest: str,
    now: int,
    *,
    nonce: str = NONCE,
    attester: Ed25519PrivateKey | None = None,
    **more: c.Json,
) -> bytes:
    """An attester's token (EAT, RFC 9711) for a clean room and a charge's plan, at a time in Unix milliseconds."""
    private = attester or private_key("attester")
    claims: c.Object = {
        "charge": charge,
        "cnf": room.to_json(),
        "dbgstat": "disabled-since-boot",
        "eat_nonce": nonce,
        "exp": now // 1000 + 300,
        "iat": now // 1000,
        "iss": ATTESTER,
        "plan": plan_digest,
        "swname": "trainer",
        **more,
    }
    x, secret = str(public_key(private).to_json()["x"]), c.base64url(private.private_bytes_raw())
    key = OKPKey.import_key({"crv": "Ed25519", "d": secret, "kty": "OKP", "x": x})
    header = {"alg": "Ed25519", "typ": "eat+jwt"}
    return jws.serialize_compact(header, c.dump(claims), key, algorithms=["Ed25519"]).encode("ascii")
