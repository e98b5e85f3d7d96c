"""Plans and quotas at the ends of what is permitted: a quote, a plan and a charge each have an answer of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client.http.endpoints import JSON_TYPE, QUOTES
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.api.routes.shared_market import market
from tests.factories.documents import PARTITION, plan
from tests.factories.people import BANK_A, CleanRoom
from tests.factories.service import ServedWorld


def _answers(world: ServedWorld, requested: c.Object) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """The report on a run of Bank A, and status and body of its quote and of its charge."""
    body: c.Object = {**world.charge_body(world.contracts[BANK_A], CleanRoom("edge")), "plan": requested}
    run: c.Object = {"contract": world.contracts[BANK_A], "partitions": [PARTITION], "plan": requested}
    headers = {**world.everybody.shown(BANK_A), "content-type": JSON_TYPE}
    report = world.http.post("/v1/plans", content=c.dump(run), headers=headers).raise_for_status().json()
    signer = world.signers[BANK_A]
    raw = world.command_bytes(signer, BANK_A, "charge", body, "edge")
    answers = [
        world.post(path, raw, world.sign(signer, path, raw, "edge"), **world.everybody.shown(BANK_A))
        for path in (QUOTES, PATHS["charge"])
    ]
    return report, [(answer.status_code, answer.json()) for answer in answers]


@pytest.mark.parametrize("buckets", [2, 1_000])
def test_randomised_response_of_noise_alone_is_charged(tmp_path: Path, buckets: int) -> None:
    """It loses nothing, and its price hardly is more."""
    mechanism: c.Object = {"buckets": buckets, "kind": "randomised_response", "noise": "1", "v": 1}
    with market(tmp_path, mechanisms=["randomised_response"]) as world:
        report, answers = _answers(world, {"kind": "mechanism", "mechanism": mechanism, "v": 1})
    assert report["decision"]["outcome"] == "pending"
    assert float(report["run_epsilon"][0]["epsilon"]) < 1e-6
    assert [status for status, _ in answers] == [200, 201]


def test_a_quota_of_nothing_is_a_refusal_with_its_reason(tmp_path: Path) -> None:
    """Its part of each capacity rounds to 0 units: no run has room."""
    with market(tmp_path, quota={"share_max": "0.0000000000000001"}) as world:
        report, answers = _answers(world, plan(noise="4", steps=1))
    assert report["decision"]["outcome"] == "budget_exhausted"
    assert (report["steps_most"]["steps"], report["runs"]["more"], report["advice"]["steps"]) == (0, 0, None)
    assert [(status, told["code"]) for status, told in answers] == [(409, "budget_exhausted")] * 2
    assert all(told["detail"].startswith("the quota of this lineage, 0.0000000000000001 of all") for _, told in answers)
