"""Adapting a DEPA pair: the least change that passes, every change listed, nothing decided for the parties."""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.checks.field_readers import parse_time
from policy.depa.adaptation import Adapted, PartyDecisions, adapt
from policy.depa.contract.decimal_json import parse, strings_in
from policy.depa.contract.json_paths import ABSENT, set_value, value_at, write, write_lines
from policy.depa.evaluation import Terms
from tests.factories.depa_documents import CHECKED_AT, CONTRACT, PIPELINE, TREES
from tests.factories.path_changes import GONE, changed
from tests.factories.people import BANK_A, HOSPITAL, LABORATORY

C, J = "pipeline|1|config", "pipeline|0|config"
RECORDS = 500
DECIDED = PartyDecisions(
    tdc=BANK_A,
    providers={"hospital": HOSPITAL, "lab": LABORATORY},
    starts=parse_time("2026-02-01T00:00:00Z", "starts"),
    ends=parse_time("2027-02-01T00:00:00Z", "ends"),
    rows=1,
)
FILES = ("contract", "pipeline")
STAGE = "pipeline.pipeline[1].config"
PRIVACY = f"{STAGE}.privacy_params"

FAULTS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("contract", {"tdc": ""}, {"contract.tdc": f'"{BANK_A}"'}),
    ("contract", {"datasets|1|provider": ""}, {"contract.datasets[1].provider": f'"{LABORATORY}"'}),
    ("contract", {"tdps": []}, {"contract.tdps": f'["{HOSPITAL}","{LABORATORY}"]'}),
    ("contract", {"tdps": [LABORATORY]}, {"contract.tdps": f'["{LABORATORY}","{HOSPITAL}"]'}),
    ("contract", {"expiryTime": "2026-05-01T00:00:00Z"}, {"contract.expiryTime": '"2027-02-01T00:00:00Z"'}),
    ("contract", {"startTime": "2026-07-01T00:00:00Z"}, {"contract.startTime": '"2026-02-01T00:00:00Z"'}),
    ("pipeline", {f"{J}|rows_per_principal_max": GONE}, {"pipeline.pipeline[0].config.rows_per_principal_max": "1"}),
    (
        "pipeline",
        {f"{C}|dataset_config|preprocessing": {"scaler": "standard"}},
        {f"{STAGE}.dataset_config.preprocessing.scaler": "null"},
    ),
    ("pipeline", {f"{C}|dataset_config|splits|stratify": True}, {f"{STAGE}.dataset_config.splits.stratify": "false"}),
    (
        "pipeline",
        {f"{C}|dataset_config|missing_strategy": "forward_fill"},
        {f"{STAGE}.dataset_config.missing_strategy": '"drop"'},
    ),
    ("pipeline", {f"{C}|metrics": ["accuracy"]}, {f"{STAGE}.metrics": "[]"}),
    ("pipeline", {f"{C}|privacy_params|epsilon": 3.5}, {f"{PRIVACY}.epsilon": "2.0"}),
    ("pipeline", {f"{C}|privacy_params|delta": 0.5}, {f"{PRIVACY}.delta": "0.01"}),
    ("pipeline", {f"{C}|privacy_params|delta": "0.0001"}, {f"{PRIVACY}.delta": "0.0001"}),
    ("pipeline", {f"{C}|batch_size": "50"}, {f"{STAGE}.batch_size": "50"}),
]


def _adapt(
    contract: dict[str, Any] | None = None,
    pipeline: dict[str, Any] | None = None,
    decided: PartyDecisions = DECIDED,
    records: int | None = RECORDS,
    level: int = 1,
) -> tuple[dict[str, bytes], Adapted]:
    texts = {
        name: json.dumps(changed(base, change or {}), indent=1).encode()
        for name, base, change in (("contract", CONTRACT, contract), ("pipeline", PIPELINE, pipeline))
    }
    terms = Terms(CHECKED_AT, level=level, records=records)
    return texts, adapt(texts["contract"], texts["pipeline"], terms, decided)


def _differences(texts: dict[str, bytes], found: Adapted) -> set[str]:
    """The paths at which the files differ, compared leaf by leaf."""
    return {
        path
        for name, after in (("contract", found.contract), ("pipeline", found.pipeline))
        for path in _leaves(parse(texts[name], name), parse(after, name), name)
    }


def _leaves(before: Any, after: Any, path: str) -> set[str]:  # noqa: ANN401 - JSON
    if isinstance(before, dict) and isinstance(after, dict):
        names = {*before, *after}
        return {
            one
            for name in names
            for one in _leaves(before.get(name, ABSENT), after.get(name, ABSENT), f"{path}.{name}")
        }
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return {one for place, (old, new) in pairs for one in _leaves(old, new, f"{path}[{place}]")}
    return set() if type(before) is type(after) and before == after else {path}


@pytest.mark.parametrize(("name", "fault", "expected"), FAULTS)
def test_each_fault_has_one_change_and_no_other_byte_of_meaning_moves(
    name: str, fault: dict[str, Any], expected: dict[str, str]
) -> None:
    """The pair passes, the change is listed with its reason, and the files differ there alone."""
    texts, found = _adapt(*((fault, None) if name == "contract" else (None, fault)))
    assert found.checked.contract is not None, found.checked.reasons
    assert {one.field: one.after for one in found.changes} == expected
    assert all(one.reason for one in found.changes)
    assert _differences(texts, found) == set(expected)
    assert found.needed == ()


def test_all_faults_together_are_mended_and_a_sound_pair_keeps_its_bytes() -> None:
    """What is behind another refusal is reached; what passes is given back byte for byte."""
    every = [{path: new for name, fault, _ in FAULTS if name == file for path, new in fault.items()} for file in FILES]
    texts, found = _adapt(every[0], every[1])
    assert found.checked.contract is not None, found.checked.reasons
    assert _differences(texts, found) == {one.field for one in found.changes}
    texts, found = _adapt()
    assert (found.contract, found.pipeline, found.changes) == (texts["contract"], texts["pipeline"], ())


def test_nothing_is_decided_for_the_parties() -> None:
    """Each decision that is missing is named with its option; the rest is changed and the pair stays refused."""
    fault = {"tdc": "", "datasets|1|provider": "", "expiryTime": "2026-05-01T00:00:00Z"}
    join = {f"{J}|rows_per_principal_max": GONE, f"{C}|metrics": ["accuracy"]}
    _, found = _adapt(fault, join, PartyDecisions())
    assert [one.field for one in found.changes] == [f"{STAGE}.metrics"]
    assert found.checked.contract is None
    assert len(found.needed) == 4
    for option in ("--tdc DID", "--tdp lab=DID", "--ends 2027-", "--rows-per-principal 1"):
        assert any(option in text for text in found.needed)


def test_noise_below_the_contract_lowers_the_run_s_epsilon_and_by_decision_the_contract_s_noise() -> None:
    """By itself nobody's protection falls: the derived noise reaches the contract's, and ε is less than before."""
    bound = {f"constraints|0|privacy|{place}|noise_multiplier": "2.0" for place in range(3)}
    texts, found = _adapt(bound)
    assert found.checked.priced is not None
    assert found.checked.contract is not None
    assert [one.field for one in found.changes] == [f"{PRIVACY}.epsilon"]
    assert float(found.checked.priced.to_json()["noise_multipliers"][0]) >= 2  # type: ignore[index,arg-type] # JSON
    assert Fraction(found.changes[0].after) < 2
    assert _differences(texts, found) == {f"{PRIVACY}.epsilon"}
    _, lowered = _adapt(bound, None, PartyDecisions(least_noise=True))
    assert lowered.checked.contract is not None
    assert {one.field for one in lowered.changes} == {
        f"contract.constraints[0].privacy[{place}].noise_multiplier" for place in range(3)
    }
    assert all(0 < float(json.loads(one.after)) <= 1.206 for one in lowered.changes)


def test_what_no_change_mends_stays_refused_by_name() -> None:
    """A library that fits bounds of features by itself; a batch norm; a stage of another kind."""
    for fault, code in (
        ({"pipeline|1": TREES}, "preprocessing_fitted"),
        ({f"{C}|model_config": {"l": {"class": "nn.BatchNorm1d"}}}, "layer_crosses_records"),
        ({"pipeline|1|name": "LLM_Finetune"}, "stage_unsupported"),
        ({f"{C}|privacy_params": None}, "field_missing"),
        ({"pipeline": []}, "list_length"),
    ):
        _, found = _adapt(None, fault)
        assert code in {one.code for one in found.checked.reasons if one.refused}
        assert (found.checked.contract, found.changes) == (None, ())


def test_level_0_takes_nothing_away() -> None:
    """What is only warned of there stays."""
    _, found = _adapt(None, {f"{C}|metrics": ["accuracy"]}, level=0)
    assert found.changes == ()
    assert found.checked.contract is not None


NUMBERS = st.fractions(-(10**9), 10**9).map(lambda one: Fraction(int(one * 10**12), 10**12))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_whatever_is_read_is_written_with_every_digit(value: Any) -> None:  # noqa: ANN401 - JSON
    """In one line and in many: the same value is read again."""
    for data in (write(value), write_lines(value)):
        assert parse(data, "file") == value
    with pytest.raises(TypeError):
        write([value, Fraction(1, 3)])


def test_a_path_reads_and_sets_what_it_names() -> None:
    """Every string of a file is found by the path that reasons spell."""
    files = {"contract": json.loads(json.dumps(CONTRACT))}
    for path, text in list(strings_in(files["contract"], "contract")):
        assert value_at(files, path) == text
        set_value(files, path, f"{text}!")
        assert value_at(files, path) == f"{text}!"
    assert value_at(files, "contract.datasets[9].id") is ABSENT
    assert value_at(files, "contract.id.more") is ABSENT
