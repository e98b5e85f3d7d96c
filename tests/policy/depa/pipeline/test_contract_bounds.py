"""A contract's bounds on targets and join keys: nothing beside the one permitted spelling gets past them."""

from typing import Any

import pytest

from tests.factories.depa_documents import PIPELINE, TESTS, TRAIN, VISITS, WARDS, checked, refusals, warnings
from tests.factories.path_changes import GONE, changed

C = "pipeline|1|config"
D = f"{C}|dataset_config"
J = "pipeline|0|config|joined_dataset"
STAGE, CONFIG = "pipeline.pipeline[1].config", "pipeline.pipeline[1].config.dataset_config"
JOINED = "pipeline.pipeline[0].config.joined_dataset"
BOUNDS = "contract.constraints.data"
QUERY = PIPELINE["pipeline"][0]["config"]["joined_dataset"]["joining_query"]
DIRECTORY = {
    "name": "DirectoryJoin",
    "config": {
        "datasets": [{"id": VISITS, "name": "visits"}, {"id": TESTS, "name": "tests"}],
        "joined_dataset": "/data/joined.csv",
        "rows_per_principal_max": 1,
    },
}


def _bounded(**of: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """The contract in the specification's spelling; ``visits`` is bounded by these members."""
    privacy = {"epsilon": "2", "delta": "0.01"}
    data = [{"id": name, "privacy": privacy} for name in (VISITS, TESTS, WARDS)]
    return {"constraints": {"data": [{**data[0], **of}, *data[1:]]}}


TARGETS = _bounded(target_variables=["result", "outcome"])
KEYS = _bounded(join=["phone", "card"])

REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    # A target that is not one plain permitted string.
    (TARGETS, {f"{D}|target_variable": "age"}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (TARGETS, {f"{D}|target_variable": "Result"}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (TARGETS, {f"{D}|target_variable": ["age"]}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (TARGETS, {f"{D}|target_variable": ["result"]}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (TARGETS, {f"{D}|target_variable": {"name": "result"}}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (TARGETS, {f"{D}|target_variable": None}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (TARGETS, {f"{D}|target_variable": ""}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (TARGETS, {f"{D}|target_variable": GONE}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (TARGETS, {D: GONE}, "target_not_permitted", f"{STAGE}.target_variable"),
    (TARGETS, {D: GONE, f"{C}|target_variable": "age"}, "target_not_permitted", f"{STAGE}.target_variable"),
    # Another place that names one, beside the permitted one or in place of it.
    (TARGETS, {f"{C}|target_variable": "age"}, "target_not_permitted", f"{STAGE}.target_variable"),
    (TARGETS, {f"{C}|target_variable": "result"}, "target_not_permitted", f"{STAGE}.target_variable"),
    (TARGETS, {f"{D}|targets_key": "age"}, "target_not_permitted", f"{CONFIG}.targets_key"),
    (TARGETS, {f"{D}|targets_key": ["age"]}, "target_not_permitted", f"{CONFIG}.targets_key"),
    (TARGETS, {f"{D}|pairing": {"target_pattern": "*.png"}}, "target_not_permitted", f"{CONFIG}.pairing"),
    (TARGETS, {f"{D}|type": "serialized"}, "target_not_permitted", f"{CONFIG}.type"),
    (TARGETS, {f"{D}|type": "directory"}, "target_not_permitted", f"{CONFIG}.type"),
    (
        TARGETS,
        {f"{J}|joining_query": QUERY.replace("*", "v.age AS Result")},
        "target_not_permitted",
        f"{JOINED}.joining_query",
    ),
    # Each training stage, not the first alone.
    (
        TARGETS,
        {"pipeline|2": changed(TRAIN, {"config|dataset_config|target_variable": "age"})},
        "target_not_permitted",
        "pipeline.pipeline[2].config.dataset_config.target_variable",
    ),
    # Joins.
    (
        KEYS,
        {f"{J}|joining_key": "ward", f"{J}|joining_query": QUERY.replace("phone", "ward")},
        "join_key_not_permitted",
        f"{JOINED}.joining_key",
    ),
    (KEYS, {"pipeline|0": DIRECTORY}, "join_key_not_permitted", JOINED),
    # An empty list permits none.
    (_bounded(target_variables=[]), {}, "target_not_permitted", f"{CONFIG}.target_variable"),
    (_bounded(target_variables=[]), {D: GONE}, "target_not_permitted", f"{STAGE}.target_variable"),
    (_bounded(join=[]), {}, "join_key_not_permitted", f"{JOINED}.joining_key"),
    (_bounded(join=[]), {"pipeline|0": DIRECTORY}, "join_key_not_permitted", JOINED),
]
PERMITTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (TARGETS, {}),
    (TARGETS, {f"{D}|target_variable": "outcome"}),
    (TARGETS, {f"{D}|type": GONE}),
    (TARGETS, {f"{D}|targets_key": None, f"{D}|pairing": {}, f"{C}|target_variable": ""}),
    (TARGETS, {D: GONE, f"{C}|target_variable": "result"}),
    (TARGETS, {f"{J}|joining_query": QUERY.replace("*", "t.result AS result, v.age AS years")}),
    (TARGETS, {"pipeline|0": DIRECTORY}),
    (KEYS, {}),
    (KEYS, {f"{J}|joining_key": "card", f"{J}|joining_query": QUERY.replace("phone", "card")}),
    # Bounded by a dataset that is not joined; and with no join.
    (KEYS, {"pipeline|0": changed(DIRECTORY, {"config|datasets": [{"id": TESTS, "name": "tests"}]})}),
    (_bounded(join=[]), {"pipeline": [changed(TRAIN, {"config|paths|input_dataset_path": "/mnt/remote/lab/t.csv"})]}),
    # Without a bound anything may be predicted, from anywhere.
    ({}, {f"{D}|target_variable": GONE, f"{D}|targets_key": "age", f"{D}|type": "serialized"}),
    ({}, {f"{D}|target_variable": ["age"]}),
]


@pytest.mark.parametrize(("contract", "change", "code", "field"), REFUSED)
def test_what_goes_past_a_bound_is_refused_where_it_stands(
    contract: dict[str, Any], change: dict[str, Any], code: str, field: str
) -> None:
    """By its code at its field, and nothing is imported."""
    found = checked(contract, change)
    assert (code, field) in refusals(found)
    assert found.contract is None


@pytest.mark.parametrize(("contract", "change"), PERMITTED)
def test_what_a_bound_permits_is_imported(contract: dict[str, Any], change: dict[str, Any]) -> None:
    """Each near side."""
    found = checked(contract, change)
    assert refusals(found) == []
    assert found.contract is not None


def test_a_target_is_held_to_the_bounds_of_every_dataset() -> None:
    """What one of them does not permit is refused, with what all of them permit."""
    contract = changed(TARGETS, {"constraints|data|1|target_variables": ["outcome", "age"]})
    for target, names in (("result", 1), ("age", 1), ("outcome", 0)):
        found = checked(contract, {f"{D}|target_variable": target})
        reasons = [reason for reason in found.reasons if reason.code == "target_not_permitted"]
        assert len(reasons) == names
        assert all(reason.text.endswith(": permitted are outcome") for reason in reasons)


def test_every_import_says_that_the_contract_written_carries_no_such_bound() -> None:
    """A pipeline that is checked later is not held to it by our contract: each such bound is named, at its place."""
    assert "bound_not_carried" not in {code for code, _ in warnings(checked())}
    found = checked(_bounded(target_variables=["result"], join=["phone"]))
    assert [field for code, field in warnings(found) if code == "bound_not_carried"] == [
        f"{BOUNDS}[0].target_variables",
        f"{BOUNDS}[0].join",
    ]
    assert b"phone" not in (found.contract or b"phone")
