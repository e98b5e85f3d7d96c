"""Who takes part in the demonstration, and the documents they sign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client.service.service import Answer, Service
from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time

DOMAIN: Final = "health"
DATASET: Final = "digits"
ATTESTER: Final = "https://attester.demo.invalid"
EPSILON: Final = "5"
DELTA: Final = "0.0001"
RELATION: Final = "REPLACE_SPECIAL"
_DAY_MS: Final = 86_400_000


Enrol = Callable[[str, Signer], Service]
"""Makes an issuer know an organisation's key, and gives the service as that organisation calls it."""


@dataclass(frozen=True, slots=True)
class Organisation:
    """One party: its DID, its name on screen, its role and its signing key."""

    did: str
    name: str
    role: str
    signer: Signer
    service: Service

    @classmethod
    def found(cls, folder: Path, slug: str, name: str, role: str, enrol: Enrol) -> Organisation:
        """A party with a fresh key, kept in ``folder`` and known to the issuer."""
        signer, did = Signer.generate(), f"did:web:{slug}.demo.invalid"
        signer.save(folder / f"{slug}.pem")
        return cls(did, name, role, signer, enrol(did, signer))

    def submit(self, kind: str, body: c.Object, replaces: str | None = None) -> Answer:
        """Sign a command and send it; ``replaces`` is the tag of a version before. Raises: Refused, Unreachable."""
        return self.service.submit(self.signer, self.did, kind, body, replaces=replaces)

    def register(self, registrar: Organisation) -> Answer:
        """Enter it by the registrar's word, with proof that it has its key."""
        claim: c.Object = {
            "key": self.signer.jwk,
            "name": self.name,
            "organisation": self.did,
            "roles": [self.role],
        }
        body: c.Object = {**claim, "possession": self.signer.sign(c.dump(claim))}
        return registrar.submit("organisation", body)

    def enter(self, kind: str, document: c.Object, *others: Organisation) -> tuple[str, Answer]:
        """Store a document with everybody's signature, and enter it; its digest."""
        data = c.dump(document)
        stored = [self.service.put_document(one.signer, data) for one in (self, *others)]
        body: c.Object = {"document": stored[0].document, "signatures": [one.signature for one in stored]}
        return stored[0].document, self.submit(kind, body, stored[0].replaces)


def policy(sro: Organisation, attester: Ed25519PrivateKey, now: int) -> c.Object:
    """A Level 1 policy: one renewable budget for everyone, a smaller one for each lineage."""
    x = c.base64url(attester.public_key().public_bytes_raw())
    return {
        "attestation": {
            "attesters": [{"issuer": ATTESTER, "key": {"crv": "Ed25519", "kty": "OKP", "x": x}}],
            "claims": {"swname": "epsilon-trainer"},
        },
        "budget": {"delta_max": DELTA, "epsilon_max": "6"},
        "domain": DOMAIN,
        "effective": format_time(now),
        "id": "health-images",
        "issuer": sro.did,
        "kind": "policy",
        "level": 1,
        "lineage": {"epsilon_max": "4.5"},
        "mechanisms": ["poisson_gaussian"],
        "model_release": True,
        "partition_age_days_max": 90,
        "records_min": 500,
        "relation": RELATION,
        "rules": ["renyi"],
        "run": {"epsilon_max": "2.5"},
        "unit": "record",
        "v": 1,
        "version": 1,
    }


def dataset(tdp: Organisation) -> c.Object:
    """What the hospital offers."""
    return {
        "deidentification": "writers are not named",
        "domain": DOMAIN,
        "id": DATASET,
        "kind": "dataset",
        "provider": tdp.did,
        "schema": "8 by 8 pixels from 0 to 1, and the digit",
        "unit": "record",
        "v": 1,
    }


def partition(tdp: Organisation, name: str, records: int) -> c.Object:
    """A slice of it with a budget of its own."""
    return {
        "data_key": f"{DATASET}-{name}",
        "dataset": DATASET,
        "delta": DELTA,
        "epsilon": EPSILON,
        "partition": name,
        "provider": tdp.did,
        "records": records,
        "relation": RELATION,
        "rule": "renyi",
        "unit": "record",
    }


def contract(tdp: Organisation, tdc: Organisation, now: int) -> c.Object:
    """What the hospital and one bank agree on."""
    return {
        "datasets": [{"dataset": DATASET, "provider": tdp.did}],
        "ends": format_time(now + 180 * _DAY_MS),
        "id": f"digits-{tdc.did.split(':')[2].split('.')[0]}",
        "kind": "contract",
        "purpose": "reading handwritten amounts",
        "run": {"epsilon_max": "2.1"},
        "runs_max": 8,
        "starts": format_time(now),
        "tdc": tdc.did,
        "tdps": [tdp.did],
        "v": 1,
        "version": 1,
    }
