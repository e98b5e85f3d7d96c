"""Seals and trains on many records in a process whose memory is limited; prints how many MiB it had, and took."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from client.dataset_files.record_encoding import Batch
from client.dataset_files.seal import seal_dataset
from client.dataset_files.sealed_records import RecordLayout, SealedRecords
from client.dataset_files.stored_partition import StoredPartition
from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.training.records_on_disk import RecordsOnDisk, records_of
from trainer_adapter.training.training_records import read_records

COLUMNS, BATCH, MIB = 4_094, 256, 1 << 20
LIMIT = 256 * MIB
REF = "did:web:a.example/d/1"


class Made:
    """Records that are made as they are read."""

    layout = RecordLayout(np.dtype([("inputs", "<f4", (COLUMNS,)), ("targets", "<i8")]))

    def __init__(self, records: int) -> None:
        """So many."""
        self._records = records

    def batches(self) -> Iterator[Batch]:
        """All of them."""
        for start in range(0, self._records, BATCH):
            rows = np.zeros(min(BATCH, self._records - start), self.layout.dtype)
            rows["inputs"] = np.arange(start, start + len(rows), dtype=np.float32)[:, None] % 7
            rows["targets"] = np.arange(len(rows)) % 2
            yield Batch(rows, [], [])


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _train(records: Records, count: int, steps: int) -> None:
    model = torch.nn.Linear(COLUMNS, 2)
    plan = Plan(Fraction(200, count), Fraction(1), Fraction(1), steps, 200)
    engine = Engine(plan, model, cross_entropy, records, 64)
    optimiser, randomness = torch.optim.SGD(model.parameters(), lr=1), CsprngRandomness.fresh()
    for step in range(1, steps + 1):
        engine.step(step, optimiser, randomness)


def main() -> None:
    """Warm up, limit, seal, train."""
    mib = int(sys.argv[1])
    made = Made(mib * MIB // Made.layout.dtype.itemsize + 1)
    # What PyTorch needs for any run is there before anything is measured.
    _train((torch.zeros(400, COLUMNS), torch.zeros(400, dtype=torch.int64)), 400, 1)
    with tempfile.TemporaryDirectory(dir=sys.argv[2]) as folder:
        # The limit is on all private memory, PyTorch's included: what is above it cannot be allocated.
        before, resident = _status("VmData"), _status("VmHWM")
        resource.setrlimit(resource.RLIMIT_DATA, (before + LIMIT, before + LIMIT))
        out = Path(folder) / "out"
        sealed = seal_dataset(made, REF, out, None, None)
        opened = StoredPartition(out / "share" / "records.sealed").open(sealed.data_key.read_bytes(), REF)
        assert isinstance(opened, SealedRecords)
        records = records_of({REF: opened}, read_records, lambda inputs: inputs, torch.device("cpu"))
        assert isinstance(records, RecordsOnDisk)
        _train(records, len(records), 5)
        reported = {
            "limit_mib": LIMIT // MIB,
            "memory_mib": (_status("VmHWM") - resident) // MIB,
            "records_mib": opened.nbytes // MIB,
        }
        sys.stdout.write(json.dumps(reported) + "\n")


if __name__ == "__main__":
    main()
