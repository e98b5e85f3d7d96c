"""Records that are read where they are drawn give the sums that records in memory give, and leave memory alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import open_records, seal_dataset
from client.dataset_files.sealed_records import RecordLayout, SealedRecords, write_sealed
from client.dataset_files.stored_partition import StoredPartition
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.layers.tensor_trees import select, tensors
from trainer_adapter.training.records_on_disk import RecordsOnDisk, records_of
from trainer_adapter.training.training_records import read_records

KEY, REFS = bytes(32), ("did:web:a.example/d/1", "did:web:a.example/d/2")
COLUMNS = 300
LAYOUT = RecordLayout(np.dtype([("inputs", "<f4", (COLUMNS,)), ("targets", "<i8")]))
PLAN = Plan(Fraction(1, 5), Fraction(1), Fraction(1), 3, 40)
CHILD = Path(__file__).parents[1] / "memory_child.py"


def _sealed(path: Path, ref: str, records: int) -> SealedRecords:
    rows = np.zeros(records, LAYOUT.dtype)
    drawn = np.random.default_rng(records)
    rows["inputs"], rows["targets"] = drawn.standard_normal((records, COLUMNS)), drawn.integers(0, 2, records)
    with path.open("wb") as file:
        write_sealed(file, KEY, ref, LAYOUT, [rows])
    opened = StoredPartition(path).open(KEY, ref)
    assert isinstance(opened, SealedRecords)
    return opened


@pytest.fixture
def opened(tmp_path: Path) -> dict[str, SealedRecords]:
    """Two partitions, of three frames and one."""
    return {ref: _sealed(tmp_path / str(place), ref, 120 - 80 * place) for place, ref in enumerate(REFS)}


def _trained(opened: dict[str, SealedRecords], in_memory_max: int) -> torch.Tensor:
    records = records_of(opened, read_records, lambda inputs: inputs / 2, torch.device("cpu"), in_memory_max)
    assert isinstance(records, tuple) == (in_memory_max > 0)
    torch.manual_seed(1)
    model = torch.nn.Linear(COLUMNS, 2)
    engine = Engine(PLAN, model, cross_entropy, records, 16)
    optimiser, randomness = torch.optim.SGD(model.parameters(), lr=1), CsprngRandomness(bytes(32))
    for step in range(1, PLAN.steps + 1):
        engine.step(step, optimiser, randomness)
    return model.weight.detach()


def test_training_is_the_same_from_disk(opened: dict[str, SealedRecords]) -> None:
    """Bit for bit, over two partitions and three steps."""
    assert torch.equal(_trained(opened, 0), _trained(opened, 1 << 30))


def _batches(opened: dict[str, SealedRecords], in_memory_max: int) -> list[torch.Tensor]:
    """The inputs that each step draws."""
    records = records_of(opened, read_records, lambda inputs: inputs / 2, torch.device("cpu"), in_memory_max)
    engine = Engine(PLAN, torch.nn.Linear(COLUMNS, 2), cross_entropy, records, 16)
    randomness = CsprngRandomness(bytes(32))
    places = [torch.from_numpy(engine.draw(step, randomness)) for step in range(1, PLAN.steps + 1)]
    if isinstance(records, tuple):
        return [tensors(select(records[0], one))[0] for one in places]
    return [tensors(records.take(one)[0])[0] for one in places]


def test_slices_draw_the_same_batches_from_disk(tmp_path: Path) -> None:
    """Over a dozen slices, some of one record or of several frames: the same records in the same order."""
    opened = {}
    for place, records in enumerate((1, 40, 2, 90, 3, 1, 64, 5, 33, 1, 120, 7)):
        ref = f"did:web:a.example/d/{place}"
        opened[ref] = _sealed(tmp_path / str(place), ref, records)
    on_disk, in_memory = _batches(opened, 0), _batches(opened, 1 << 30)
    assert [len(one) for one in on_disk] == [len(one) for one in in_memory]
    assert min(len(one) for one in on_disk) > 16
    assert all(torch.equal(*pair) for pair in zip(on_disk, in_memory, strict=True))


def test_a_changed_byte_is_found_before_the_first_step(tmp_path: Path) -> None:
    """In any frame, and no record of it is shown."""
    records = _sealed(tmp_path / "one", REFS[0], 120)
    data = bytearray((tmp_path / "one").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "one").write_bytes(data)
    with pytest.raises(Malformed, match="does not open with the data key"):
        RecordsOnDisk({REFS[0]: records}, read_records, lambda inputs: inputs)


def test_partitions_of_other_shapes_are_refused(tmp_path: Path) -> None:
    """A target of one number is none of three; it would be repeated."""
    opened = dict[str, SealedRecords]()
    for ref, shape in zip(REFS, ((), (3,)), strict=True):
        layout = RecordLayout(np.dtype([("inputs", "<f4", (COLUMNS,)), ("targets", "<i8", shape)]))
        path = tmp_path / str(len(shape))
        with path.open("wb") as file:
            write_sealed(file, KEY, ref, layout, [np.zeros(4, layout.dtype)])
        found = StoredPartition(path).open(KEY, ref)
        assert isinstance(found, SealedRecords)
        opened[ref] = found
    with pytest.raises(Malformed, match=rf"{REFS[1]}: must have records of the same shape as those of {REFS[0]}"):
        RecordsOnDisk(opened, read_records, lambda inputs: inputs)


class _Texts(torch.nn.Module):
    """Scores of words, the padding left out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(9, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = (self.words(input_ids) * attention_mask[..., None]).sum(dim=1)
        return scores


def _texts(path: Path, records: int) -> dict[str, NDArray[Any]]:
    drawn = np.random.default_rng(records)
    lengths = drawn.integers(1, 6, records)
    found: dict[str, Any] = {
        "inputs.input_ids": drawn.integers(0, 9, (records, 5)),
        "inputs.attention_mask": (np.arange(5)[None] < lengths[:, None]).astype(np.int8),
        "targets": drawn.integers(0, 2, records),
    }
    np.savez(path, **found)
    return found


def test_records_of_several_arrays_are_sealed_and_drawn_by_name(tmp_path: Path) -> None:
    """An archive as a collator's batch makes it: sealed, opened, and trained on from disk as from memory."""
    opened, whole = dict[str, SealedRecords](), []
    for ref, records in zip(REFS, (50, 30), strict=True):
        path = tmp_path / f"{records}.npz"
        whole.append(_texts(path, records))
        sealed = seal_dataset(open_records(path, RecordSchema()), ref, tmp_path / str(records), None, None)
        found = StoredPartition(sealed.folder / "share" / "records.sealed").open(sealed.data_key.read_bytes(), ref)
        assert isinstance(found, SealedRecords)
        opened[ref] = found
        assert sealed.report["targets"] == {str(one): int((whole[-1]["targets"] == one).sum()) for one in (0, 1)}
    sums = []
    for in_memory_max in (0, 1 << 30):
        records_ = records_of(opened, read_records, lambda inputs: inputs, torch.device("cpu"), in_memory_max)
        torch.manual_seed(1)
        engine = Engine(PLAN, _Texts(), cross_entropy, records_, 16)
        sums.append(engine.clipped_sum(engine.microbatches(np.arange(3, 80, 7))))
        if not isinstance(records_, tuple):
            inputs, _ = records_.take(torch.tensor([49, 50]))
            assert isinstance(inputs, dict)
            for name, part in inputs.items():
                both = [whole[0][f"inputs.{name}"][49], whole[1][f"inputs.{name}"][0]]
                assert part.tolist() == np.stack(both).tolist()
    assert torch.equal(*sums)
    assert float(sums[0].norm()) > 0


@pytest.mark.parametrize(
    ("names", "rule"),
    [
        (("inputs", "inputs.a", "targets"), "has an array inputs"),
        (("inputs.a", "inputs.a.b", "targets"), "has an array inputs.a"),
        (("inputs.a",), "has no array targets: it has inputs.a"),
        (("input_ids", "targets"), "has no array inputs: it has input_ids, targets"),
    ],
)
def test_arrays_that_make_no_record_are_refused_by_name(tmp_path: Path, names: tuple[str, ...], rule: str) -> None:
    """Where the provider seals them."""
    arrays: dict[str, Any] = dict.fromkeys(names, np.zeros(3))
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(Malformed, match=rule):
        open_records(tmp_path / "a.npz", RecordSchema())


@pytest.mark.soak
@pytest.mark.parametrize("mib", [300, int(os.environ.get("EPSILON_SOAK_LARGE_MIB", "10240"))])
def test_more_than_memory_is_sealed_and_trained(mib: int) -> None:
    """300 MB and 10 GB, in a process that may have 256 MB more than PyTorch takes; on a disk, not in memory.

    It fails where the disk has no room: ``EPSILON_SOAK_LARGE_MIB`` names another size than 10 GB, and
    ``EPSILON_SOAK_FOLDER`` another folder than /var/tmp. The folder of other tests' files lies in memory.
    """
    with tempfile.TemporaryDirectory(dir=os.environ.get("EPSILON_SOAK_FOLDER", "/var/tmp")) as folder:  # noqa: S108 - a fresh folder of a disk
        assert shutil.disk_usage(folder).free > mib * 5 // 4 << 20, f"{folder} has no room for {mib} MiB of records"
        command = [sys.executable, str(CHILD), str(mib), folder]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        sys.stdout.write(done.stdout)
        assert done.returncode == 0, done.stderr
        reported = json.loads(done.stdout)
        assert reported["records_mib"] == mib
        assert reported["memory_mib"] <= reported["limit_mib"]
