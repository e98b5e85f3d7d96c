"""How many runs fit a budget: counted by charging one after another until the ledger refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from api.demo.depa.parties import Parties, open_partitions
from client.http.problems import Refused
from client.keys.signer import Signer
from ledger.mechanisms.run_plan import RunPlan
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire import canonical_json as c

REFERENCE: Final = "reference"
RUNS_MAX: Final = 40
"""Far more than fit, so that a count ends even if a rule were wrong."""


@dataclass(frozen=True, slots=True)
class RunCount:
    """How many runs of a plan were admitted under a rule, and why the next was not."""

    rule: str
    runs: int
    why: str


def count_runs(  # noqa: PLR0913, PLR0917 - what a charge says
    parties: Parties, contract: str, name: str, rule: str, plan: RunPlan, now: int
) -> RunCount:
    """Charge fresh partitions under a rule with one plan until it is refused. Raises: Refused, Unreachable."""
    # The rule `reference` is for training alone, and says so when it is charged.
    load = plan.training if rule == REFERENCE and isinstance(plan, StagedPlan) else plan
    partitions: list[c.Json] = [*open_partitions(parties, name, rule, load)]
    for run in range(RUNS_MAX):
        sealing: c.Object = {"crv": "X25519", "kty": "OKP", "x": c.base64url(bytes([run + 1] * 32))}
        body: c.Object = {
            "clean_room": {"sealing": sealing, "signing": Signer.generate().jwk},
            "contract": contract,
            "deadline": now + 3_600_000,
            "partitions": partitions,
            "plan": plan.to_json(),
            "step_leases": True,
            "unit_records_max": 1,
        }
        try:
            parties.tdc.submit("charge", body)
        except Refused as refused:
            return RunCount(rule, run, refused.reasons[0].detail if refused.reasons else refused.detail)
    return RunCount(rule, RUNS_MAX, "")
