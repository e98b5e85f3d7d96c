"""DEPA contracts: each fault refused by its own name and place, each bound itself within, both spellings read alike."""

import json
from fractions import Fraction
from typing import Any

import pytest

from policy.depa.contract.contract import Contract, read_contract
from policy.depa.contract.reasons import Reasons
from tests.factories.depa_documents import CONTRACT, TESTS, VISITS, WARDS, checked, refusals, warnings
from tests.factories.path_changes import GONE, changed
from tests.factories.people import HOSPITAL, LABORATORY

FIRST = "constraints|0|privacy|0"
BOUND = "contract.constraints[0].privacy[0]"
EPSILON, DELTA = f"{BOUND}.epsilon_threshold", f"{BOUND}.delta"
KID = "datasets|0|key|properties|kid"
DATA = "pipeline.pipeline[1].config.dataset_config"

FAULTS: list[tuple[dict[str, Any], str, str]] = [
    # Numbers in strings.
    *(
        ({f"{FIRST}|epsilon_threshold": value}, code, EPSILON)
        for value, code in (
            ("null", "number_null"),
            (None, "number_null"),
            ("", "number_spelling"),
            (" 1.5", "number_spelling"),
            ("1.5 ", "number_spelling"),
            ("1.5\n", "number_spelling"),
            ("1_000", "number_spelling"),
            ("1,5", "number_spelling"),
            ("1e0", "number_spelling"),
            ("1e400", "number_spelling"),
            ("+1.5", "number_spelling"),
            ("-1.5", "number_spelling"),
            (".5", "number_spelling"),
            ("5.", "number_spelling"),
            ("01.5", "number_spelling"),
            ("0x1", "number_spelling"),
            ("１.5", "number_spelling"),
            ("Infinity", "number_spelling"),
            ("NaN", "number_spelling"),
            ("1/2", "number_spelling"),
            ("0", "number_out_of_range"),
            ("0.0", "number_out_of_range"),
            ("128.000000000001", "number_out_of_range"),
            (-5, "number_out_of_range"),
            (True, "field_type"),
            ([], "field_type"),
        )
    ),
    ({f"{FIRST}|epsilon_threshold": GONE}, "field_missing", EPSILON),
    ({f"{FIRST}|delta": "null"}, "number_null", DELTA),
    ({f"{FIRST}|delta": "1"}, "number_out_of_range", DELTA),
    ({f"{FIRST}|delta": "0"}, "number_out_of_range", DELTA),
    ({f"{FIRST}|delta": GONE}, "field_missing", DELTA),
    ({f"{FIRST}|noise_multiplier": "null"}, "number_null", f"{BOUND}.noise_multiplier"),
    ({f"{FIRST}|epochs_per_report": "0"}, "number_out_of_range", f"{BOUND}.epochs_per_report"),
    ({f"{FIRST}|epochs_per_report": "1.5"}, "number_out_of_range", f"{BOUND}.epochs_per_report"),
    ({f"{FIRST}|budget": "9"}, "field_unknown", f"{BOUND}.budget"),
    # Constraints.
    ({"constraints": GONE}, "constraint_missing", "contract.datasets[0]"),
    ({"constraints": []}, "constraint_missing", "contract.datasets[1]"),
    ({"constraints": [{"privacy": []}]}, "constraint_missing", "contract.datasets[2]"),
    ({"constraints": None}, "field_type", "contract.constraints"),
    ({"constraints": [{"privacy": "1.5"}]}, "field_type", "contract.constraints[0].privacy"),
    (
        {"constraints|0|privacy": CONTRACT["constraints"][0]["privacy"][1:]},
        "constraint_missing",
        "contract.datasets[0]",
    ),
    ({f"{FIRST}|dataset": "other"}, "constraint_dataset_unknown", BOUND),
    ({f"{FIRST}|dataset": TESTS}, "constraint_twice", "contract.constraints[0].privacy[1]"),
    # Parties and dates.
    ({"tdc": ""}, "did_missing", "contract.tdc"),
    ({"tdc": GONE}, "field_missing", "contract.tdc"),
    ({"tdps": []}, "list_length", "contract.tdps"),
    ({"tdps|0": ""}, "did_missing", "contract.tdps[0]"),
    ({"tdps": [HOSPITAL]}, "provider_not_party", "contract.datasets[1].provider"),
    ({"datasets|0|provider": ""}, "did_missing", "contract.datasets[0].provider"),
    ({"datasets|0|provider": "hospital"}, "did_missing", "contract.datasets[0].provider"),
    ({"datasets|0|provider": GONE}, "field_missing", "contract.datasets[0].provider"),
    ({"startTime": "2026-01-01"}, "time_spelling", "contract.startTime"),
    ({"startTime": "2026-01-01T00:00:00.500Z"}, "time_spelling", "contract.startTime"),
    ({"startTime": 0}, "time_spelling", "contract.startTime"),
    ({"expiryTime": "2026-01-01T00:00:00Z"}, "dates_unordered", "contract.expiryTime"),
    ({"expiryTime": "2026-06-01T00:00:00.000Z"}, "contract_ended", "contract.expiryTime"),
    ({"startTime": "2026-06-01T00:00:01.000Z"}, "contract_not_begun", "contract.startTime"),
    # The rest of the form.
    ({"id": "a b"}, "name_spelling", "contract.id"),
    ({"schemaVersion": "0.2"}, "value_unknown", "contract.schemaVersion"),
    ({"purpose": "INFERENCE"}, "value_unknown", "contract.purpose"),
    ({"level": 0}, "field_unknown", "contract.level"),
    ({"a\u001b[2Jb": 0}, "field_unknown", 'contract["a\\u001b[2Jb"]'),
    ({"datasets": []}, "list_length", "contract.datasets"),
    ({"datasets": "all"}, "field_type", "contract.datasets"),
    ({"datasets|0|id": GONE}, "field_missing", "contract.datasets[0].id"),
    ({"datasets|1|id": VISITS, "datasets|1|provider": HOSPITAL}, "dataset_twice", "contract.datasets[1].id"),
    ({"datasets|1|id": VISITS}, "dataset_ambiguous", "contract.datasets[0].id"),
    ({"datasets|0|key": GONE}, "field_missing", "contract.datasets[0].key"),
    ({"datasets|0|key": {}}, "field_missing", "contract.datasets[0].key.properties"),
    ({"datasets|0|key|type": "aws"}, "value_unknown", "contract.datasets[0].key.type"),
    ({KID: ""}, "name_spelling", "contract.datasets[0].key.properties.kid"),
    ({KID: GONE}, "field_missing", "contract.datasets[0].key.properties.kid"),
    ({"dataset": CONTRACT["datasets"][0]}, "field_twice", "contract.dataset"),
]
WITHIN: list[dict[str, Any]] = [
    {f"{FIRST}|epsilon_threshold": "128"},
    {f"{FIRST}|epsilon_threshold": 2},
    {f"{FIRST}|epsilon_threshold": 2.5},
    {f"{FIRST}|epsilon_threshold": "2.000000000000000001"},
    {f"{FIRST}|delta": "0.999"},
    {"startTime": "2026-06-01T00:00:00.000Z"},
    {"expiryTime": "2026-06-01T00:00:01Z"},
    {"tdc": {"id": CONTRACT["tdc"]}},
    {"datasets|0|owner": GONE, "datasets|2|owner": GONE},
    {"version": "1", "jurisdiction": "IN"},
    {"ccrp": GONE, "terms": GONE},
]


@pytest.mark.parametrize(("change", "code", "field"), FAULTS)
def test_each_fault_is_refused_by_name_and_place(change: dict[str, Any], code: str, field: str) -> None:
    """One thing wrong: its code at its field is among the refusals, and nothing is imported."""
    found = checked(change, {"pipeline|0|config|datasets|0|provider": GONE})
    assert (code, field) in refusals(found)
    assert found.code.exit_code == 3
    assert found.contract is None
    assert found.charge is None


@pytest.mark.parametrize("change", WITHIN)
def test_each_bound_itself_is_within(change: dict[str, Any]) -> None:
    """The near side of each edge refuses nothing."""
    found = checked(change, {"pipeline|0|config|datasets|0|provider": GONE})
    assert refusals(found) == []
    assert found.code.exit_code == 0
    assert found.contract is not None


def test_every_fault_is_reported_at_once() -> None:
    """Three things wrong in three places: three reasons, in one check."""
    found = checked({"tdc": "", f"{FIRST}|delta": "null", "expiryTime": "2026-02-01T00:00:00Z"})
    assert refusals(found) == [
        ("did_missing", "contract.tdc"),
        ("number_null", DELTA),
        ("contract_ended", "contract.expiryTime"),
    ]
    assert [one.value for one in found.reasons if one.refused] == ['""', '"null"', '"2026-02-01T00:00:00Z"']


def test_a_template_s_variables_are_reported() -> None:
    """What nobody filled in is named, wherever it stands."""
    found = checked({"ccrp": "did:web:$CCRP.example", "datasets|1|url": "https://$ACCOUNT/x"})
    reported = [(one.code, one.field) for one in found.reasons if one.code == "placeholder"]
    assert reported == [("placeholder", "contract.ccrp"), ("placeholder", "contract.datasets[1].url")]


UNREAD: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"terms": {"payment": {}, "revocation": {"days": None}, "other": [[], {}, ""]}}, []),
    ({"terms": {"runs_max": 0, "model_release": False}}, ["terms.runs_max", "terms.model_release"]),
    ({"terms": {"revocation": {"days": [1, 2]}}}, ["terms.revocation.days[0]", "terms.revocation.days[1]"]),
    ({"terms": "no model leaves"}, ["terms"]),
    ({"jurisdiction": "IN only"}, ["jurisdiction"]),
    ({"jurisdiction": ""}, []),
    ({"version": "2"}, ["version"]),
    ({"ccrp": {"id": "did:web:rooms.example"}}, ["ccrp.id"]),
    (
        {"constraints|0|compute": {"tee": "SEV-SNP", "location": ["IN"]}},
        ["constraints[0].compute.tee", "constraints[0].compute.location[0]"],
    ),
    ({"constraints|0|fetch": {"times_max": 1}}, ["constraints[0].fetch.times_max"]),
    ({"constraints|0|compute": [], "constraints|0|fetch": ""}, []),
    ({f"{FIRST}|epochs_per_report": "2"}, ["constraints[0].privacy[0].epochs_per_report"]),
    (
        {"datasets|0|key|properties|authority": {"endpoint": "other.example"}},
        ["datasets[0].key.properties.authority.endpoint"],
    ),
]


@pytest.mark.parametrize(("change", "fields"), UNREAD)
def test_each_term_that_nothing_reads_is_warned_of_by_its_place(change: dict[str, Any], fields: list[str]) -> None:
    """It refuses nothing, and no import is without its name; what is empty says nothing."""
    plain = {"ccrp": GONE} | {f"datasets|{place}|key|properties|authority": GONE for place in range(3)}
    found = checked({path: new for path, new in plain.items() if path not in change} | change)
    assert refusals(found) == []
    unread = [field for code, field in warnings(found) if code == "term_unread" and field.startswith("contract")]
    assert unread == [f"contract.{one}" for one in fields]


def _read(change: dict[str, Any]) -> Contract:
    reasons = Reasons()
    contract = read_contract(json.loads(json.dumps(changed(CONTRACT, change))), reasons)
    assert not reasons.refused
    return contract


def test_identity_is_provider_dataset_and_key() -> None:
    """The three together, and the least bounds over all datasets."""
    contract = _read({})
    assert [(dataset.provider, dataset.id, dataset.key) for dataset in contract.datasets] == [
        (HOSPITAL, VISITS, "HospitalKey"),
        (LABORATORY, TESTS, "LabKey"),
        (HOSPITAL, WARDS, "HospitalKey"),
    ]
    assert contract.epsilon_max() == 2
    assert contract.delta_max() == Fraction(1, 100)


@pytest.mark.parametrize(
    ("change", "groups"),
    [
        ({}, [[VISITS, WARDS], [TESTS]]),
        ({"datasets|1|key|properties|kid": "HospitalKey"}, [[VISITS, WARDS], [TESTS]]),
        (
            {"datasets|1|key|properties|kid": "HospitalKey"}
            | {f"datasets|{place}|key|properties|endpoint": "" for place in range(3)},
            [[VISITS, WARDS], [TESTS]],
        ),
        ({"datasets|2|key|properties|endpoint": "other.example"}, [[VISITS], [TESTS], [WARDS]]),
        ({"datasets|2|key|properties|endpoint": ""}, [[VISITS, WARDS], [TESTS]]),
        ({"datasets|2|key|properties|endpoint": GONE}, [[VISITS, WARDS], [TESTS]]),
        ({KID: "A", "datasets|2|key|properties|kid": "B"}, [[VISITS], [TESTS], [WARDS]]),
    ],
)
def test_what_one_key_opens_is_together(change: dict[str, Any], groups: list[list[str]]) -> None:
    """A shared key id joins datasets of one provider, unless both name vaults that differ."""
    assert [[dataset.id for dataset in group] for group in _read(change).by_key()] == groups


def test_keys_are_reported_with_their_least_bounds() -> None:
    """The charge of a key is under the strictest of what it opens."""
    found = checked({"datasets|1|key|properties|kid": "HospitalKey"}, {"pipeline|0|config|datasets|0|provider": GONE})
    assert [(len(key["datasets"]), key["epsilon_max"]) for key in found.keys] == [(2, "2.5"), (1, "2")]  # type: ignore[arg-type]  # JSON
    assert ("keys_together", "contract.datasets[0].key.properties.kid") in [
        (one.code, one.field) for one in found.reasons
    ]


SPECIFIED = {
    "data": [
        {
            "id": VISITS,
            "privacy": {"epsilon": "2.50", "delta": "0.01"},
            "join": ["phone"],
            "target_variables": ["result"],
        },
        {"id": TESTS, "privacy": {"epsilon": "2", "delta": "0.01"}},
        {"id": WARDS, "privacy": {"epsilon": "3.0", "delta": "0.01"}},
    ],
    "fetch": "single",
    "compute": ["attest.example"],
}


@pytest.mark.parametrize("constraints", [SPECIFIED, [SPECIFIED]])
def test_the_specification_s_spelling_means_the_same(constraints: Any) -> None:  # noqa: ANN401 - JSON
    """Both spellings give the same bounds, and so the same contract of ours but for the payload's digest."""
    shipped, specified = _read({}), _read({"constraints": constraints})
    assert [(b.dataset, b.epsilon, b.delta) for b in specified.bounds] == [
        (b.dataset, b.epsilon, b.delta) for b in shipped.bounds
    ]
    ours = [json.loads(checked(change).contract or b"{}") for change in ({}, {"constraints": constraints})]
    assert ours[0].pop("purpose") != ours[1].pop("purpose")
    assert ours[0] == ours[1]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"data|0|privacy": GONE}, "field_missing", "contract.constraints.data[0].privacy"),
        ({"data|0|privacy|epsilon": "null"}, "number_null", "contract.constraints.data[0].privacy.epsilon"),
        (
            {"data|0|privacy|epsilon_threshold": "1"},
            "field_unknown",
            "contract.constraints.data[0].privacy.epsilon_threshold",
        ),
        ({"data|0|join": ["ward"]}, "join_key_not_permitted", "pipeline.pipeline[0].config.joined_dataset.joining_key"),
        ({"data|1|join": [1]}, "field_type", "contract.constraints.data[1].join[0]"),
        ({"data|0|target_variables": ["age"]}, "target_not_permitted", f"{DATA}.target_variable"),
        ({"region": "IN"}, "field_unknown", "contract.constraints.region"),
    ],
)
def test_the_specification_s_spelling_is_as_strict(change: dict[str, Any], code: str, field: str) -> None:
    """Its own fields are held to, and those of the other spelling are unknown in it."""
    assert (code, field) in refusals(checked({"constraints": changed(SPECIFIED, change)}))


def test_the_specification_s_single_dataset_lacks_provider_and_key() -> None:
    """It can be read and is refused for what it does not say."""
    single = {"id": VISITS, "url": "u", "schema": "s", "sample": "t"}
    found = refusals(checked({"datasets": GONE, "dataset": single}))
    assert ("field_missing", "contract.dataset.provider") in found
    assert ("field_missing", "contract.dataset.key") in found


def test_the_same_id_with_another_payload_is_an_amendment() -> None:
    """The document of ours keeps the id, takes the version told, and names the payload by digest."""
    first = json.loads(checked().contract or b"{}")
    second = json.loads(checked({"terms|payment": {"amount": 1}}, version=2, runs=5).contract or b"{}")
    assert (first["id"], first["version"], first["runs_max"]) == (CONTRACT["id"], 1, 1)
    assert (second["id"], second["version"], second["runs_max"]) == (CONTRACT["id"], 2, 5)
    assert first["purpose"] != second["purpose"]
