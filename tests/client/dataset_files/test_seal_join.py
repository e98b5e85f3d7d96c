"""Tables that are sealed to be joined: the tokens, one person's rows, and what is refused by name."""

from __future__ import annotations

import csv
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from client.cli.main import app
from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import StoredPartition

REF = "did:web:hospital.example/tests/2026"


def _write(path: Path, *rows: tuple[str, ...]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def _table(folder: Path, *phones: str) -> Path:
    rows = [(phone, str(place), str(place % 2)) for place, phone in enumerate(phones)]
    return _write(folder / "tests.csv", ("phone", "load", "ill"), *rows)


def _seal(file: Path, *options: str) -> Result:
    command = ["dataset", "seal", str(file), REF, "--out", str(file.parent / "2026"), "--no-commitments", *options]
    return CliRunner().invoke(app, command)


def _arrays(folder: Path) -> dict[str, NDArray[Any]]:
    stored = StoredPartition(folder / "2026" / "share" / "records.sealed")
    opened = stored.open((folder / "2026" / "secret" / "data.key").read_bytes(), REF)
    assert isinstance(opened, SealedRecords)
    return dict(opened.arrays())


def test_a_token_is_the_keyed_hash_of_the_join_column(tmp_path: Path) -> None:
    """HMAC-SHA-256 under the providers' key; the column itself is no input; a target is not needed."""
    key = tmp_path / "join.key"
    done = _seal(_table(tmp_path, "98450", "98451"), "--join", "phone", "--join-key", str(key))
    assert done.exit_code == 0, done.output
    found = _arrays(tmp_path)
    assert sorted(found) == ["inputs", "join"]
    assert found["inputs"].tolist() == [[0, 0], [1, 1]]
    wanted = [
        hmac.new(key.read_bytes(), b'join\n["%s"]' % one, hashlib.sha256).digest() for one in (b"98450", b"98451")
    ]
    assert [row.tobytes() for row in found["join"]] == wanted
    assert key.stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_there_makes_the_same_tokens_for_another_provider(tmp_path: Path) -> None:
    """Spaces around a value are no part of it, and whole numbers of Parquet or CSV are spelled alike."""
    key, tokens = tmp_path / "join.key", []
    for name, phone in (("one", "98450"), ("two", " 98450 ")):
        (tmp_path / name).mkdir()
        done = _seal(_table(tmp_path / name, phone), "--join", "phone", "--join-key", str(key), "--target", "ill")
        assert done.exit_code == 0, done.output
        tokens.append(_arrays(tmp_path / name)["join"])
    assert tokens[0].tobytes() == tokens[1].tobytes()


@pytest.mark.parametrize(
    ("rows", "options", "error"),
    [
        (
            ("98450", "98451", "98450"),
            ("--join", "phone", "--join-key", "KEY"),
            "tests.csv: record 3 is of a person that another record has: a join takes 1 of each",
        ),
        (("98450", ""), ("--join", "phone", "--join-key", "KEY"), "column phone of record 2 is empty"),
        (("98450",), ("--join", "phone"), "--join-key: is needed with the join columns, and only there"),
        (("98450",), ("--join-key", "KEY", "--target", "ill"), "--join-key: is needed with the join columns"),
        (
            ("98450",),
            ("--join", "mobile", "--join-key", "KEY"),
            "--join: names the column mobile, which the table lacks",
        ),
        (
            ("98450",),
            ("--join", "phone", "--join-key", "KEY", "--inputs", "phone,load"),
            "name the column phone, which the table is joined by",
        ),
        (("98450",), (), "--target: is missing"),
    ],
)
def test_what_cannot_be_joined_is_refused_by_name(
    tmp_path: Path, rows: tuple[str, ...], options: tuple[str, ...], error: str
) -> None:
    """By option, column and record; no folder is left."""
    given = [one.replace("KEY", str(tmp_path / "join.key")) for one in options]
    done = _seal(_table(tmp_path, *rows), *given)
    assert done.exit_code == 2
    assert error in done.output
    assert not (tmp_path / "2026").exists()


def test_a_schema_may_allow_several_records_of_a_person(tmp_path: Path) -> None:
    """And no more than it says."""
    schema = tmp_path / "schema.toml"
    schema.write_text('v = 1\n[records]\njoin = "phone"\njoin_rows_max = 2\ntarget = "ill"\n')
    options = ("--schema", str(schema), "--join-key", str(tmp_path / "join.key"))
    more = _seal(_table(tmp_path, *["98450"] * 3), *options)
    assert "record 3 is of a person that 2 other records have: a join takes 2 of each" in more.output
    assert _seal(_table(tmp_path, *["98450"] * 2), *options).exit_code == 0
    both = _seal(_table(tmp_path, "98450"), *options, "--join", "phone")
    assert "--join: is given together with --schema" in both.output
