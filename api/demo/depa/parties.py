"""Who takes part in the scenario, and the documents that they sign."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api.demo import participants
from api.demo.depa.papers import IDS
from api.demo.depa.plans import RELATION
from api.demo.depa.raw_files import NAMES, PEOPLE
from api.demo.participants import Enrol, Organisation
from client.keys.signer import Signer
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire import canonical_json as c

EPSILON: Final = "3"
DELTA: Final = "1/1483"
"""One over the records that DEPA's pipeline trains on."""
RECORDS: Final = 1_483
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Parties:
    """The regulator, the three providers by their name in the contract, the consumer, and who reads everything."""

    sro: Organisation
    tdps: dict[str, Organisation]
    tdc: Organisation
    auditor: Organisation

    def reference(self, name: str, partition: str) -> str:
        """One provider's partition."""
        return f"{self.tdps[name].did}/{IDS[name]}/{partition}"


def registered(folder: Path, enrol: Enrol, now: int, attester: Signer, level: int) -> Parties:
    """All parties with a key in ``folder`` and registered, the policy in force, and the data sets described."""

    def create(slug: str, name: str, role: str) -> Organisation:
        return Organisation.create(folder, slug, name, role, enrol)

    sro, tdc = create("health-council", "Health Council", "SRO"), create("modeller", "Modeller", "TDC")
    auditor = create("auditor", "Auditor", "AUDITOR")
    tdps = {name: create(f"{name}-data", name, "TDP") for name in NAMES}
    for party in (sro, tdc, auditor, *tdps.values()):
        party.register(sro)
    shipped = participants.policy(sro, attester.jwk, now)
    own: c.Object = {
        "budget": {"delta_max": DELTA, "epsilon_max": EPSILON},
        "id": "covid",
        "level": level,
        "lineage": {"epsilon_max": EPSILON},
        "mechanisms": ["poisson_gaussian", "pure"],
        "model_release": level < 2,
        "rules": ["catalogue", "reference", "renyi"],
        "run": {"epsilon_max": "1.5"},
    }
    sro.enter("policy", {**{name: value for name, value in shipped.items() if name != "commitments"}, **own})
    for name, tdp in tdps.items():
        document = {**participants.dataset(tdp), "deidentification": "phone numbers are tokens", "id": IDS[name]}
        tdp.enter(
            "dataset", {**document, "membership": "a person is in one partition", "schema": f"{name}, as prepared"}
        )
    return Parties(sro, tdps, tdc, auditor)


def open_partitions(parties: Parties, partition: str, rule: str, load: RunPlan) -> list[str]:
    """One partition of each provider under a rule that knows what runs there; their references. Raises: Refused."""
    for name, tdp in parties.tdps.items():
        body: c.Object = {
            "data_key": f"{name}-{partition}",
            "dataset": IDS[name],
            "delta": DELTA,
            "epsilon": EPSILON,
            "load": load.to_json(),
            "partition": partition,
            "provider": tdp.did,
            "records": PEOPLE,
            "relation": RELATION,
            "rule": rule,
            "unit": "record",
        }
        tdp.submit("partition", body)
    return [parties.reference(name, partition) for name in NAMES]


def dates(now: int) -> tuple[int, int]:
    """From when until when the contract is."""
    return now, now + 180 * DAY_MS
