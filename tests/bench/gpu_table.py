"""The table of training speed on a GPU, in published sizes: ours beside its peers, one JSON object a row.

    python -m tests.bench.gpu_table              every row; without a GPU one sentence, and exit status 3
    python -m tests.bench.gpu_table --row vit    one row; several may be named
    python -m tests.bench.gpu_table --machine    only whether there is a GPU

By the clock, once the device is done; ratios are over plain training of the same round, memory is the most of a step.
The row ``tail`` is noise and update alone, of as many values as GPT-2 small has.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any, Final

import torch
from torch import Tensor, nn

from tests.bench import contestants
from tests.bench.contestants import Contestant
from tests.bench.networks import CLASSES, NETWORKS, Layer, Network, Sizes
from tests.bench.peers import in_reach
from tests.bench.race import seconds
from tests.bench.training_table import ROUNDS, Maker, row
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.known_updates import begin_updates, known_kind
from trainer_adapter.dpsgd.noisy_mean import noisy_update

UNMEASURED: Final = "The GPU table is not measured: PyTorch finds no CUDA device on this machine."
UNMEASURED_STATUS: Final = 3
TAIL_VALUES: Final = 124_000_000
_PICTURE, _PATCH = 224, 16


class PictureTransformer(nn.Module):
    """As ViT-B/16 (Dosovitskiy et al. 2021): patches as tokens, whose mean is classified."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, sizes.width, _PATCH, _PATCH)
        self.places = nn.Embedding(sizes.length, sizes.width)
        heads = sizes.width // 64
        self.layers = nn.Sequential(*(Layer(sizes.width, heads, causal=False, dropout=0.0) for _ in range(sizes.depth)))
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        """Scores (records, classes)."""
        tokens = self.patches(pictures).flatten(2).transpose(1, 2)
        places = torch.arange(tokens.shape[1], device=tokens.device).repeat(len(tokens), 1)
        scores: Tensor = self.head(self.norm(self.layers(tokens + self.places(places))).mean(dim=1))
        return scores


@dataclass(frozen=True)
class Pictures(Network):
    """A network of pictures as large as ImageNet's."""

    def data(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Made-up records, one batch of them."""
        batch, generator = self.sizes(device).batch, torch.Generator().manual_seed(2)
        pictures = torch.rand((batch, 3, _PICTURE, _PICTURE), generator=generator)
        return pictures.to(device), torch.randint(0, CLASSES, (batch,), generator=generator).to(device)


_VIT: Final = Sizes("as ViT-B/16: 12 layers of 768, 224 by 224", 64, 768, 12, (_PICTURE // _PATCH) ** 2)
ROWS: Final[dict[str, Network]] = {
    **{network.name: network for network in NETWORKS},
    "vit": Pictures("vit", PictureTransformer, _VIT, _VIT, in_jax=False),
}


def _jax_on_gpu(network: Network, device: torch.device) -> Contestant:
    if import_module("jax").default_backend() != "gpu":
        message = "JAX finds no GPU: its build for CUDA is not installed"
        raise RuntimeError(message)
    return contestants.jax_privacy(network, device)


MAKERS: Final[dict[str, Maker]] = {
    "non-private": contestants.plain,
    "ours, eager": contestants.ours,
    "ours, auto": lambda network, device: contestants.ours(network, device, compiled="auto"),
    "ours, bfloat16": lambda network, device: contestants.ours(network, device, precision="bfloat16"),
    "ours, bfloat16 products": lambda network, device: contestants.ours(network, device, precision="bfloat16_products"),
    "Opacus hooks": lambda network, device: contestants.opacus(network, device, "hooks"),
    "Opacus ghost": lambda network, device: contestants.opacus(network, device, "ghost"),
    "JAX-Privacy": _jax_on_gpu,
}


def tail(device: torch.device, values: int, rounds: int) -> dict[str, Any]:
    """Noise, scale and AdamW's update of so many values: milliseconds, [median, least, most]."""
    weight = nn.Parameter(torch.zeros(values, device=device))
    optimiser, total = torch.optim.AdamW([weight], lr=1e-3), torch.zeros(values, device=device)
    randomness, numbers = CsprngRandomness(bytes(32)), count(1)

    def step() -> None:
        kind = known_kind(optimiser, [weight])
        assert kind is not None
        noise, updates = randomness.stream("noise", next(numbers)), begin_updates(optimiser, [weight])
        noisy_update(total, noise, 1.0, 64, updates, kind)

    step()
    took = [seconds(step) * 1e3 for _ in range(rounds)]
    return {
        "row": "tail",
        "values": values,
        "ms": [round(one, 3) for one in (statistics.median(took), min(took), max(took))],
    }


def table(device: torch.device, rows: Mapping[str, Network], rounds: int, write: Callable[[str], object]) -> None:
    """Every row, as it is measured, after a line with the device's name and the versions."""
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    write(json.dumps({"device": machine, "torch": torch.__version__, "cuda": torch.version.cuda}) + "\n")
    write(json.dumps(tail(device, TAIL_VALUES, rounds)) + "\n")
    for name, network in rows.items():
        write(json.dumps(row(name, network, device, rounds, math.inf, MAKERS)) + "\n")
        torch.compiler.reset()


def main(arguments: Sequence[str] | None = None, *, found: bool | None = None) -> int:
    """Measure the rows that are named, or all; the exit status. ``found``: whether there is a GPU; None looks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", action="append", choices=sorted(ROWS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--machine", action="store_true", help="only whether there is a GPU")
    given = parser.parse_args(arguments)
    if not (torch.cuda.is_available() if found is None else found):
        sys.stdout.write(UNMEASURED + "\n")
        return UNMEASURED_STATUS
    if not given.machine:
        with in_reach(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen = {name: ROWS[name] for name in given.row or ROWS}
            table(torch.device("cuda", 0), chosen, given.rounds, sys.stdout.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
