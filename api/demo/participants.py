"""Who takes part in the demonstration, and the documents they sign."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from client.keys.signer import Signer
from client.service.answers import Answer
from client.service.registration import registration
from client.service.service import Service
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time

DATASET: Final = "digits"
SEALED: Final = "tumours"
"""A data set of Level 2."""
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
    def create(cls, folder: Path, slug: str, name: str, role: str, enrol: Enrol) -> Organisation:
        """A party with a fresh key, stored in ``folder`` and known to the issuer."""
        signer, did = Signer.generate(), f"did:web:{slug}.demo.invalid"
        signer.save(folder / f"{slug}.pem")
        return cls(did, name, role, signer, enrol(did, signer))

    @property
    def slug(self) -> str:
        """Its DID's first label, by which its files are named."""
        return self.did.removeprefix("did:web:").partition(".")[0]

    def submit(self, kind: str, body: c.Object, replaces: str | None = None) -> Answer:
        """Sign a command and send it; ``replaces`` is the tag of a version before. Raises: Refused, Unreachable."""
        return self.service.submit(self.signer, self.did, kind, body, replaces=replaces)

    def register(self, registrar: Organisation) -> Answer:
        """Enter it by the registrar's word, with proof that it has its key."""
        return registrar.submit("organisation", registration(self.signer, self.did, self.name, [self.role]))

    def enter(self, kind: str, document: c.Object, *others: Organisation) -> tuple[str, Answer]:
        """Store a document with everyone's signature, and enter it; its digest."""
        data = c.dump(document)
        stored = [self.service.put_document(participant.signer, data) for participant in (self, *others)]
        body: c.Object = {"document": stored[0].document, "signatures": [document.signature for document in stored]}
        return stored[0].document, self.submit(kind, body, stored[0].replaces)


_DOCUMENTS: Final[Mapping[str, c.Object]] = json.loads(files("api.demo").joinpath("documents.json").read_bytes())
"""The documents that are signed, without their parties and times."""


def policy(sro: Organisation, attester: c.Object, now: int) -> c.Object:
    """A Level 1 policy: one renewable budget for everyone, a smaller one for each lineage."""
    attestation: c.Object = {
        "attesters": [{"issuer": ATTESTER, "key": attester}],
        "claims": {"swname": "epsilon-trainer"},
    }
    return {**_DOCUMENTS["policy"], "attestation": attestation, "effective": format_time(now), "issuer": sro.did}


def sealing_policy(before: c.Object, tdp: Organisation, now: int) -> c.Object:
    """The policy's second version: a data set has Level 2, answers of votes are permitted, and budgets are public."""
    taken = before["mechanisms"]
    assert isinstance(taken, list)
    level: c.Object = {"dataset": SEALED, "level": 2, "provider": tdp.did}
    changes: c.Object = {"levels": [level], "mechanisms": [*taken, "gdp"], "register": ["budget", "level", "spent"]}
    return {**before, **changes, "effective": format_time(now), "version": 2}


def dataset(tdp: Organisation) -> c.Object:
    """What the hospital offers."""
    return {**_DOCUMENTS["dataset"], "provider": tdp.did}


def sealed_dataset(tdp: Organisation) -> c.Object:
    """What it lets no model of leave."""
    return {**_DOCUMENTS["sealed_dataset"], "provider": tdp.did}


def partition(tdp: Organisation, name: str, records: int, of: str = DATASET) -> c.Object:
    """A slice of one of its data sets, with a budget of its own."""
    return {
        **_DOCUMENTS["partition"],
        "data_key": f"{of}-{name}",
        "dataset": of,
        "partition": name,
        "provider": tdp.did,
        "records": records,
    }


def contract(tdp: Organisation, tdc: Organisation, now: int, of: str = DATASET) -> c.Object:
    """What the hospital and one consumer agree on."""
    return {
        **_DOCUMENTS["contract"],
        "datasets": [{"dataset": of, "provider": tdp.did}],
        "ends": format_time(now + 180 * _DAY_MS),
        "id": f"{of}-{tdc.slug}",
        "starts": format_time(now),
        "tdc": tdc.did,
        "tdps": [tdp.did],
    }
