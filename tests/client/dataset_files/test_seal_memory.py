"""A CSV that memory does not hold: sealed by the command, with commitments, and read back at any place."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from client.dataset_files.record_commitments import COMMITTED_MAX

REF: Final = "did:web:hospital.example/patients/2026"
MIB: Final = 1 << 20
LIMIT: Final = 256 * MIB
"""On all private memory of each process, the interpreter's and NumPy's included."""
LARGE_MIB: Final = int(os.environ.get("EPSILON_SOAK_LARGE_MIB", "10240"))
READER: Final = f"""
import sys
from pathlib import Path
import numpy as np
from client.dataset_files.stored_partition import StoredPartition
out = Path(sys.argv[1])
found = StoredPartition(out / "share" / "records.sealed").open((out / "secret" / "data.key").read_bytes(), "{REF}")
places = np.linspace(0, len(found) - 1, 999).astype(np.int64)
rows = found.rows(places)
assert (rows["inputs"][:, 0] == (places % 1_000).astype(np.float32)).all()
assert (rows["targets"] == places % 2).all()
print(len(found))
"""


def _write(path: Path, mib: int, columns: int) -> int:
    """A table of so many columns of numbers beside its persons and targets; how many records it has."""
    more = ",".join(f"{place}.015625" for place in range(columns - 1))
    count, written = 0, 0
    with path.open("w", encoding="ascii") as file:
        names = ",".join(f"value {place}" for place in range(columns))
        file.write(f"person,{names},y\n")
        while written < mib * MIB:
            rows = "".join(f"p{one},{one % 1_000},{more},{one % 2}\n" for one in range(count, count + 1_024))
            written, count = written + file.write(rows), count + 1_024
    return count


def _limited(command: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT)),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.parametrize(("mib", "columns"), [(300, 30), (300, 150), (LARGE_MIB, 30)])
def test_a_csv_larger_than_memory_is_sealed_and_read(mib: int, columns: int) -> None:
    """300 MB and 10 GB of real text, each process within 256 MB; ``EPSILON_SOAK_FOLDER`` is a folder on a disk.

    With commitments where the records are no more than one partition can name.
    """
    with tempfile.TemporaryDirectory(dir=os.environ.get("EPSILON_SOAK_FOLDER", "/var/tmp")) as folder:  # noqa: S108 - a fresh folder of a disk
        assert shutil.disk_usage(folder).free > 2 * mib * MIB, f"{folder} has no room for {mib} MiB twice"
        table, out = Path(folder, "table.csv"), Path(folder, "out")
        count = _write(table, mib, columns)
        seal = ["-m", "epsilon_ledger", "dataset", "seal", str(table), REF, "--target", "y", "--identity", "person"]
        none = ["--no-commitments"] if count > COMMITTED_MAX else []
        reported = json.loads(_limited([*seal, *none, "--out", str(out), "--json"]))
        assert (reported["report"]["records"], reported["report"].get("commitments", count)) == (count, count)
        assert bool(none) == (columns == 30)
        assert int(_limited(["-c", READER, str(out)])) == count
