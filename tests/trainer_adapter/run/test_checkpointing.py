"""What is saved comes back as it was, sealed for its run and its place; anything else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN
from trainer_adapter.job.job_spec import Assignment, Attester, Resume
from trainer_adapter.run.checkpointing import CheckpointStore, Position
from trainer_adapter.session.clean_room_identity import CleanRoomIdentity


def _assignment(folder: Path, name: str = "run-1", key: str = "room.key") -> Assignment:
    return Assignment(
        id=name,
        service="http://127.0.0.1:1",
        issuer="http://127.0.0.1:1",
        log=LogKey("rooms.example/ledger", bytes(range(32))),
        actor="did:web:bank.example",
        key=folder / "bank.pem",
        contract="ab" * 32,
        deadline_s=3_600,
        block_steps=10,
        output=folder,
        attester=Attester("https://attester.example", folder / "attester.pem"),
        data={"did:web:hospital.example/d/q3": folder / "q3.sealed"},
        plan=PLAN,
        resume=Resume(folder / key, 0),
    )


def _learner(kind: str) -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    optimiser: torch.optim.Optimizer
    if kind == "adamw":
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
    else:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, optimiser, torch.optim.lr_scheduler.StepLR(optimiser, step_size=2, gamma=0.5)


def _step(model: nn.Module, optimiser: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler.LRScheduler) -> None:
    optimiser.zero_grad()
    model(torch.arange(8.0).reshape(2, 4)).square().sum().backward()
    optimiser.step()
    scheduler.step()


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_run_goes_on_as_if_it_had_not_ended(tmp_path: Path, kind: str) -> None:
    """Model, optimiser and scheduler: three steps, saved, restored elsewhere, three more; the same weights as six."""
    torch.manual_seed(1)
    first = _learner(kind)
    for _ in range(3):
        _step(*first)
    keeper = CheckpointStore(_assignment(tmp_path))
    keeper.save_run(Position(3, ended=False), first[0], first[1], {"scheduler": first[2]})
    second = _learner(kind)
    place = CheckpointStore(_assignment(tmp_path)).load_run(second[0], second[1], {"scheduler": second[2]})
    assert place == Position(3, ended=False)
    for _ in range(3):
        _step(*first)
        _step(*second)
    pairs = zip(first[0].parameters(), second[0].parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    assert first[1].param_groups[0]["lr"] == second[1].param_groups[0]["lr"]


def test_a_state_opens_for_its_own_run_alone(tmp_path: Path) -> None:
    """Another charge, another key, another place in the folder, or one byte changed: refused by its name."""
    model, optimiser, _ = _learner("sgd")
    keeper = CheckpointStore(_assignment(tmp_path))
    keeper.save_run(Position(1, ended=True), model, optimiser, {})
    for other in (_assignment(tmp_path, "run-2"), _assignment(tmp_path, key="other.key")):
        with pytest.raises(Malformed, match=r"^run\.state: was not sealed for this run"):
            CheckpointStore(other).load_run(model, optimiser, {})
    data = bytearray((tmp_path / "run.state").read_bytes())
    (tmp_path / "room.state").write_bytes(bytes(data))
    with pytest.raises(Malformed, match=r"^room\.state: was not sealed"):
        keeper.load_identity()
    data[20] ^= 1
    (tmp_path / "run.state").write_bytes(bytes(data))
    with pytest.raises(Malformed, match=r"^run\.state: was not sealed"):
        keeper.load_run(model, optimiser, {})


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    """What does not fit is no state of this run; nothing unpickles, so nothing runs."""
    model, optimiser, _ = _learner("sgd")
    keeper = CheckpointStore(_assignment(tmp_path))
    keeper.save_run(Position(1, ended=False), model, optimiser, {})
    other = nn.Linear(5, 2)
    with pytest.raises(Malformed, match=r"^run\.state: does not fit"):
        keeper.load_run(other, torch.optim.SGD(other.parameters(), lr=0.1), {})


def test_an_identity_comes_back_and_is_never_in_the_clear(tmp_path: Path) -> None:
    """Both keys, the deadline and the release are restored; the file shows neither key."""
    keeper = CheckpointStore(_assignment(tmp_path))
    assert keeper.load_identity() is None
    identity = CleanRoomIdentity.fresh(1_800_000_000_000)
    keeper.save_identity(identity)
    found = keeper.load_identity()
    assert found is not None
    assert found.to_json() == identity.to_json()
    data = (tmp_path / "room.state").read_bytes()
    assert identity.signer.secret() not in data
    assert identity.sealing.private_bytes_raw() not in data
    assert (tmp_path / "room.key").stat().st_mode & 0o077 == 0


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """As any other key is."""
    CheckpointStore(_assignment(tmp_path))
    (tmp_path / "room.key").chmod(0o644)
    with pytest.raises(Malformed, match="may be read by others"):
        CheckpointStore(_assignment(tmp_path))
