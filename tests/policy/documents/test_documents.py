"""Documents are read strictly: every field at its bounds, every fault by name, and nothing else comes out."""

import contextlib
import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.crypto.public_keys import PublicKey
from ledger.domain.gate import DOCUMENT_BYTES_MAX, POLICY_DOCUMENT_BYTES_MAX
from ledger.wire.canonical_json import dump
from ledger.wire.malformed import Malformed
from policy.checks.field_readers import Inconsistent, format_time, parse_time
from policy.documents import ContractDocument, DatasetDescription, DatasetName, Policy, Recommendation, StreamDocument
from tests.factories.decision_scene import CONTRACT, DATASET, PLAN, POLICY, RECOMMENDATION, STREAM
from tests.factories.path_changes import GONE, changed
from tests.factories.people import ATTESTER, BANK_A, CLINIC, HOSPITAL, SRO

Document = type[Policy | DatasetDescription | ContractDocument | Recommendation | StreamDocument]
READERS: dict[str, tuple[Document, dict[str, Any]]] = {
    "policy": (Policy, POLICY),
    "dataset": (DatasetDescription, DATASET),
    "contract": (ContractDocument, CONTRACT),
    "recommendation": (Recommendation, RECOMMENDATION),
    "stream": (StreamDocument, STREAM),
}
ATTESTERS = POLICY["attestation"]["attesters"]
SEALED = {"level": 2, "model_release": False, "partition_age_days_max": GONE}
COALITION = {"epsilon_max": "3", "members": [BANK_A, CLINIC], "name": "friends"}

FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("policy", {"kind": "contract"}, "kind"),
    ("policy", {"kind": GONE}, "kind"),
    ("policy", {"v": 2}, "v"),
    ("policy", {"v": True}, "v"),
    ("policy", {"budgets": {}}, "budgets"),
    ("policy", {"budget|epsilon_min": "1"}, "budget.epsilon_min"),
    ("policy", {"budget|delta_max": GONE}, "budget.delta_max"),
    ("policy", {"budget|epsilon_max": "NaN"}, "budget.epsilon_max"),
    ("policy", {"budget|epsilon_max": "-1"}, "budget.epsilon_max"),
    ("policy", {"budget|epsilon_max": "0"}, "budget.epsilon_max"),
    ("policy", {"budget|epsilon_max": "128.0000000001"}, "budget.epsilon_max"),
    ("policy", {"budget|epsilon_max": 8}, "budget.epsilon_max"),
    ("policy", {"budget|epsilon_max": "8.0"}, "budget.epsilon_max"),
    ("policy", {"budget|epsilon_max": " 8"}, "budget.epsilon_max"),
    ("policy", {"budget|epsilon_max": "1_0"}, "budget.epsilon_max"),
    ("policy", {"budget|epsilon_max": "1e1"}, "budget.epsilon_max"),
    ("policy", {"budget|delta_max": "1"}, "budget.delta_max"),
    ("policy", {"budget|delta_max": "0"}, "budget.delta_max"),
    ("policy", {"lineage|epsilon_max": "8.1"}, "lineage.epsilon_max"),
    ("policy", {"lineage|epsilon_max": "0"}, "lineage.epsilon_max"),
    ("policy", {"run|epsilon_max": "129"}, "run.epsilon_max"),
    ("policy", {"level": 3}, "level"),
    ("policy", {"level": -1}, "level"),
    ("policy", {"level": True}, "level"),
    ("policy", {"partition_age_days_max": GONE}, "partition_age_days_max"),
    ("policy", {"partition_age_days_max": None}, "partition_age_days_max"),
    ("policy", {"partition_age_days_max": 0}, "partition_age_days_max"),
    ("policy", {"level": 2}, "model_release"),
    ("policy", {"model_release": "true"}, "model_release"),
    ("policy", {"model_release": 1}, "model_release"),
    ("policy", {"version": 0}, "version"),
    ("policy", {"version": "1"}, "version"),
    ("policy", {"records_min": 0}, "records_min"),
    ("policy", {"issuer": "the SRO"}, "issuer"),
    ("policy", {"id": "a b"}, "id"),
    ("policy", {"domain": ""}, "domain"),
    ("policy", {"unit": "row"}, "unit"),
    ("policy", {"relation": "REPLACE"}, "relation"),
    ("policy", {"rules": []}, "rules"),
    ("policy", {"rules|0": "pld"}, "rules[0]"),
    ("policy", {"rules": ["renyi", "renyi"]}, "rules"),
    ("policy", {"mechanisms|0": "poison_gaussian"}, "mechanisms[0]"),
    ("policy", {"effective": "2026-01-01"}, "effective"),
    ("policy", {"effective": "2026-01-01T00:00:00+00:00"}, "effective"),
    ("policy", {"effective": "2026-02-29T00:00:00Z"}, "effective"),
    ("policy", {"effective": "2026-01-01T00:00:60Z"}, "effective"),
    ("policy", {"effective": "2026-01-01T00:00:00Z\n"}, "effective"),
    ("policy", {"effective": "２026-01-01T00:00:00Z"}, "effective"),
    ("policy", {"effective": "0000-01-01T00:00:00Z"}, "effective"),
    ("policy", {"effective": 1767225600}, "effective"),
    ("policy", {"attestation|attesters": []}, "attestation.attesters"),
    ("policy", {"attestation|attesters": ATTESTERS * 2}, "attestation.attesters"),
    ("policy", {"attestation|attesters|0|key|d": "secret"}, "attestation.attesters[0].key.d"),
    ("policy", {"attestation|attesters|0|key|crv": "X25519"}, "attestation.attesters[0].key"),
    ("policy", {"attestation|attesters|0|jku": "https://a.example"}, "attestation.attesters[0].jku"),
    ("policy", {"attestation|claims": {}}, "attestation.claims"),
    ("policy", {"attestation|claims": {"swversion": "1"}}, "attestation.claims.swname"),
    ("policy", {"attestation|claims|dbgstat": "enabled"}, "attestation.claims.dbgstat"),
    ("policy", {"attestation|claims|swname": None}, "attestation.claims.swname"),
    ("policy", {"attestation|claims|swname": ["a"]}, "attestation.claims.swname"),
    ("policy", {"attestation|claims": {str(n): 1 for n in range(33)}}, "attestation.claims"),
    ("policy", {"levels": []}, "levels"),
    ("policy", {"levels": [{"dataset": "a", "level": 3, "provider": HOSPITAL}]}, "levels[0].level"),
    ("policy", {"levels": [{"dataset": "a", "provider": HOSPITAL}]}, "levels[0].level"),
    (
        "policy",
        {"levels": [{"dataset": "a", "level": one, "provider": HOSPITAL} for one in (0, 1)]},
        "levels",
    ),
    (
        "policy",
        {"level": 0, "partition_age_days_max": GONE, "levels": [{"dataset": "a", "level": 1, "provider": HOSPITAL}]},
        "partition_age_days_max",
    ),
    ("policy", {"sealed": {"everyone": "caps", "inference": "attested"}}, "sealed"),
    ("policy", {**SEALED, "sealed": {"everyone": "caps", "inference": "private_prediction"}}, "sealed.inference"),
    ("policy", {**SEALED, "sealed": {"everyone": "none", "inference": "attested"}}, "sealed.everyone"),
    ("policy", {"model_release": False, "watermark": True}, "watermark"),
    ("policy", {"model_release": False, "notice_hours": 1}, "notice_hours"),
    ("policy", {"notice_hours": 8_761}, "notice_hours"),
    ("policy", {"watermark": "yes"}, "watermark"),
    ("policy", {"tuning": "free"}, "tuning"),
    ("policy", {"tuning": "public", "mechanisms|1": "repeat_and_select"}, "mechanisms"),
    ("policy", {"alerts": ["0.5", "0.5"]}, "alerts"),
    ("policy", {"alerts": ["0.9", "0.5"]}, "alerts"),
    ("policy", {"alerts": ["0.5"], "shared_accounts": "rounded_decisions"}, "alerts"),
    ("policy", {"register": ["level", "spent"], "shared_accounts": "rounded_decisions"}, "register"),
    ("policy", {"register": ["runs"], "shared_accounts": "rounded_decisions"}, "register"),
    ("policy", {"shared_accounts": "counted"}, "shared_accounts"),
    ("policy", {"alerts": ["1.0001"]}, "alerts[0]"),
    ("policy", {"alerts": ["0"]}, "alerts[0]"),
    ("policy", {"quota": {"share_max": "2"}}, "quota.share_max"),
    ("policy", {"quota": {}}, "quota.share_max"),
    ("policy", {"coalitions": [{**COALITION, "members": [BANK_A]}]}, "coalitions[0].members"),
    ("policy", {"coalitions": [{**COALITION, "members": [BANK_A, BANK_A]}]}, "coalitions[0].members"),
    ("policy", {"coalitions": [{**COALITION, "epsilon_max": "8.1"}]}, "coalitions[0].epsilon_max"),
    ("policy", {"coalitions": [COALITION, {**COALITION, "epsilon_max": "2"}]}, "coalitions"),
    ("policy", {"load": {**PLAN, "steps": 0}}, "load.steps"),
    ("policy", {"load": PLAN, "mechanisms": ["laplace"]}, "load"),
    ("policy", {"run|delta_max": "1"}, "run.delta_max"),
    ("policy", {"run|noise_multiplier_min": "0"}, "run.noise_multiplier_min"),
    ("policy", {"run|probability_max": "1.1"}, "run.probability_max"),
    ("policy", {"run|steps_max": 0}, "run.steps_max"),
    ("policy", {"run|mechanisms": ["laplace"]}, "run.mechanisms"),
    ("policy", {"lineage|delta_max": "0"}, "lineage.delta_max"),
    ("policy", {"commitments": 1}, "commitments"),
    ("policy", {"pipeline": "required"}, "pipeline"),
    ("contract", {"audit": {"canaries_max": 0, "partitions": [f"{HOSPITAL}/digits/2026-q1"]}}, "audit.canaries_max"),
    ("contract", {"audit": {"canaries_max": 9, "partitions": []}}, "audit.partitions"),
    ("contract", {"audit": {"canaries_max": 9, "partitions": ["2026-q1"]}}, "audit.partitions[0]"),
    ("contract", {"audit": {"canaries_max": 9, "partitions": [f"{HOSPITAL}/letters/1"]}}, "audit.partitions[0]"),
    ("recommendation", {"kind": "policy"}, "kind"),
    ("stream", {"appearances_max": 0}, "appearances_max"),
    ("stream", {"appearances_max": 65}, "appearances_max"),
    ("stream", {"appearances_max": 1, "persons": "declared"}, "persons"),
    ("stream", {"budget|delta": "1"}, "budget.delta"),
    ("stream", {"budget|delta": "0.00000000001", "appearances_max": 2}, "budget.delta"),
    ("stream", {"budget|epsilon": "0"}, "budget.epsilon"),
    ("stream", {"budget|epsilon": "128.1"}, "budget.epsilon"),
    ("stream", {"life_days": 0}, "life_days"),
    ("stream", {"period": "year"}, "period"),
    ("stream", {"prices": [1]}, "prices"),
    ("stream", {"slack": "0.00001"}, "slack"),
    ("stream", {"unit": "user"}, "unit_records_max"),
    ("stream", {"unit_records_max": 2}, "unit_records_max"),
    ("stream", {"window_max": 1025}, "window_max"),
    ("recommendation", {"budget|epsilon_max": "129"}, "budget.epsilon_max"),
    ("recommendation", {"version": 0}, "version"),
    ("recommendation", {"issuer": "tso"}, "issuer"),
    ("dataset", {"membership": ""}, "membership"),
    ("dataset", {"records_min": 0}, "records_min"),
    ("contract", {"share_max": "0"}, "share_max"),
    ("contract", {"run|mechanisms": []}, "run.mechanisms"),
    ("contract", {"run|delta_max": "0"}, "run.delta_max"),
    ("dataset", {"kind": "policy"}, "kind"),
    ("dataset", {"records": 5}, "records"),
    ("dataset", {"provider": "hospital"}, "provider"),
    ("dataset", {"id": "a/b"}, "id"),
    ("dataset", {"domain": "a/b"}, "domain"),
    ("dataset", {"schema": ""}, "schema"),
    ("dataset", {"schema": "s" * 20_001}, "schema"),
    ("dataset", {"unit": "row"}, "unit"),
    ("dataset", {"deidentification": GONE}, "deidentification"),
    ("contract", {"kind": "dataset"}, "kind"),
    ("contract", {"epsilon": "1"}, "epsilon"),
    ("contract", {"tdps": []}, "tdps"),
    ("contract", {"tdps": [HOSPITAL, HOSPITAL]}, "tdps"),
    ("contract", {"tdps|0": "hospital"}, "tdps[0]"),
    ("contract", {"tdc": "bank"}, "tdc"),
    ("contract", {"tdps": [CLINIC]}, "datasets[0].provider"),
    ("contract", {"datasets": []}, "datasets"),
    ("contract", {"datasets": CONTRACT["datasets"] * 2}, "datasets"),
    ("contract", {"datasets|0|key": "k1"}, "datasets[0].key"),
    ("contract", {"datasets|0|dataset": ""}, "datasets[0].dataset"),
    ("contract", {"purpose": ""}, "purpose"),
    ("contract", {"ends": CONTRACT["starts"]}, "ends"),
    ("contract", {"starts": "2027-01-01T00:00:00Z"}, "ends"),
    ("contract", {"runs_max": 0}, "runs_max"),
    ("contract", {"runs_max": "3"}, "runs_max"),
    ("contract", {"run": {}}, "run.epsilon_max"),
    ("contract", {"run|epsilon_max": "-2"}, "run.epsilon_max"),
    ("contract", {"lineage": {"epsilon_max": "0"}}, "lineage.epsilon_max"),
    ("contract", {"lineage": None}, "lineage"),
]
WITHIN: list[tuple[str, dict[str, Any]]] = [
    ("policy", {"budget|epsilon_max": "128"}),
    ("policy", {"lineage|epsilon_max": "8"}),
    ("policy", {"budget|delta_max": "0.999"}),
    ("policy", {"level": 0, "partition_age_days_max": GONE}),
    ("policy", {"level": 2, "model_release": False, "partition_age_days_max": GONE}),
    ("policy", {"partition_age_days_max": 1}),
    ("policy", {**SEALED, "sealed": {"everyone": "watched", "inference": "attested"}}),
    (
        "policy",
        {"level": 2, "levels": [{"dataset": "a", "level": 0, "provider": HOSPITAL}], "partition_age_days_max": GONE},
    ),
    ("policy", {"tuning": "public"}),
    ("policy", {"tuning": "charged", "mechanisms|1": "repeat_and_select"}),
    ("policy", {"alerts": ["0.5", "0.500001", "1"]}),
    ("policy", {"register": ["budget", "level", "unit"], "shared_accounts": "rounded_decisions"}),
    ("policy", {"quota": {"share_max": "1"}}),
    ("policy", {"coalitions": [{**COALITION, "epsilon_max": "8"}]}),
    ("policy", {"load": PLAN, "notice_hours": 8_760, "watermark": True}),
    ("recommendation", {"budget|epsilon_max": "128"}),
    ("stream", {"appearances_max": 64, "window_max": 1024}),
    ("stream", {"budget|delta": "0"}),
    ("stream", {"period": "by_hand", "persons": "committed"}),
    ("policy", {"attestation|claims": {"swname": "a", "secboot": True, "hwversion": 3}}),
    ("policy", {"effective": "2028-02-29T23:59:59Z"}),
    ("dataset", {"schema": "s" * 20_000}),
    ("contract", {"ends": "2026-02-01T00:00:01Z"}),
    ("contract", {"lineage": {"epsilon_max": "5"}}),
]


@pytest.mark.parametrize(("kind", "change", "field"), FAULTS)
def test_each_fault_is_named_by_its_field(kind: str, change: dict[str, Any], field: str) -> None:
    """One wrong field, one error that names it."""
    reader, base = READERS[kind]
    with pytest.raises(Malformed) as caught:
        reader.parse(json.dumps(changed(base, change)).encode())
    assert caught.value.field == field


@pytest.mark.parametrize(("kind", "change"), WITHIN)
def test_each_bound_itself_is_within(kind: str, change: dict[str, Any]) -> None:
    """The near side of each edge."""
    reader, base = READERS[kind]
    assert isinstance(reader.parse(dump(changed(base, change))), reader)


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"policy","kind":"policy"}',
        '{"kind":"policy","v":1.0}',
        '{"kind":"policy","v":NaN}',
        '{"kind":"policy","v":1e2}',
        '{"kind":"policy","v":12345678901234567890}',
        '{"kind":"\\ud800"}',
        "[" * 1000 + "]" * 1000,
        "[" * 100_000,
        "[]",
        "null",
        "",
        "\ufeff{}",
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    """Repeated names, floats, depth and stray text end as a named error."""
    for reader, _ in READERS.values():
        with pytest.raises(Malformed):
            reader.parse(text.encode())


def test_size_is_bounded() -> None:
    """The largest document is read, one byte more is not even decoded."""
    data = dump(POLICY)
    assert Policy.parse(data + b" " * (POLICY_DOCUMENT_BYTES_MAX - len(data))) == Policy.parse(data)
    with pytest.raises(Malformed, match="more than the 2097152 allowed"):
        Policy.parse(data + b" " * (POLICY_DOCUMENT_BYTES_MAX - len(data) + 1))
    with pytest.raises(Malformed, match="more than the 2097152 allowed"):
        Policy.parse(b"\xff" * 4_194_304)
    for reader, example in (one for one in READERS.values() if one[0] is not Policy):
        text = dump(example)
        assert reader.parse(text + b" " * (DOCUMENT_BYTES_MAX - len(text))).source
        with pytest.raises(Malformed, match="more than the 262144 allowed"):
            reader.parse(text + b" " * (DOCUMENT_BYTES_MAX - len(text) + 1))


def test_a_policy_sets_levels_for_ten_thousand_datasets() -> None:
    """As JSON and as YAML; each dataset has its own Level, any other the domain's; one more is too many."""
    rows = [
        {"dataset": f"scans-{n}", "level": n % 2 * 2, "provider": f"did:web:hospital-{n % 9}.example"}
        for n in range(10_000)
    ]
    long = {**POLICY, "level": 0, "levels": rows}
    yaml = b"".join(dump({name: value})[1:-1].replace(b":", b": ", 1) + b"\n" for name, value in long.items())
    read = Policy.parse(dump(long))
    assert Policy.parse(yaml) == read
    assert [read.level_of(str(one["provider"]), str(one["dataset"])) for one in rows] == [one["level"] for one in rows]
    assert read.level_of("did:web:hospital-0.example", "scans-10000") == 0
    with pytest.raises(Malformed, match="levels"):
        Policy.of({**long, "levels": [*rows, {**rows[0], "dataset": "more"}]})
    with pytest.raises(Inconsistent, match="gives a dataset two Levels"):
        Policy.of({**long, "levels": [*rows[1:], {**rows[1], "level": 0}]})


def test_a_document_that_contradicts_itself_is_told_apart() -> None:
    """Fields that can be read but not together are Inconsistent, a kind of Malformed."""
    for kind, change in (
        ("policy", {"partition_age_days_max": GONE}),
        ("policy", {"level": 2}),
        ("policy", {"lineage|epsilon_max": "8.1"}),
        ("contract", {"ends": CONTRACT["starts"]}),
        ("contract", {"tdps": [CLINIC]}),
    ):
        reader, base = READERS[kind]
        with pytest.raises(Inconsistent):
            reader.parse(dump(changed(base, change)))


def test_values_are_read_as_written() -> None:
    """Times as milliseconds, numbers as exact fractions, keys as keys."""
    policy, contract = Policy.parse(dump(POLICY)), ContractDocument.parse(dump(CONTRACT))
    assert policy.effective == 1_767_225_600_000
    assert (policy.budget.epsilon_max, policy.budget.delta_max) == (Fraction(8), Fraction(1, 100_000))
    assert (policy.lineage.epsilon_max, policy.run.epsilon_max) == (Fraction(6), Fraction(5, 2))
    assert (policy.issuer, policy.level, policy.partition_age_days_max) == (SRO, 1, 90)
    assert policy.attestation.attesters[0].issuer == ATTESTER
    assert policy.attestation.attesters[0].pinned == (PublicKey.parse(ATTESTERS[0]["key"], "key", "Ed25519"),)
    assert policy.attestation.claims == (("swname", "trainer"),)
    assert contract.parties == (HOSPITAL, BANK_A)
    assert contract.datasets == (DatasetName("digits", HOSPITAL),)
    assert contract.lineage is None
    assert contract.source == "contract digits-bank-a version 1"


@given(st.integers(min_value=-62_135_596_800, max_value=253_402_300_799))
def test_times_survive_the_round_trip(seconds: int) -> None:
    """Formatting a whole second and reading it gives the same milliseconds."""
    assert parse_time(format_time(seconds * 1000), "time") == seconds * 1000


WORDS = st.sampled_from(
    [
        "policy",
        "dataset",
        "contract",
        "record",
        "renyi",
        "1",
        "0.5",
        "1/3",
        "NaN",
        "-1",
        HOSPITAL,
        BANK_A,
        "2026-01-01T00:00:00Z",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Document, bytes]:
    """A document with one value, at any depth, replaced, taken away, or joined by an unknown one."""
    reader, base = draw(st.sampled_from(sorted(READERS.values(), key=lambda pair: pair[0].__name__)))
    value: Any = changed(base, {})
    place = value
    while True:
        spot = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
        if not isinstance(place[spot], dict | list) or not place[spot] or draw(st.booleans()):
            break
        place = place[spot]
    act = draw(st.sampled_from(["replace", "remove", "join"]))
    if act == "replace":
        place[spot] = draw(VALUES)
    elif act == "remove":
        del place[spot]
    else:
        place.update({draw(WORDS): draw(VALUES)}) if isinstance(place, dict) else place.append(draw(VALUES))
    return reader, json.dumps(value).encode()


@settings(max_examples=200, deadline=None)
@given(damaged())
def test_nothing_but_a_value_or_malformed_comes_of_damaged_fields(case: tuple[Document, bytes]) -> None:
    """Whatever stands in a field: a document, or an error by name."""
    reader, data = case
    with contextlib.suppress(Malformed):
        assert isinstance(reader.parse(data), reader)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.data())
def test_nothing_but_a_value_or_malformed_comes_of_damaged_bytes(kind: str, data: st.DataObject) -> None:
    """A slice of the bytes replaced by any others: a document, or an error by name."""
    reader, base = READERS[kind]
    text = dump(base)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    with contextlib.suppress(Malformed):
        assert isinstance(reader.parse(text[:start] + data.draw(st.binary(max_size=8)) + text[end:]), reader)
