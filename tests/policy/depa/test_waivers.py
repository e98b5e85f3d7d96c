"""Waivers of a DEPA import: thing by thing, by SROs, for one pipeline, until a date; and our contract says so."""

import json
from typing import Any

import pytest

from ledger.wire.canonical_json import digest
from policy.checks.field_readers import parse_time
from policy.depa.evaluation import Waived
from policy.documents import ContractDocument
from tests.factories.depa_documents import PIPELINE, checked, refusals, warnings
from tests.factories.path_changes import GONE, changed
from tests.factories.people import SRO

C, J = "pipeline|1|config", "pipeline|0|config"
EACH: dict[str, dict[str, Any]] = {
    "join_unbounded": {f"{J}|rows_per_principal_max": GONE},
    "metrics_exact": {f"{C}|metrics": ["accuracy"]},
    "preprocessing_fitted": {f"{C}|dataset_config|preprocessing": {"scaler": "standard"}},
}
ENDS = "2026-12-01T00:00:00Z"


def _waived(*codes: str, issuers: tuple[str, ...] = (SRO,)) -> Waived:
    return Waived(codes, issuers, parse_time(ENDS, "ends"), "of a public test set")


@pytest.mark.parametrize("code", EACH)
def test_each_is_waived_by_itself(code: str) -> None:
    """It alone: a waiver of another does not help; and what is waived is shown as a warning, by whom and until when."""
    others = tuple(one for one in EACH if one != code)
    assert [one for one, _ in refusals(checked(None, EACH[code], waived=_waived(*others)))] == [code]
    found = checked(None, EACH[code], waived=_waived(code), records=500)
    assert refusals(found) == []
    assert code in {one for one, _ in warnings(found)}
    assert any(f"waived by {SRO} until {ENDS}" in reason.text for reason in found.reasons)


@pytest.mark.parametrize("code", EACH)
def test_our_contract_names_what_was_waived_and_the_pipeline(code: str) -> None:
    """Of what the pipeline does, and no more; each SRO by itself, and all of them sign."""
    two = (SRO, "did:web:tso.example")
    found = checked(None, EACH[code], waived=_waived(*EACH, issuers=two), records=500)
    assert found.contract is not None
    assert found.charge is not None
    document = ContractDocument.parse(found.contract)
    pipeline = digest(json.dumps(changed(PIPELINE, EACH[code])).encode())
    assert [(one.waives, one.issuer, one.pipeline) for one in document.waivers or ()] == [
        (code, issuer, pipeline) for issuer in two
    ]
    assert document.signers == (*document.parties, *two)
    assert found.charge["pipeline"] == pipeline
    assert found.charge["unit_records_max"] == 1


def test_nothing_else_is_waived() -> None:
    """A sound pair has no waivers, and what is no blocker of these three stays refused."""
    found = checked(None, None, waived=_waived(*EACH), records=500)
    assert found.contract is not None
    assert ContractDocument.parse(found.contract).waivers is None
    batch_norm = {f"{C}|model_config": {"l": {"class": "nn.BatchNorm1d"}}}
    assert [one for one, _ in refusals(checked(None, batch_norm, waived=_waived(*EACH)))] == ["layer_crosses_records"]
