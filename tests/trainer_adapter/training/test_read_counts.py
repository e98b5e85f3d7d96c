"""A reader of one's own gives at most the records that were opened: each is charged as one, and trains as one."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from api.demo import digits
from client.dataset_files.sealed_records import RecordLayout, SealedRecords, write_sealed
from client.dataset_files.stored_partition import PartitionData, StoredPartition
from client.http.access_tokens import ClientCredentials
from client.keys.data_encryption import encrypt
from client.keys.signer import Signer
from client.service.service import Service
from ledger.domain.outcomes import ChargeState
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import ORIGIN, PLAN, Place, open_place
from trainer_adapter.training.attach import attach
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.records_on_disk import (
    IN_MEMORY_BYTES_MAX,
    Miscounted,
    RecordsOnDisk,
    at_most_its_own,
    records_of,
)
from trainer_adapter.training.run_options import Options
from trainer_adapter.training.training_records import read_records, stated_records

Reader = Callable[[Any, str], tuple[Tensor, Tensor]]
MORE = "is read as more records than it has: each of its records is charged as one"
REFS = ("did:web:a.example/d/1", "did:web:a.example/d/2")
LAYOUT = RecordLayout(np.dtype([("inputs", "<f4", (3,)), ("targets", "<i8")]))


def _mirrored(data: PartitionData, ref: str) -> tuple[Tensor, Tensor]:
    """Each record and its mirror image."""
    inputs, targets = read_records(data, ref)
    return torch.cat([inputs, inputs.flip(1)]), torch.cat([targets, targets])


def _first_half(data: PartitionData, ref: str) -> tuple[Tensor, Tensor]:
    inputs, targets = read_records(data, ref)
    return inputs[: len(inputs) // 2], targets[: len(targets) // 2]


def _in_lines(more: int) -> Reader:
    """Of a form of one's own, 65 numbers a record; so many records twice."""

    def read(data: PartitionData, ref: str) -> tuple[Tensor, Tensor]:
        assert isinstance(data, bytes), ref
        whole = torch.from_numpy(np.frombuffer(data, np.float32).reshape(-1, 65).copy())
        whole = torch.cat([whole, whole[:more]])
        return whole[:, :64], whole[:, 64].to(torch.int64)

    return read


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("reads") / "place") as found:
        yield found


def _attached(place: Place, name: str, read: Reader) -> ModelRun:
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    options = Options(service=place.service, read=read)
    return attach(model, optimiser, cross_entropy, place.assignment(name), options)


def _posted(place: Place, name: str) -> int | None:
    charge = place.charge(name)
    assert charge is not None
    assert charge.state is ChargeState.POSTED
    return charge.steps_posted


def test_a_reader_that_makes_several_of_a_record_ends_the_run(place: Place) -> None:
    """Of sealed records, an archive and a form of one's own; what began is charged, and the model is as it was."""
    sealed, archive = place.sealed.read_bytes(), digits.archive(digits.FIRST)
    inputs, targets = read_records(archive, "digits")
    lines = torch.cat([inputs, targets[:, None].float()], dim=1).numpy().tobytes()
    cases: list[tuple[str, bytes | None, Reader]] = [
        ("sealed", None, _mirrored),
        ("archive", archive, _mirrored),
        ("lines", lines, _in_lines(1)),
    ]
    for name, data, read in cases:
        place.sealed.write_bytes(sealed if data is None else encrypt(place.data_key, place.ref, data))
        run = _attached(place, name, read)
        before = [one.detach().clone() for one in run.model.parameters()]
        with pytest.raises(Malformed, match=rf"^{place.ref}: {MORE}"), run:
            next(iter(run))
        assert _posted(place, name) == 10
        assert all(torch.equal(*pair) for pair in zip(before, run.model.parameters(), strict=True))
    with _attached(place, "own-form", _in_lines(0)) as run:
        assert len(list(run)) == PLAN.steps
    assert _posted(place, "own-form") == PLAN.steps
    place.sealed.write_bytes(sealed)


def test_an_end_that_no_block_may_stand_for_is_charged_in_full(place: Place) -> None:
    """Near its deadline no step begins any more: the post of none would give back what the end reveals."""
    assignment = replace(place.assignment("late"), deadline_s=60)
    consumer = ClientCredentials(assignment.issuer, assignment.actor, Signer.load(assignment.key), ORIGIN)
    ahead_s = list[float]()

    def read_late(data: PartitionData, ref: str) -> tuple[Tensor, Tensor]:
        ahead_s.append(58)
        return _mirrored(data, ref)

    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    with Service(assignment.service, consumer, clock=lambda: time.time() + sum(ahead_s)) as service:
        run = attach(model, optimiser, cross_entropy, assignment, Options(service=service, read=read_late))
        with pytest.raises(Malformed, match="has no post of it: what broke it does not leave"), run:
            next(iter(run))
    charge = place.charge("late")
    assert charge is not None
    assert charge.state is ChargeState.PENDING


def test_a_reader_may_leave_records_out(place: Place) -> None:
    """Half of them train, and the run is as any other."""
    with _attached(place, "half", _first_half) as run:
        assert len(list(run)) == PLAN.steps
    assert _posted(place, "half") == PLAN.steps


def test_a_partition_of_users_has_the_records_of_its_users() -> None:
    """Units are what its provider opened it with; each may have several records."""
    stated: dict[str, Any] = {"records": 7, "unit": "user", "unit_records_max": 2}
    assert stated_records(stated) == 14
    assert stated_records({**stated, "unit": "record"}) == 7


@pytest.fixture
def opened(tmp_path: Path) -> dict[str, SealedRecords]:
    """Two partitions, of twelve records and of eight."""
    found = dict[str, SealedRecords]()
    for ref, records in zip(REFS, (12, 8), strict=True):
        rows = np.zeros(records, LAYOUT.dtype)
        rows["inputs"] = np.arange(records)[:, None]
        path = tmp_path / str(records)
        with path.open("wb") as file:
            write_sealed(file, bytes(32), ref, LAYOUT, [rows])
        sealed = StoredPartition(path).open(bytes(32), ref)
        assert isinstance(sealed, SealedRecords)
        found[ref] = sealed
    return found


def _shifted(data: PartitionData, ref: str) -> tuple[Tensor, Tensor]:
    """Two records of the first partition fewer, and two of the second more."""
    inputs, targets = read_records(data, ref)
    if ref == REFS[0]:
        return inputs[:-2], targets[:-2]
    return torch.cat([inputs, inputs[:2]]), torch.cat([targets, targets[:2]])


@pytest.mark.parametrize("in_memory_max", [IN_MEMORY_BYTES_MAX, 0])
@pytest.mark.parametrize("read", [_mirrored, _shifted])
def test_each_partition_is_held_to_its_own_records(
    opened: dict[str, SealedRecords], read: Reader, in_memory_max: int
) -> None:
    """Not their sum to its: what one leaves out is no room in another. In memory and from disk, before a step."""
    held = at_most_its_own(read, lambda _: 0)
    with pytest.raises(
        Miscounted, match=rf"^{REFS[0] if read is _mirrored or not in_memory_max else REFS[1]}: is read"
    ):
        records_of(opened, held, lambda inputs: inputs, torch.device("cpu"), in_memory_max)


def test_no_record_on_disk_takes_the_places_of_others(opened: dict[str, SealedRecords]) -> None:
    """One record that is read in place of all that a step draws would be in each of their places."""

    def first_alone(data: PartitionData, ref: str) -> tuple[Tensor, Tensor]:
        inputs, targets = read_records(data, ref)
        return inputs[:1], targets[:1]

    records = RecordsOnDisk(opened, first_alone, lambda inputs: inputs)
    with pytest.raises(Miscounted, match="another number of records than are drawn"):
        records.take(torch.tensor([3, 5, 9]))


def test_a_join_is_held_to_the_places_of_its_base() -> None:
    """Joined or not; the archive that a join makes counts them."""
    archive = io.BytesIO()
    np.savez(archive, inputs=np.zeros((5, 3)), join=np.zeros((5, 32), np.uint8), targets=np.zeros(5, np.int64))
    inputs, _ = at_most_its_own(read_records, lambda _: 0)(archive.getvalue(), REFS[0])
    assert len(inputs) == 5
    with pytest.raises(Miscounted, match=MORE):
        at_most_its_own(_mirrored, lambda _: 1_000)(archive.getvalue(), REFS[0])
