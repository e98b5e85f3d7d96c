"""``epsilon dataset seal`` and ``commit``: the same records from CSV, Parquet, a folder or an archive."""

from __future__ import annotations

import csv
import hashlib
import hmac
import json
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from typer.testing import CliRunner

from client.cli.main import app
from client.dataset_files import table_chunks
from client.dataset_files.record_commitments import read_or_make_key
from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import open_records, seal_dataset
from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import StoredPartition
from policy.documents.partition_commitments import Stored, read_commitments

REF = "did:web:hospital.example/patients/2026"
AGES, SEXES = [40, 51, 63, 40, 72], ["f", "m", "m", "f", "f"]
WEIGHTS, PATIENTS = ["60.5", "", "81", "60.5", "70"], ["p1", "p2", "p3", "p1", "p4"]
DIAGNOSES = ["B", "M", "B", "B", "M"]
OPTIONS = ["--target", "diagnosis", "--classes", "B,M", "--values", "sex=f,m", "--missing", "weight=-1"]
COLUMNS = [*OPTIONS, "--inputs", "age,sex,weight"]
INPUTS = np.array([[40, 1, 0, 60.5], [51, 0, 1, -1], [63, 0, 1, 81], [40, 1, 0, 60.5], [72, 1, 0, 70]], np.float32)


def _write_csv(path: Path, start: int = 0, end: int = 5) -> None:
    rows = list(zip(AGES, SEXES, WEIGHTS, PATIENTS, DIAGNOSES, strict=True))[start:end]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("age", "sex", "weight", "patient", "diagnosis"), *rows])


def _write_parquet(path: Path) -> None:
    weights = [float(one) if one else None for one in WEIGHTS]
    columns = {"age": AGES, "sex": SEXES, "weight": weights, "patient": PATIENTS, "diagnosis": DIAGNOSES}
    parquet.write_table(pa.table(columns), path)


def _seal(file: Path, out: Path, *options: str) -> Any:  # noqa: ANN401 - JSON
    command = ["dataset", "seal", str(file), REF, "--out", str(out), "--json", *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def _arrays(out: Path) -> dict[str, NDArray[Any]]:
    found = StoredPartition(out / "share" / "records.sealed").open((out / "secret" / "data.key").read_bytes(), REF)
    assert isinstance(found, SealedRecords)
    return dict(found.arrays())


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_a_table_is_the_same_records_whatever_file_it_is(tmp_path: Path, kind: str) -> None:
    """Text by the listed values, empty cells by what stands for them, users by number, classes by place."""
    path = tmp_path / f"data.{kind}"
    if kind == "folder":
        path.mkdir()
        _write_csv(path / "1.csv", 0, 2)
        _write_csv(path / "2.csv", 2)
        schema = 'v = 1\n[records]\ntarget = "diagnosis"\nclasses = ["B", "M"]\nuser = "patient"\n'
        schema += '[records.values]\nsex = ["f", "m"]\n[records.missing]\nweight = "-1"\n'
        (path / "schema.toml").write_text(schema)
        _seal(path, tmp_path / "out")
    else:
        (_write_csv if kind == "csv" else _write_parquet)(path)
        _seal(path, tmp_path / "out", *OPTIONS, "--user", "patient")
    found = _arrays(tmp_path / "out")
    assert np.array_equal(found["inputs"], INPUTS)
    assert found["targets"].tolist() == [0, 1, 0, 0, 1]
    assert found["users"].tolist() == [0, 1, 2, 0, 3]


def test_empty_cells_and_columns_that_are_left_out(tmp_path: Path) -> None:
    """An empty text is a value where the schema lists it; what programs write for no number is replaced."""
    cells = ("NA", "n/a", "None", "", "nan", "7")
    rows = "".join(f"c{place},{cell},{'' if place else 'f'},0\n" for place, cell in enumerate(cells))
    (tmp_path / "data.csv").write_text(f"case,weight,sex,y\n{rows}")
    (tmp_path / "schema.toml").write_text(
        'v = 1\n[records]\ntarget = "y"\nleave_out = ["case"]\n'
        '[records.values]\nsex = ["f", "", "m"]\n[records.missing]\nweight = "-1"\n'
    )
    _seal(tmp_path / "data.csv", tmp_path / "out", "--schema", str(tmp_path / "schema.toml"))
    found = _arrays(tmp_path / "out")["inputs"]
    assert found[:, 0].tolist() == [-1, -1, -1, -1, -1, 7]
    assert found[:, 1:].tolist() == [[1, 0, 0]] + [[0, 1, 0]] * 5


def test_an_archive_keeps_its_arrays(tmp_path: Path) -> None:
    """Types and shapes as they are; an identity beside them is not sealed; big-endian numbers become little."""
    images = np.arange(24, dtype=np.uint8).reshape(3, 2, 4)
    arrays: dict[str, Any] = {"inputs": images, "targets": np.array([1.5, 2, 3], ">f4"), "patient": np.array([7, 8, 9])}
    np.savez_compressed(tmp_path / "data.npz", **arrays)
    made = _seal(tmp_path / "data.npz", tmp_path / "out", "--identity", "patient")
    found = _arrays(tmp_path / "out")
    assert found.keys() == {"inputs", "person", "targets"}
    assert np.array_equal(found["inputs"], images)
    assert found["inputs"].dtype == np.uint8
    assert found["targets"].tolist() == [1.5, 2, 3]
    assert made["report"]["commitments"] == 3
    assert made["report"]["declared"] == {"person_records_max": 1}
    # Of its own file: another has other tokens of the same persons.
    _seal(tmp_path / "data.npz", tmp_path / "again", "--identity", "patient")
    both = np.concatenate([found["person"], _arrays(tmp_path / "again")["person"]])
    assert len(np.unique(both, axis=0)) == 6


def test_the_report_is_what_the_file_holds(tmp_path: Path) -> None:
    """Held to NumPy; it and the key can be read by their owner alone, and lie apart from what is shared."""
    _write_csv(tmp_path / "data.csv")
    made = _seal(tmp_path / "data.csv", tmp_path / "out", *OPTIONS, "--user", "patient")
    report = json.loads((tmp_path / "out" / "secret" / "report.json").read_text())
    assert report == made["report"]
    assert (report["records"], report["targets"]) == (5, {"B": 3, "M": 2})
    assert report["users"] == {"count": 4, "records_of_one_max": 2}
    ages = {name: float(one) for name, one in report["columns"]["age"].items()}
    assert ages == pytest.approx(
        {"least": 40, "greatest": 72, "mean": np.mean(AGES), "deviation": np.std(AGES)}, rel=1e-5
    )
    assert sorted(one.name for one in (tmp_path / "out" / "share").iterdir()) == ["commitments-1.bin", "records.sealed"]
    for name in ("secret", "secret/data.key", "secret/report.json"):
        assert stat.S_IMODE((tmp_path / "out" / name).stat().st_mode) & 0o077 == 0


def test_commitments_are_what_a_policy_reads(tmp_path: Path) -> None:
    """One a person, under one key for both commands, as the policy's own reader and an HMAC by hand say."""
    _write_csv(tmp_path / "data.csv")
    options = [*OPTIONS, "--identity", "patient", "--user", "patient"]
    made = _seal(tmp_path / "data.csv", tmp_path / "out", *options)
    key = (tmp_path / "commitments.key").read_bytes()
    (one,) = made["commitments"]
    data = Path(one["file"]).read_bytes()
    assert one["document"] == hashlib.sha256(data).hexdigest()
    assert read_commitments(Stored(one["document"], lambda: data)).count == 4
    persons = [hmac.digest(key, b'identity\n["%s"]' % name.encode(), "sha256") for name in set(PATIENTS)]
    assert data[-4 * 32 :] == b"".join(sorted(persons))
    command = ["dataset", "commit", str(tmp_path / "data.csv"), "--out", str(tmp_path / "again"), *options]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "again" / "share" / "commitments-1.bin").read_bytes() == data
    assert sorted(one.name for one in (tmp_path / "again").iterdir()) == ["share"]


def test_records_that_are_equal_are_stated_once(tmp_path: Path) -> None:
    """A partition that commits to its records states no more than are told apart; all of them are sealed."""
    (tmp_path / "data.csv").write_text("case,a,y\n1,5,0\n2,5,0\n3,6,1\n")
    reported = {}
    for name, options in {"numbers": ["--inputs", "a"], "persons": ["--inputs", "a", "--identity", "case"]}.items():
        command = ["dataset", "seal", str(tmp_path / "data.csv"), REF, "--target", "y", "--out", str(tmp_path / name)]
        done = CliRunner().invoke(app, [*command, *options])
        assert done.exit_code == 0, done.output
        assert "3 records sealed" in done.stdout
        reported[name] = "records that equal others: 1;" in done.stdout, 'says "records": 2,' in done.stdout
    assert reported == {"numbers": (True, True), "persons": (False, False)}


def test_keys_that_are_there_are_used_and_never_replaced(tmp_path: Path) -> None:
    """A data key in the provider's key store; one that others may read is refused."""
    _write_csv(tmp_path / "data.csv")
    key, made = read_or_make_key(tmp_path / "q1.key", "key")
    assert made
    _seal(tmp_path / "data.csv", tmp_path / "out", *COLUMNS, "--key", str(tmp_path / "q1.key"), "--no-commitments")
    assert (tmp_path / "q1.key").read_bytes() == key
    assert not (tmp_path / "out" / "secret" / "data.key").exists()
    assert not (tmp_path / "commitments.key").exists()
    assert StoredPartition(tmp_path / "out" / "share" / "records.sealed").open(key, REF)
    (tmp_path / "q1.key").chmod(0o644)
    command = ["dataset", "seal", str(tmp_path / "data.csv"), REF, "--out", str(tmp_path / "two"), *COLUMNS]
    done = CliRunner().invoke(app, [*command, "--key", str(tmp_path / "q1.key")])
    assert (done.exit_code, "may be read by others: chmod 600" in done.stderr) == (2, True)


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the records, the same peak, from CSV to sealed file."""
    monkeypatch.setattr(table_chunks, "CHUNK_RECORDS", 256)
    peaks = []
    for count in (5_120, 20_480):
        path = tmp_path / f"{count}.csv"
        path.write_text("a,b,y\n" + "".join(f"{one},-3.5,1\n" for one in range(count)))
        seen = []
        for number in range(3):
            records = open_records(path, RecordSchema(target=("y",)))
            tracemalloc.start()
            seal_dataset(records, REF, tmp_path / f"out-{count}-{number}", None, None)
            seen.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        # The least: threads of other tests may allocate meanwhile.
        peaks.append(min(seen))
    assert peaks[1] < 1.5 * peaks[0]


def test_sealing_needs_no_pytorch(tmp_path: Path) -> None:
    """Nor pyarrow, unless the file is Parquet; what is missing then is named with its extra."""
    _write_csv(tmp_path / "data.csv")
    _write_parquet(tmp_path / "data.parquet")
    script = (
        "import sys; sys.modules.update(torch=None, pyarrow=None); from epsilon_ledger.__main__ import main; main()"
    )
    for name, code in (("data.csv", 0), ("data.parquet", 2)):
        command = [sys.executable, "-c", script, "dataset", "seal", name, REF, "--out", name[5:], *COLUMNS]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert code == 0 or "needs pyarrow: pip install 'epsilon-ledger[parquet]'" in done.stderr


SPREAD = (
    "a user has up to 2 records: "
    "an ensemble with chunks_by = 'user' keeps them in one chunk, any other has them in as many"
)


@pytest.mark.parametrize(
    ("teachers", "options", "warning"),
    [
        ("5", ["--leave-out", "patient"], ""),
        ("6", ["--leave-out", "patient"], "5 records are fewer than 6 teachers: those without any give a fixed answer"),
        ("4", ["--user", "patient"], SPREAD),
        (
            "5",
            ["--user", "patient"],
            f"4 users are fewer than 5 teachers: those without any give a fixed answer\n{SPREAD}",
        ),
        ("0", ["--user", "patient"], ""),
    ],
)
def test_a_provider_is_warned_of_fewer_units_than_teachers_and_of_a_user_in_two_chunks(
    tmp_path: Path, teachers: str, options: list[str], warning: str
) -> None:
    """At sealing, on standard error; users count where the file has them. It seals all the same."""
    _write_csv(tmp_path / "data.csv")
    out = ["--out", str(tmp_path / "out"), "--json", "--teachers", teachers]
    command = ["dataset", "seal", str(tmp_path / "data.csv"), REF, *out, *OPTIONS, *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["report"]["records"] == 5
    assert done.stderr.strip() == warning
