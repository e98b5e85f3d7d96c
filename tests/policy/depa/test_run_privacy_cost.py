"""What a pipeline's run really is: published figures, the edges of every cap, and what cannot be known."""

from fractions import Fraction
from typing import Any

import pytest

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.mechanisms.plan_reader import parse_plan
from policy.depa.import_check import Checked
from policy.depa.pipeline.preprocessing import TREES_NEED
from tests.factories.depa_documents import TRAIN, TREES, checked, refusals, warnings
from tests.factories.path_changes import GONE, changed

C = "pipeline|1|config"
AT = "pipeline.pipeline[1].config"
RECORDS = 500
LOOSE = {f"constraints|0|privacy|{place}|epsilon_threshold": "8" for place in range(3)}


def _priced(found: Checked) -> dict[str, Any]:
    assert found.priced is not None
    return found.priced.to_json()


def test_published_figures_of_the_covid_scenario() -> None:
    """Batch 8, one epoch, ε 1.0, 1,483 records: noise 0.653 at δ 1/1483; ε 1.5 holds two runs, ε 3 thirteen."""
    requested = {
        f"{C}|batch_size": 8,
        f"{C}|total_epochs": 1,
        f"{C}|privacy_params": {"epsilon": 1.0, "delta": 0.01, "max_grad_norm": 0.1},
    }
    for budget, runs in ((Fraction(3, 2), 2), (Fraction(3), 13)):
        priced = _priced(checked(None, requested, records=1483, budget=budget))
        assert priced["noise_multipliers"] == ["0.6531"]
        assert (priced["steps"], priced["plan"]["sampler"]["probability"]) == (186, "1/186")
        assert priced["report"]["delta"] == "1/1483"
        assert 0.999 < float(priced["report"]["epsilon"]) <= 1
        assert priced["runs_held"]["reference"] == {"runs": runs}


def test_the_noise_is_the_least_that_keeps_what_was_asked() -> None:
    """It keeps ε at δ; one step of its fourth decimal less does not. The charge carries plan and digests."""
    found = checked(records=RECORDS)
    plan = parse_plan(_priced(found)["plan"])
    kept = plan.mechanism(plan.steps)
    assert isinstance(kept, PoissonGaussian)
    assert (kept.probability, kept.steps) == (Fraction(1, 10), 20)
    assert reported_epsilon(kept, Fraction(1, 10_000), "REPLACE_SPECIAL") <= 2
    less = PoissonGaussian(kept.probability, kept.noise_multiplier - Fraction(1, 10_000), kept.steps)
    assert reported_epsilon(less, Fraction(1, 10_000), "REPLACE_SPECIAL") > 2
    assert refusals(found) == []
    assert found.charge is not None
    assert found.charge["pipeline"] == found.pipeline
    assert found.charge["plan"] == plan.to_json()
    assert found.charge["unit_records_max"] == 1


def test_without_the_number_of_records_nothing_is_known() -> None:
    """The contract is imported; of noise, ε and charge nothing is said."""
    found = checked()
    assert ("noise_unknown", AT) in warnings(found)
    assert (found.priced, found.charge) == (None, None)
    assert found.contract is not None
    assert found.code.exit_code == 0


def test_a_delta_above_one_over_the_records_is_lowered_and_reported() -> None:
    """As DEPA's trainer lowers it, but not in silence; at exactly one over the records it stays."""
    requested = {f"{C}|privacy_params|delta": 0.01}
    found = checked(None, requested, records=RECORDS)
    assert _priced(found)["report"]["delta"] == "0.002"
    assert ("delta_lowered", f"{AT}.privacy_params.delta") in warnings(found)
    exact = checked(None, {f"{C}|privacy_params|delta": 0.002}, records=RECORDS)
    assert _priced(exact)["report"] == _priced(found)["report"]
    assert "delta_lowered" not in {code for code, _ in warnings(exact)}


@pytest.mark.parametrize(("noise", "refused"), [("1.206", False), ("1.2061", True), ("2.0", True)])
def test_the_contract_s_noise_is_held_to(noise: str, refused: bool) -> None:  # noqa: FBT001 - a column of the table
    """The run's real noise is 1.206: a contract that asks for more refuses it."""
    found = checked({"constraints|0|privacy|1|noise_multiplier": noise}, records=RECORDS)
    field = "contract.constraints[0].privacy[1].noise_multiplier"
    assert refusals(found) == ([("noise_below_contract", field)] if refused else [])


def test_groups_are_charged_and_held_against_the_contract() -> None:
    """Two rows of one principal cost more than one, and the contract's ε is the principal's."""
    one, two = (checked(LOOSE, {"pipeline|0|config|rows_per_principal_max": k}, records=RECORDS) for k in (1, 2))
    single, double = (float(_priced(found)["report"]["epsilon"]) for found in (one, two))
    assert double > 2 * single
    assert refusals(two) == []
    assert two.charge is not None
    assert two.charge["unit_records_max"] == 2
    capped = checked(None, {"pipeline|0|config|rows_per_principal_max": 2}, records=RECORDS)
    assert refusals(capped) == [("run_above_contract", "pipeline.pipeline")]
    assert isinstance(_priced(capped)["runs_held"]["reference"]["why"], str)


def test_an_unbounded_join_is_reported_for_one_row_and_not_for_a_principal() -> None:
    """Its price is shown as what it is, and no charge comes of it."""
    found = checked(None, {"pipeline|0|config|rows_per_principal_max": GONE}, records=RECORDS)
    assert refusals(found) == [("join_unbounded", "pipeline.pipeline[0].config")]
    assert _priced(found)["rows_per_principal_max"] is None
    assert found.charge is None


def test_two_stages_are_priced_together() -> None:
    """Composed, they cost more than either and less than their sum; against the contract they count as one run."""
    stages = {"pipeline|1": TRAIN, "pipeline|2": changed(TRAIN, {"config|privacy_params|epsilon": 0.5})}
    both = _priced(checked(LOOSE, stages, records=RECORDS))
    assert both["plan"]["mechanism"]["kind"] == "composed"
    assert both["steps"] == 40
    assert 2 < float(both["report"]["epsilon"]) < 2.5
    assert refusals(checked(None, stages, records=RECORDS)) == [("run_above_contract", "pipeline.pipeline")]


def test_a_batch_larger_than_the_data_is_no_sampling() -> None:
    """Probability one, a step an epoch, and an expected batch of no more than there is."""
    priced = _priced(checked(LOOSE, None, records=20))
    assert (priced["plan"]["sampler"]["probability"], priced["steps"]) == ("1", 2)
    assert priced["plan"]["batch_size_expected"] == 20


def test_boosted_trees_are_charged_as_they_claim() -> None:
    """Their ε is pure and needs no number of records; k rows cost k times as much."""
    found = checked(None, {"pipeline|1": TREES}, level=0)
    priced = _priced(found)
    assert refusals(found) == []
    assert ("training_claim", f"{AT}.privacy_params.epsilon") in warnings(found)
    (claim,) = (reason.text for reason in found.reasons if reason.code == "training_claim")
    assert claim.endswith(TREES_NEED)
    refused = checked(None, {"pipeline|1": TREES}, level=1)
    assert ("preprocessing_fitted", AT) in refusals(refused)
    assert any(TREES_NEED in reason.text for reason in refused.reasons if reason.refused)
    assert priced["plan"]["mechanism"] == {"epsilon": "1.5", "kind": "pure", "relation": "REPLACE_SPECIAL", "v": 1}
    assert priced["runs_held"]["pure"] == {"runs": 1}
    grouped = {"pipeline|1": TREES, "pipeline|0|config|rows_per_principal_max": 2}
    assert refusals(checked(None, grouped, level=0)) == [("run_above_contract", "pipeline.pipeline")]


@pytest.mark.parametrize(
    ("change", "records"),
    [
        ({f"{C}|total_epochs": 10_000_000}, 1000),
        ({f"{C}|privacy_params|delta": 1e-12}, RECORDS),
        ({}, 10**12),
    ],
)
def test_what_has_no_price_is_refused_by_name(change: dict[str, Any], records: int) -> None:
    """More steps than a plan may have, or a δ at which no ε can be told."""
    found = checked(None, change, records=records)
    assert {code for code, _ in refusals(found)} == {"not_priced"}
    assert (found.priced, found.contract) == (None, None)
