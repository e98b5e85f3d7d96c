"""DEPA's COVID scenario beside Opacus: the same records, plan, split and model, without noise on the AUC."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.nn import functional

from api.demo.depa.plans import HELD_OUT, INPUTS, PHONE, TARGET
from api.demo.depa.raw_files import NAMES, PEOPLE, made_up
from client.dataset_files.table_chunks import open_table
from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.statistics.held_out import held_out
from trainer_adapter.training.named_losses import cross_entropy

# Its hooks look at every layer, the first too, whose inputs are records and need no gradient.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
PLAN = Plan(Fraction(1, 186), Fraction(6531, 10_000), Fraction(1, 10), 186, 8)
RATE = 8.0
WITHIN = 0.02


class Split(NamedTuple):
    """Standardised inputs and targets of all records, and which are held out."""

    inputs: Tensor
    targets: Tensor
    out: Tensor


def _columns(path: Path, name: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for chunk in open_table(path).chunks():
        for column, cells in chunk.columns.items():
            found.setdefault(column, []).extend(cells)
    order = np.argsort([str(one) for one in found[PHONE[name]]])
    return {column: [cells[place] for place in order] for column, cells in found.items()}


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """The joined records of 2,119 people, each with a token."""
    raw = made_up(tmp_path_factory.mktemp("raw"), PEOPLE, Random(0))  # noqa: S311 - nobody's data
    tables = {name: _columns(path, name) for name, path in raw.items()}
    rows = [[float(one) for one in tables[name][column]] for name in NAMES for column in INPUTS[name]]
    inputs = torch.tensor(rows).T.contiguous()
    targets = torch.tensor([int(one) for one in tables[NAMES[0]][TARGET]])
    file = io.BytesIO()
    tokens = np.random.default_rng(0).integers(0, 256, (PEOPLE, 32), dtype=np.uint8)
    np.savez(file, inputs=inputs.numpy(), join=tokens, targets=targets.numpy())
    out = held_out({"did:web:icmr.example/d/p": file.getvalue()}, HELD_OUT)
    trained = inputs[~out]
    return Split((inputs - trained.mean(dim=0)) / trained.std(dim=0), targets, out)


def _fresh() -> nn.Module:
    """The model ``linear``: all weights zero."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 2))
    for value in model.parameters():
        nn.init.zeros_(value)
    return model


def ours(split: Split, seed: int) -> float:
    """The area under the curve of our engine's model, over all pairs of held-out records."""
    model = _fresh()
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    engine = Engine(PLAN, model, cross_entropy, (split.inputs, split.targets), 64, present=~split.out)
    randomness = CsprngRandomness(bytes([seed]) * 32)
    for step in range(1, PLAN.steps + 1):
        engine.step(step, optimiser, randomness)
    return _area(model, split)


def opacus(split: Split, seed: int) -> float:
    """The same of Opacus: its per-sample gradients, clipping and noise, under the same Poisson sampling."""
    torch.manual_seed(seed)
    model = GradSampleModule(_fresh(), loss_reduction="sum")
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE),
        noise_multiplier=float(PLAN.noise_multiplier),
        max_grad_norm=float(PLAN.clipping_norm),
        expected_batch_size=PLAN.batch_size_expected,
    )
    places = torch.nonzero(~split.out).flatten()
    for _ in range(PLAN.steps):
        drawn = places[torch.rand(len(places)) < float(PLAN.sampling_probability)]
        optimiser.zero_grad()
        functional.cross_entropy(model(split.inputs[drawn]), split.targets[drawn], reduction="sum").backward()
        optimiser.step()
    return _area(model, split)


def _area(model: nn.Module, split: Split) -> float:
    with torch.no_grad():
        scores = functional.softmax(model(split.inputs[split.out]), dim=1)[:, 1].double()
    positive, negative = scores[split.targets[split.out] == 1], scores[split.targets[split.out] == 0]
    above = (positive[:, None] > negative[None, :]).double() + (positive[:, None] == negative[None, :]).double() / 2
    return float(above.mean())


def test_one_model_is_as_good_as_that_of_opacus(split: Split) -> None:
    """Of fixed seeds, within 0.02 of the area under the curve."""
    found = [ours(split, 0), opacus(split, 0)]
    assert abs(found[0] - found[1]) < WITHIN
    assert min(found) > 0.8


@pytest.mark.soak
def test_five_models_are_as_good_as_those_of_opacus(split: Split) -> None:
    """In the mean, within 0.02 of the area under the curve."""
    means = [np.mean([ours(split, seed) for seed in range(5)]), np.mean([opacus(split, seed) for seed in range(5)])]
    assert abs(means[0] - means[1]) < WITHIN
    assert min(means) > 0.8
