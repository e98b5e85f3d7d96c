"""What an SRO waived of a pipeline is shown wherever its run is: in the decision on its charge, and in the charge."""

from pathlib import Path

from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from tests.factories.documents import contract
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import open_world

PIPELINE, OTHER = "f" * 64, "e" * 64


def test_a_run_shows_what_was_waived_for_its_pipeline(tmp_path: Path) -> None:
    """The SRO signs beside the parties; another pipeline gets no charge."""
    with open_world(tmp_path) as world:
        world.found()
        ends = world.begun + 30 * 86_400_000
        waiver: c.Object = {
            "ends": format_time(ends),
            "issuer": SRO,
            "pipeline": PIPELINE,
            "reason": "the scaler's numbers are public",
            "waives": "preprocessing_fitted",
        }
        agreed = contract(BANK_A, starts=world.begun, id="waived", waivers=[waiver])
        (refused,) = world.submit(world.document("contract", agreed, "unsigned", BANK_A, BANK_A, HOSPITAL))
        assert refused.code.word == "signature_missing"
        world.found(world.document("contract", agreed, "signed", BANK_A, BANK_A, HOSPITAL, SRO))
        for name, pipeline, code in (("run", PIPELINE, "pending"), ("other", OTHER, "policy_denied")):
            body = {**world.charge_body(c.digest(c.dump(agreed)), CleanRoom(name)), "pipeline": pipeline}
            assert world.send(BANK_A, "charge", body, name).code.word == code
        headers = world.everybody.shown(BANK_A)
        charge = world.http.get("/v1/charges/run", headers=headers).json()
        assert charge["waivers"] == [{**waiver, "ends": ends}]
        again = world.http.get("/v1/decisions/run/checks", headers=headers).json()
        assert (again["permit"], again["recorded"]) == (True, False)
        assert {"waiver_other_pipeline", "no_room"} <= {one["code"] for one in again["checks"]}
        checks = world.http.get("/v1/decisions/other", headers=headers).json()["checks"]
        assert [one["code"] for one in checks if not one["passed"]] == ["waiver_other_pipeline"]
