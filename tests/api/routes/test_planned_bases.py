"""A run that starts from another's model: whether that run exists is answered to no one who may not see it."""

from __future__ import annotations

from pathlib import Path

from client.http.endpoints import JSON_TYPE
from ledger.wire import canonical_json as c
from tests.api.routes.shared_market import charge, market
from tests.factories.documents import PARTITION, plan
from tests.factories.people import BANK_A, BANK_B


def test_a_hidden_run_is_planned_from_as_a_missing_one(tmp_path: Path) -> None:
    """The same answer, but for the name; one's own run is planned from."""
    with market(tmp_path / "market") as world:
        charge(world, BANK_B, 10, "secret")
        charge(world, BANK_A, 10, "own")
        headers = {**world.everybody.shown(BANK_A), "content-type": JSON_TYPE}

        def planned(base: str) -> tuple[int, str]:
            run: c.Object = {"contract": world.contracts[BANK_A], "partitions": [PARTITION], "base": [base]}
            body = c.dump({**run, "plan": plan(noise="4", steps=10)})
            answer = world.http.post("/v1/plans", content=body, headers=headers)
            return answer.status_code, str(answer.json().get("detail", "")).replace(base, "NAME")

        assert planned("secret") == planned("missing") == (404, "there is no charge NAME")
        assert planned("own")[0] == 200
