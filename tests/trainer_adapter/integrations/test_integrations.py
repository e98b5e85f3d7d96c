"""Other people's loops: each trains for real under a charge, and takes no step that was not charged."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as lightning
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.loggers import Logger
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset

from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import blocks
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.training.attach import attach
from trainer_adapter.training.run_options import Options

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("integrations") / "place") as found:
        yield found


def _posted(place: Place, name: str) -> int | None:
    charge = place.charge(name)
    assert charge is not None
    return charge.steps_posted


def _noisy(seen: list[Tensor]) -> bool:
    """Whether each gradient looks like the plan's noise: its deviation is near σC over the batch size."""
    expected = float(PLAN.noise_multiplier * PLAN.clipping_norm / PLAN.batch_size_expected)
    return all(0.8 * expected < float(one.std()) < 1.3 * expected for one in seen)


@contextmanager
def _page(place: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], list[Tensor]]]:
    """What the code of a loop's page leaves, run as it stands beside a job; and the gradients of its steps."""
    monkeypatch.chdir(place.folder)
    text = place.assignment_file(name).read_text().replace("../", "")
    (place.folder / "job.toml").write_text(text)
    (code,) = (one.text for one in blocks(ROOT / "docs" / "loops" / f"{name}.md"))
    seen: list[Tensor] = []

    def note(stepped: torch.optim.Optimizer, *_: object) -> None:
        gradient = stepped.param_groups[0]["params"][0].grad
        if gradient is not None:
            seen.append(gradient.detach().clone())

    names: dict[str, Any] = {"__name__": "page"}
    handle = register_optimizer_step_post_hook(note)
    try:
        exec(compile(code, f"{name}.md", "exec"), names)  # noqa: S102 - our own page
    finally:
        handle.remove()
    yield names, seen


# Lightning 2.6 asks PyTorch 2.13 for a tree's leaves in the way of before.
@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)`:FutureWarning")
def test_lightning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of docs/loops/lightning.md: twenty steps on the run's gradients, and the loss of privacy is shown."""
    with _page(place, "lightning", monkeypatch) as (names, seen):
        shown = float(names["trainer"].callback_metrics["epsilon"])
        on_bar = names["trainer"].progress_bar_metrics
        epsilon = names["run"].remaining().epsilon.epsilon
    assert epsilon is not None
    assert shown == pytest.approx(float(epsilon), rel=1e-6)
    # A figure that is shown alone names its partition.
    assert on_bar[f"epsilon on {place.ref}"] == pytest.approx(float(epsilon), rel=1e-6)
    assert "epsilon" not in on_bar
    assert len(seen) == _posted(place, "lightning") == PLAN.steps
    assert _noisy(seen)
    assert (place.folder / "runs" / "lightning" / "model.safetensors").exists()


class Logged(Logger):
    """Keeps what it gets."""

    name, version = "logged", 0

    def __init__(self) -> None:
        """Nothing yet."""
        super().__init__()
        self.lines: list[int | None] = []

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Keep the step."""
        assert "epsilon" in metrics
        self.lines.append(step)

    def log_hyperparams(self, params: object, *_: object, **__: object) -> None:
        """Not called."""
        raise AssertionError(params)


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)`:FutureWarning")
@pytest.mark.parametrize("fenced", [True, False])
def test_of_a_leased_run_a_logger_of_lightning_waits_for_its_fence(place: Place, *, fenced: bool) -> None:
    """Wrapped, it gets every line, none before a lease was asked after it; bare, nothing is charged."""
    from trainer_adapter.integrations.lightning import FencedLogger, LedgerCallback

    logged, name, ahead = Logged(), f"lightning-{fenced}", list[bool]()
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    run = attach(model, optimiser, cross_entropy, place.assignment(name), Options(service=place.service))

    class Module(LightningModule):
        """Made-up batches."""

        def training_step(self, batch: list[Tensor], step: int) -> Tensor:
            """Its loss."""
            ahead.append(step > 0 and step - 1 in logged.lines)
            return cross_entropy(model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """The run's."""
            return optimiser

    module = Module()
    module.model = model
    public = DataLoader(TensorDataset(torch.zeros(64, 64), torch.zeros(64, dtype=torch.int64)), batch_size=2)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(run)
        trainer = lightning.Trainer(
            max_steps=run.steps, accelerator="cpu", callbacks=[LedgerCallback(run)], log_every_n_steps=1,
            logger=FencedLogger(run, logged) if fenced else logged, default_root_dir=folder,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        if not fenced:
            with pytest.raises(Malformed, match=r"^trainer\.logger: would write before a lease"):
                trainer.fit(module, public)
            saving = lightning.Trainer(
                max_steps=run.steps, accelerator="cpu", callbacks=[LedgerCallback(run)], default_root_dir=folder,
                logger=False, enable_progress_bar=False, enable_model_summary=False,
            )  # fmt: skip
            with pytest.raises(Malformed, match=r"^trainer\.enable_checkpointing: must be False: a model would be on"):
                saving.fit(module, public)
            assert place.charge(name) is None
            assert [*Path(folder).iterdir()] == []
            return
        trainer.fit(module, public)
        assert len(logged.lines) < PLAN.steps
    assert not any(ahead)
    assert logged.lines == [*range(PLAN.steps)]


def test_of_a_leased_run_the_trainer_of_transformers_prints_and_saves_nothing(place: Place, tmp_path: Path) -> None:
    """A callback that was added otherwise, and a Trainer that saves by itself, are refused before the charge."""
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

    from trainer_adapter.integrations.transformers import LedgerTrainerCallback

    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    run = attach(model, optimiser, cross_entropy, place.assignment("bare"), Options(service=place.service))
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    with pytest.raises(Malformed, match=r"add_to\(trainer\)"):
        LedgerTrainerCallback(run).on_train_begin(arguments, TrainerState(), TrainerControl())
    trainer = Trainer(torch.nn.Linear(64, 10), arguments)
    LedgerTrainerCallback(run).add_to(trainer)
    with pytest.raises(Malformed, match=r'^arguments\.save_strategy: must be "no": a model would be on the disk'):
        trainer.callback_handler.on_train_begin(arguments, TrainerState(), TrainerControl())
    assert place.charge("bare") is None


def test_transformers(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The code of docs/loops/transformers.md: a model that drops, twenty steps on the run's gradients."""
    with _page(place, "transformers", monkeypatch) as (names, seen):
        assert names["trainer"].state.global_step == PLAN.steps
        for line in (*names["trainer"].state.log_history, *names["reported"]):
            assert (line["epsilon"] > 0, line["epsilon_partition"]) == (True, place.ref)
        assert len(names["reported"]) == len(names["trainer"].state.log_history)
    assert "epsilon" not in capsys.readouterr().out
    assert len(seen) == _posted(place, "transformers") == PLAN.steps
    assert _noisy(seen)
    assert (place.folder / "runs" / "transformers" / "model.safetensors").exists()


def test_mlflow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of docs/loops/mlflow.md: charge, plan and ε are logged; a private metric is refused by its name."""
    # Files need no server and no SQLAlchemy of its own; MLflow asks for this.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with _page(place, "mlflow", monkeypatch) as (names, seen):
        client, logged = names["client"], names["tracked"]
        with pytest.raises(Malformed, match=r"^train_loss: is not among what may leave"):
            names["log"].step(21, {"public/accuracy": 0.5, "train_loss": 0.1})
        charged = names["run"].remaining().epsilon.epsilon
    assert len(seen) == PLAN.steps
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


def test_of_a_leased_run_parameters_of_mlflow_wait_for_their_fence(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named in the first step, they leave with the post of a run that ends there."""
    from mlflow import MlflowClient

    from trainer_adapter.integrations.mlflow import PublicLog

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = MlflowClient(tracking_uri=str(place.folder / "mlflow-fenced"))
    tracked = client.create_run(client.create_experiment("fenced")).info.run_id
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    known = place.assignment("mlflow-fenced")
    with attach(model, optimiser, cross_entropy, known, Options(service=place.service)) as run:
        next(iter(run))
        PublicLog(run, client, tracked).begin()
        assert client.get_run(tracked).data.params == {}
    assert client.get_run(tracked).data.params["dp/charge"] == "mlflow-fenced"


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
