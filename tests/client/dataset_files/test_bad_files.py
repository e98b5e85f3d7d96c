"""A provider's file or command with one fault: one sentence that names it, and nothing half-written."""

from __future__ import annotations

import io
import re
import resource
import subprocess
import sys
import tomllib
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from client.cli.main import app

CASES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("bad_files.toml").read_text("utf-8"))["case"]
REF = "did:web:hospital.example/patients/2026"
INPUTS, TARGETS = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])


def _archive(**arrays: Any) -> bytes:  # noqa: ANN401 - arrays of any type
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _beside(*members: tuple[str, bytes]) -> bytes:
    """An archive with more members than NumPy writes."""
    file = io.BytesIO(_archive(targets=TARGETS))
    with warnings.catch_warnings(), zipfile.ZipFile(file, "a") as archive:
        # Of a name that is there already.
        warnings.simplefilter("ignore")
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def _array(shape: str, described: str = "<f8") -> bytes:
    """An array's header, and numbers."""
    text = f"{{'descr': '{described}', 'fortran_order': False, 'shape': {shape}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


def _damaged() -> bytes:
    data = _archive(inputs=INPUTS, targets=TARGETS)
    at = data.index(INPUTS.tobytes()) + 17
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def _damaged_parquet() -> bytes:
    data = _parquet(pa.table({"x": np.arange(5_000.0), "y": np.arange(5_000) % 2}))
    return data[:100] + bytes(40) + data[140:]


def _latin_parquet() -> bytes:
    offsets, letters = np.arange(3, dtype="<i4").tobytes(), "éà".encode("latin-1")
    who = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(letters))
    return _parquet(pa.table({"who": who, "x": [1.0, 2.0], "y": [0, 1]}))


ARRAYS = {
    "no targets": _archive(inputs=INPUTS),
    "fewer targets": _archive(inputs=INPUTS, targets=TARGETS[:3]),
    "text": _archive(inputs=np.array([["a"], ["b"]]), targets=TARGETS[:2]),
    "objects": _archive(inputs=np.array([{}, {}], dtype=object), targets=TARGETS[:2]),
    "large": _archive(inputs=np.where(INPUTS == 3, 1e39, INPUTS), targets=TARGETS),
    "own person": _archive(inputs=INPUTS, targets=TARGETS, patients=np.arange(4), person=np.arange(4)),
    "twice": _archive(inputs=INPUTS, targets=TARGETS, patients=np.array([1, 2, 3, 2])),
    "nan": _archive(inputs=np.where(INPUTS == 5, np.nan, INPUTS), targets=TARGETS),
    "none": _archive(inputs=INPUTS[:0], targets=TARGETS[:0]),
    "cut": _archive(inputs=INPUTS, targets=TARGETS)[:-40],
    "damaged": _damaged(),
    "array twice": _beside(*[("inputs.npy", _array("(4, 2)}"))] * 2),
    "negative": _beside(("inputs.npy", _array("(4, -2)}"))),
    "huge": _beside(("inputs.npy", _array("(4, 99999999999999)}"))),
    "cut header": _beside(("inputs.npy", _array("((((4, 2)"))),
    "truths": _archive(inputs=INPUTS, targets=TARGETS > 0),
    "damaged parquet": _damaged_parquet(),
    "latin parquet": _latin_parquet(),
    "fortran": _archive(inputs=np.asfortranarray(INPUTS), targets=TARGETS),
}


def _prepare(case: dict[str, Any]) -> str:
    """The case's files, in the working folder; the name of the one that is sealed."""
    name = case.get("file", "data.csv")
    if "array" in case:
        Path(name).write_bytes(ARRAYS[case["array"]])
    elif "bytes" in case:
        Path(name).write_bytes(bytes.fromhex(case["bytes"]))
    elif "text" in case:
        Path(name).write_text(case["text"], encoding="utf-8")
    if "schema" in case:
        Path("schema.toml").write_text(case["schema"], encoding="utf-8")
    if "short_key" in case:
        Path(case["short_key"]).write_bytes(bytes(31))
        Path(case["short_key"]).chmod(0o600)
    return str(name)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_fault_is_one_sentence_and_leaves_nothing(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence, the next step, the exit code; no folder, no key, no leftover."""
    monkeypatch.chdir(tmp_path)
    name = _prepare(case)
    before = sorted(tmp_path.rglob("*"))
    out = [] if "--out" in case["args"] else ["--out", "out"]
    done = CliRunner().invoke(app, ["dataset", "seal", name, case.get("partition", REF), *case["args"], *out])
    assert done.exit_code == case["code"], done.output
    reported, then = done.stderr.splitlines()
    assert re.search(case["says"], reported), reported
    assert then.startswith("Nothing was recorded")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", [("seal", "data.csv", REF), ("commit", "data.csv")], ids=["seal", "commit"])
def test_a_disk_that_fills_leaves_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The folder that cannot be written is named as the user named it; keys that were made are gone again."""
    (tmp_path / "data.csv").write_text("a,y\n" + "".join(f"{one}.25,1\n" for one in range(20_000)))
    command = [sys.executable, "-m", "epsilon_ledger", "dataset", *words, "--target", "y"]
    done = subprocess.run(
        [*command, "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == "file: out: File too large"
    assert [one.name for one in tmp_path.iterdir()] == ["data.csv"]
