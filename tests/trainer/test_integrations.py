"""Other people's loops: each trains for real under a charge, and takes no step that was not charged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ledger.malformed import Malformed
from tests.trainer.rooms import PLAN, Place, open_place
from trainer_adapter.attach import Options, Run, attach
from trainer_adapter.charged_run import ChargedRun
from trainer_adapter.records import arrays

ROOT = Path(__file__).parents[2]
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


def _attached(place: Place, name: str, model: nn.Module, optimiser: torch.optim.Optimizer) -> Run:
    return attach(model, optimiser, cross_entropy, place.assignment(name), Options(service=place.service))


def _posted(place: Place, name: str) -> int | None:
    charge = place.charge(name)
    assert charge is not None
    return charge.steps_posted


# PrivacyEngine says that its generator is not made for secrets; without its missing package it has no other.
@pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")
# Its hooks look at every layer, the first too, whose inputs are records and need no gradient.
@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
class TestOpacus:
    def _trained(self, place: Place, name: str, private: str) -> tuple[nn.Linear, list[Tensor]]:
        """Train until it is refused; the model, and its weights after each step."""
        from opacus import PrivacyEngine

        from trainer_adapter.integrations.opacus import NAME, Refusal, make_private, register, unseeded

        model, optimiser = _linear()
        weights = [model.weight.detach().clone()]
        with ChargedRun(place.assignment(name), place.service) as run:
            ((ref, data),) = run.open().items()
            records = TensorDataset(*arrays(data, ref))
            run.begin()
            if private == "ours":
                module, stepped, loader = make_private(run, model, optimiser, records)
            else:
                engine = PrivacyEngine(accountant=register(run))
                module, stepped, loader = engine.make_private(
                    module=model,
                    optimizer=optimiser,
                    data_loader=DataLoader(records, batch_size=350),
                    noise_multiplier=float(PLAN.noise_multiplier),
                    max_grad_norm=float(PLAN.clipping_norm),
                    noise_generator=unseeded(),
                )
                assert engine.accountant.mechanism() == NAME
            hooked: list[int] = []
            if private == "ours":
                stepped.attach_step_hook(lambda _: hooked.append(run.steps.taken))

            def train() -> None:
                while True:
                    for inputs, targets in loader:
                        stepped.zero_grad()
                        cross_entropy(module(inputs), targets).backward()  # type: ignore[no-untyped-call] # torch has no type for it
                        stepped.step()
                        weights.append(model.weight.detach().clone())

            with pytest.raises(Refusal, match="all 20 steps that were charged are taken"):
                train()
            assert hooked == (list(range(1, PLAN.steps + 1)) if private == "ours" else [])
            assert all(one.grad is None for one in model.parameters())
        return model, weights

    @pytest.mark.parametrize("private", ["ours", "engine"])
    def test_it_takes_the_steps_that_were_charged_and_no_more(self, place: Place, private: str) -> None:
        """Twenty updates, all posted; the twenty-first is refused before the weights change, its noise thrown away."""
        model, weights = self._trained(place, f"opacus-{private}", private)
        assert len(weights) == PLAN.steps + 1
        assert all(not torch.equal(one, two) for one, two in pairwise(weights))
        assert torch.equal(model.weight, weights[-1])
        assert _posted(place, f"opacus-{private}") == PLAN.steps

    def test_noise_that_a_seed_would_repeat_is_refused(self, place: Place) -> None:
        """Without a generator of its own a run gets no step; with one, the same seed before gives other noise."""
        from opacus.optimizers import DPOptimizer

        from trainer_adapter.integrations.opacus import LedgerAccountant, Refusal, unseeded

        with ChargedRun(place.assignment("opacus-seed"), place.service) as run:
            run.open()
            run.begin()
            accountant = type("OfRun", (LedgerAccountant,), {"run": run})()
            hook = accountant.get_optimizer_hook_fn(0.5)
            bare = DPOptimizer(
                torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0),
                noise_multiplier=8.0,
                max_grad_norm=1.0,
                expected_batch_size=350,
            )
            with pytest.raises(Refusal, match="noise_generator"):
                hook(bare)
            assert run.steps.taken == 0
        drawn = []
        for _ in range(2):
            torch.manual_seed(0)
            drawn.append(torch.randn(4, generator=unseeded()))
        assert not torch.equal(*drawn)

    def test_a_record_without_a_finite_gradient_adds_nothing(self, place: Place) -> None:
        """One NaN among the records, and every weight is finite after the step."""
        from trainer_adapter.integrations.opacus import make_private

        model, optimiser = _linear()
        with ChargedRun(place.assignment("opacus-nan"), place.service) as run:
            ((ref, data),) = run.open().items()
            inputs, targets = arrays(data, ref)
            inputs[::2] = torch.nan
            run.begin()
            module, stepped, loader = make_private(run, model, optimiser, TensorDataset(inputs, targets))
            drawn = next(iter(loader))
            cross_entropy(module(drawn[0]), drawn[1]).backward()  # type: ignore[no-untyped-call] # torch has no type for it
            stepped.step()
        assert bool(model.weight.isfinite().all())

    def test_a_step_lighter_in_noise_or_denser_is_refused(self, place: Place) -> None:
        """Less noise or a higher sampling rate than was charged: refused, and no step is taken for it."""
        from trainer_adapter.integrations.opacus import LedgerAccountant, Refusal, register

        with ChargedRun(place.assignment("opacus-other"), place.service) as run:
            run.open()
            run.begin()
            register(run)
            from opacus.accountants import create_accountant

            accountant = create_accountant("ledger")
            assert isinstance(accountant, LedgerAccountant)
            for noise, rate in ((7.999, 0.5), (8.0, 0.5001), (8.0, 1.0)):
                with pytest.raises(Refusal, match="the plan has noise"):
                    accountant.step(noise_multiplier=noise, sample_rate=rate)
            assert len(accountant) == 0
            accountant.step(noise_multiplier=8.0, sample_rate=0.5)
            assert len(accountant) == 1
            spent = run.spent(10).epsilon
            assert spent is not None
            assert accountant.get_epsilon(1e-4) >= spent
            with pytest.raises(ValueError, match="no ε is told for a smaller one"):
                accountant.get_epsilon(1e-5)
        assert _posted(place, "opacus-other") == 1


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
        told = run.remaining().charged.epsilon
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
                log = PublicLog(run.charged, client, logged)
                log.begin()
                with pytest.raises(Malformed, match=r"^train_loss: is not among what may leave"):
                    log.step(step, {"public/accuracy": 0.5, "train_loss": 0.1})
                assert client.get_run(logged).data.metrics == {}
            log.step(step, {"public/accuracy": 0.5})
        charged = run.remaining().charged.epsilon
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
        "import sys; import trainer_adapter.attach, trainer_adapter.clean_room, trainer_adapter.cli; "
        f"print([name for name in {names} if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
