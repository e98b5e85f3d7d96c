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
    assert not declared.broken_by(arrays["inputs"], arrays["targets"], found.layout.columns)


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
        ([[5, 0], [np.nan, 1]], [0, 1], "an input holds what is no finite number"),
        ([[5, 0], [np.inf, 1]], [0, 1], "an input holds what is no finite number"),
        ([[5, 0], [-7, 1]], [0, 2], "the target is none of its declared categories"),
        ([[5, 0], [-7, 1]], [0.0, np.nan], "the target holds what is no finite number"),
    ],
)
def test_what_breaks_it_is_named_without_a_value(inputs: Any, targets: Any, words: str) -> None:  # noqa: ANN401 - a case's arrays
    """By column, never by record: what the clean room says may leave it."""
    assert DECLARED.broken_by(np.array(inputs, np.float32), np.array(targets), ("a", "b")) == words


def test_a_column_that_is_not_there_breaks_it() -> None:
    """And so does a target."""
    inputs = np.zeros((2, 1), np.float32)
    assert DECLARED.broken_by(inputs, np.zeros(2), ("a",)) == "column b is not within its declared bounds"
    assert DECLARED.broken_by(np.zeros((2, 2), np.float32), None, ("a", "b")).startswith("the target")


@pytest.mark.parametrize(
    "value",
    [
        {"columns": {"a": {}}},
        {"columns": {"a": {"bounds": ["0", "1"], "categories": ["0"]}}},
        {"columns": {"a": {"bounds": [0, 1]}}},
        {"columns": {"a": {"bounds": ["1", "0"]}}},
        {"target": {"categories": ["0", "0.0"]}},
        {"records_max": 0},
        {"rows": 3},
    ],
)
def test_a_declaration_has_one_form(value: Any) -> None:  # noqa: ANN401 - JSON
    """What a description holds is parsed as strictly as the rest of it."""
    with pytest.raises(Malformed):
        Declaration.parse(value, "data.declared")
