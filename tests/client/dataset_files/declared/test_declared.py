"""What a provider declares of its records: sealed with them, kept by what is sealed, and the same when it is read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner

from client.cli.main import app
from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.declared.declaration import Declaration
from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import SEALED, open_records, seal_dataset
from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import StoredPartition
from ledger.wire.malformed import Malformed

REF = "did:web:clinic.example/visits/2026"
SCHEMA = """
v = 1
[records]
target = "ill"
records_max = 3
[records.bounds]
age = ["-0.1", "0.3"]
[records.categories]
vaccine = ["1", "2.5"]
ill = ["0", "1"]
"""
DECIMALS = st.integers(-900, 900).map(lambda hundredths: f"{hundredths / 100:g}")


def _sealed(folder: Path, text: str, schema: str = SCHEMA) -> SealedRecords:
    table, described = folder / "visits.csv", folder / "schema.toml"
    table.write_text(text, encoding="utf-8")
    described.write_text(schema, encoding="utf-8")
    made = seal_dataset(open_records(table, RecordSchema.load(described)), REF, folder / "out", None, None)
    found = StoredPartition(made.folder / SEALED).open(made.data_key.read_bytes(), REF)
    assert isinstance(found, SealedRecords)
    return found


def test_what_is_declared_is_sealed_with_the_records(tmp_path: Path) -> None:
    """The edges themselves are within, after rounding to 32 bits too; what was sealed keeps what is read back."""
    found = _sealed(tmp_path, "age,vaccine,ill\n-0.1,1,0\n0.3,2.5,1\n0,1,1\n")
    declared = found.layout.declared
    assert declared == Declaration(
        {"age": ColumnRule(bounds=("-0.1", "0.3")), "vaccine": ColumnRule(categories=("1", "2.5"))},
        ColumnRule(categories=("0", "1")),
        3,
    )
    arrays = found.arrays()
    assert arrays["inputs"].dtype == np.float32
    assert not declared.broken_by(arrays, found.layout.columns)


def test_the_provider_reads_what_was_declared(tmp_path: Path) -> None:
    """On the screen by column, and in the report as it is sealed."""
    (tmp_path / "visits.csv").write_text("age,vaccine,ill\n0,1,0\n", encoding="utf-8")
    (tmp_path / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    command = ["dataset", "seal", str(tmp_path / "visits.csv"), REF, "--out", str(tmp_path / "out"), "--no-commitments"]
    done = CliRunner().invoke(app, [*command, "--schema", str(tmp_path / "schema.toml")])
    assert done.exit_code == 0, done.output
    assert "holds the records to it: which numbers age, vaccine, the target may hold; at most 3 records" in done.output
    report = json.loads((tmp_path / "out" / "secret" / "report.json").read_text())
    assert report["declared"]["columns"]["vaccine"] == {"categories": ["1", "2.5"]}


def test_a_schema_that_declares_nothing_seals_no_declaration(tmp_path: Path) -> None:
    """So that a clean room of before opens the file."""
    found = _sealed(tmp_path, "age,ill\n7,1\n", 'v = 1\n[records]\ntarget = "ill"\n')
    assert found.layout.declared is None
    assert "declared" not in found.layout.to_json(1, 1)


def _kept(rule: ColumnRule, number: float) -> bool:
    """As one reads the rule, number by number."""
    if rule.bounds is not None:
        lower, upper = map(float, rule.bounds)
        return not math.isnan(number) and lower <= number <= upper
    return any(float(one) == number for one in rule.categories)


RULES = st.one_of(
    st.tuples(DECIMALS, DECIMALS).map(lambda pair: ColumnRule(bounds=(min(pair, key=float), max(pair, key=float)))),
    st.lists(DECIMALS, min_size=1, max_size=4, unique_by=float).map(lambda some: ColumnRule(categories=tuple(some))),
)


@given(RULES, st.lists(st.one_of(DECIMALS.map(float), st.just(math.nan), st.just(math.inf)), max_size=8))
def test_a_rule_keeps_the_numbers_that_it_says(rule: ColumnRule, numbers: list[float]) -> None:
    """In 64 bits, in 32, and as it is read back."""
    again = ColumnRule.parse(rule.to_json(), "rule")
    for kind in (np.float64, np.float32):
        assert again.fits(np.array(numbers, kind)).tolist() == [_kept(rule, number) for number in numbers]


DECLARED = Declaration({"b": ColumnRule(bounds=("0", "1"))}, ColumnRule(categories=("0", "1")), 9)


@pytest.mark.parametrize(
    ("inputs", "targets", "words"),
    [
        ([[5, 0], [-7, 1]], [0, 1], ""),
        ([[5, 0], [-7, 1.5]], [0, 1], "column b is not within its declared bounds"),
        ([[5, 0], [-7, 1]], [0, 2], "the target is none of its declared categories"),
    ],
)
def test_what_breaks_it_is_named_without_a_value(inputs: Any, targets: Any, words: str) -> None:  # noqa: ANN401 - a case's arrays
    """By column, never by record: what the clean room says may leave it."""
    arrays: dict[str, NDArray[Any]] = {"inputs": np.array(inputs, np.float32), "targets": np.array(targets)}
    assert DECLARED.broken_by(arrays, ("a", "b")) == words


def test_a_column_that_is_not_there_breaks_it() -> None:
    """And so does a target."""
    arrays: dict[str, NDArray[Any]] = {"inputs": np.zeros((2, 1), np.float32), "targets": np.zeros(2)}
    assert DECLARED.broken_by(arrays, ("a",)) == "column b is not within its declared bounds"
    assert DECLARED.broken_by({"inputs": np.zeros((2, 2), np.float32)}, ("a", "b")).startswith("the target")
    assert DECLARED.broken_by({"targets": np.zeros(2)}, ("a", "b")).startswith("column b")
    # Names that go on beyond the inputs, and inputs of one number a record: the description is their provider's.
    assert DECLARED.broken_by(arrays, ("a", "b")).startswith("column b")
    assert DECLARED.broken_by({"inputs": np.zeros(2, np.float32), "targets": np.zeros(2)}, ("b",)).startswith(
        "column b"
    )


@given(RULES, st.sets(st.integers(-9, 9).map(float)))
def test_a_rule_is_within_values_if_no_other_number_keeps_it(rule: ColumnRule, values: set[float]) -> None:
    """Of bounds never, since other numbers lie between them."""
    assert rule.within(values) == (rule.bounds is None and {float(one) for one in rule.categories} <= values)


def test_an_archive_declares_by_array(tmp_path: Path) -> None:
    """Each number of an array keeps its rule, and the target is ``targets``; what the rule leaves out is refused."""
    schema = tmp_path / "schema.toml"
    schema.write_text(
        'v = 1\n[records]\ntarget = "targets"\nrecords_max = 2\n[records.bounds]\n"inputs.age" = ["0", "120"]\n'
        '[records.categories]\ntargets = ["0", "1"]\n',
        encoding="utf-8",
    )
    arrays = {"inputs.age": np.array([[0.0, 120.0], [7.0, 8.0]]), "inputs.x": np.zeros(2), "targets": np.array([0, 1])}

    def sealed(name: str, **changed: Any) -> SealedRecords:  # noqa: ANN401 - arrays
        path = tmp_path / f"{name}.npz"
        np.savez(path, **{**arrays, **changed})
        made = seal_dataset(open_records(path, RecordSchema.load(schema)), REF, tmp_path / name, None, None)
        found = StoredPartition(made.folder / SEALED).open(made.data_key.read_bytes(), REF)
        assert isinstance(found, SealedRecords)
        return found

    found = sealed("kept")
    assert found.layout.declared == Declaration(
        {"inputs.age": ColumnRule(bounds=("0", "120"))}, ColumnRule(categories=("0", "1")), 2
    )
    assert not found.layout.declared.broken_by(found.arrays(), ())
    with pytest.raises(Malformed, match=r"array inputs\.age of record 2 is not within its declared bounds"):
        sealed("age", **{"inputs.age": np.array([[0.0, 1.0], [7.0, 121.0]])})
    with pytest.raises(Malformed, match="array targets of record 1 is none of its declared categories"):
        sealed("class", targets=np.array([2, 0]))
    with pytest.raises(Malformed, match="more records than records_max declares, which is 2"):
        sealed("rows", **{name: np.concatenate([one, one]) for name, one in arrays.items()})
    schema.write_text(schema.read_text().replace("inputs.age", "age"))
    with pytest.raises(Malformed, match=r"are of age: of an archive they are of inputs\.age, inputs\.x or targets"):
        sealed("else")


def test_several_targets_keep_one_rule(tmp_path: Path) -> None:
    """The same of each of them: a declaration has one of all its numbers."""
    schema = 'v = 1\n[records]\ntarget = ["a", "b"]\ninputs = ["x"]\n[records.categories]\na = ["0", "1"]\n'
    with pytest.raises(Malformed, match="must be the same for all target columns"):
        _sealed(tmp_path, "x,a,b\n1,0,1\n", schema)
    found = _sealed(tmp_path, "x,a,b\n1,0,1\n", f'{schema}b = ["0", "1"]\n')
    assert found.layout.declared == Declaration(target=ColumnRule(categories=("0", "1")))


def test_classes_are_declared_by_their_places(tmp_path: Path) -> None:
    """So that a clean room may count them."""
    schema = 'v = 1\n[records]\ntarget = "ill"\nclasses = ["no", "yes"]\n'
    found = _sealed(tmp_path, "age,ill\n7,yes\n", schema)
    assert found.layout.declared == Declaration(target=ColumnRule(categories=("0", "1")))


@pytest.mark.parametrize(
    "value",
    [
        {"columns": {"a": {}}},
        {"columns": {"a": {"bounds": ["0", "1"], "categories": ["0"]}}},
        {"columns": {"a": {"bounds": [0, 1]}}},
        {"columns": {"a": {"bounds": ["1", "0"]}}},
        {"target": {"categories": ["0", "0.0"]}},
        {"records_max": 0},
        {"person_records_max": 1_025},
        {"rows": 3},
    ],
)
def test_a_declaration_has_one_form(value: Any) -> None:  # noqa: ANN401 - JSON
    """What a description holds is parsed as strictly as the rest of it."""
    with pytest.raises(Malformed):
        Declaration.parse(value, "data.declared")
