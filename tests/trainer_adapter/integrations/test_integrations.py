"""Other people's loops: each trains for real under a charge, and takes no step that was not charged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.training.attach import ModelRun, Options, attach

ROOT = Path(__file__).parents[3]
PUBLIC = TensorDataset(torch.zeros(64, 64), torch.zeros(64, dtype=torch.int64))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("integrations") / "place") as found:
        yield found


def _linear() -> tuple[nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(5)
    model = nn.Linear(64, 10)
    return model, torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def _attached(place: Place, name: str, model: nn.Module, optimiser: torch.optim.Optimizer) -> ModelRun:
    return attach(model, optimiser, cross_entropy, place.assignment(name), Options(service=place.service))


def _posted(place: Place, name: str) -> int | None:
    charge = place.charge(name)
    assert charge is not None
    return charge.steps_posted


def _counted(optimiser: torch.optim.Optimizer, seen: list[Tensor]) -> None:
    """Notes the gradient of each update that has one, where a closure has put it too."""

    def note(stepped: torch.optim.Optimizer, *_: object) -> None:
        gradient = stepped.param_groups[0]["params"][0].grad
        if gradient is not None:
            seen.append(gradient.detach().clone())

    optimiser.register_step_post_hook(note)


def _noisy(seen: list[Tensor]) -> bool:
    """Whether each gradient looks like the plan's noise: its deviation is near σC over the batch size."""
    expected = float(PLAN.noise_multiplier * PLAN.clipping_norm / PLAN.batch_size_expected)
    return all(0.8 * expected < float(one.std()) < 1.3 * expected for one in seen)


# Lightning 2.6 asks PyTorch 2.13 for a tree's leaves in the way of before.
@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)`:FutureWarning")
def test_lightning(place: Place) -> None:
    """Its Trainer steps twenty times on the run's gradients, stops by itself, and shows the loss of privacy."""
    import pytorch_lightning as lightning

    from trainer_adapter.integrations.lightning import LedgerCallback

    model, optimiser = _linear()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            del batch_idx
            return cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimiser

    seen: list[Tensor] = []
    _counted(optimiser, seen)
    with _attached(place, "lightning", model, optimiser) as run:
        trainer = lightning.Trainer(
            max_epochs=9,
            accelerator="cpu",
            callbacks=[LedgerCallback(run)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), DataLoader(PUBLIC, batch_size=8))
        shown = float(trainer.callback_metrics["epsilon"])
        told = run.remaining().epsilon.epsilon
    assert told is not None
    assert shown == pytest.approx(float(told), rel=1e-6)
    assert len(seen) == _posted(place, "lightning") == PLAN.steps
    assert _noisy(seen)


def test_transformers(place: Place, tmp_path: Path) -> None:
    """Its Trainer steps a model that drops twenty times on the run's gradients, stops, and logs the loss of privacy."""
    from transformers import Trainer, TrainingArguments

    from trainer_adapter.integrations.transformers import LedgerTrainerCallback

    linear, optimiser = _linear()
    core = nn.Sequential(nn.Dropout(0.1), linear)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.core = core

        def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            scores = self.core(inputs)
            return {"loss": cross_entropy(scores, labels), "logits": scores}

    public = [{"inputs": inputs, "labels": label} for inputs, label in zip(*PUBLIC.tensors, strict=True)]
    seen: list[Tensor] = []
    _counted(optimiser, seen)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=1_000,
        per_device_train_batch_size=8,
        max_grad_norm=0.0,
        logging_steps=10,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    with _attached(place, "transformers", core, optimiser) as run:
        trainer = Trainer(Model(), arguments, train_dataset=public, optimizers=(optimiser, None))
        trainer.add_callback(LedgerTrainerCallback(run))
        trainer.train()
    assert len(seen) == _posted(place, "transformers") == PLAN.steps
    assert _noisy(seen)
    assert trainer.state.global_step == PLAN.steps


def test_mlflow(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charge, plan and ε are logged; a private metric is refused by name, and nothing of that call is logged."""
    from mlflow import MlflowClient

    from trainer_adapter.integrations.mlflow import PublicLog

    # Files need no server and no SQLAlchemy of its own; MLflow wants to be told.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    logged = client.create_run(client.create_experiment("digits")).info.run_id
    model, optimiser = _linear()
    with _attached(place, "mlflow", model, optimiser) as run:
        for step in run:
            if step == 1:
                log = PublicLog(run, client, logged)
                log.begin()
                with pytest.raises(Malformed, match=r"^train_loss: is not among what may leave"):
                    log.step(step, {"public/accuracy": 0.5, "train_loss": 0.1})
                assert client.get_run(logged).data.metrics == {}
            log.step(step, {"public/accuracy": 0.5})
        charged = run.remaining().epsilon.epsilon
    found = client.get_run(logged).data
    assert set(found.metrics) == {"dp/epsilon", "public/accuracy"}
    assert charged is not None
    assert 0 <= found.metrics["dp/epsilon"] - float(charged) < 1e-6
    assert {name: found.params[name] for name in ("dp/charge", "dp/plan", "dp/noise_multiplier", "dp/delta")} == {
        "dp/charge": "mlflow",
        "dp/plan": PLAN.digest,
        "dp/noise_multiplier": "8",
        "dp/delta": "0.0001",
    }
    history = client.get_metric_history(logged, "dp/epsilon")
    assert [one.step for one in history] == list(range(1, PLAN.steps + 1))


def test_no_other_file_loads_their_libraries() -> None:
    """A loop of one's own and the command load neither Opacus nor Lightning, Transformers or MLflow."""
    names = ("opacus", "pytorch_lightning", "transformers", "mlflow")
    code = (
        "import sys; import trainer_adapter.training.attach, trainer_adapter.cli.main, trainer_adapter.cli.train; "
        f"print([name for name in {names} if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
