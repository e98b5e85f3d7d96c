"""What a watermark costs and survives, on three kinds of network: ``python -m tests.bench.watermark_table``.

Each network learns scikit-learn's digits; privacy does not matter here, since the mark is put in after training.
One JSON object a row: accuracy before and after the mark, the score after each change (of twenty marks the least), and
how many of ten thousand foreign keys a search would have named. The threshold is that of a search among a thousand
marks.
"""

from __future__ import annotations

import copy
import hashlib
import json
import statistics
import sys
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification

from client.watermarks.spread_spectrum import fingerprint, score, threshold
from trainer_adapter.training.model_mark import mark

FOREIGN: Final = 10_000
MARKS: Final = 1_000
KEYS: Final = 20
"""Marks over which accuracy is averaged: one of 597 pictures is 0.17 points."""
TUNED: Final = 5
"""Marks whose models are fine-tuned."""
SPLIT: Final = 1_200
BATCH: Final = 64


def digits() -> tuple[Tensor, Tensor]:
    """Pictures of 8 by 8 with values from 0 to 16, and what they show, in a fixed random order."""
    pictures, targets = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))
    return torch.tensor(pictures[order], dtype=torch.float32), torch.tensor(targets[order])


class Mlp(nn.Module):
    """Three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, pictures: Tensor) -> Tensor:  # noqa: D102 - torch's
        scores: Tensor = self.layers(pictures / 16)
        return scores


class Cnn(nn.Module):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Sequential(
            nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Linear(128 * 16, 10)

    def forward(self, pictures: Tensor) -> Tensor:  # noqa: D102 - torch's
        scores: Tensor = self.head(self.seen(pictures.reshape(-1, 1, 8, 8) / 16).flatten(1))
        return scores


class Adapted(nn.Module):
    """A transformer whose adapters alone train (LoRA): a picture is a text of 64 words, its pixels."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig.from_dict(
            {
                "vocab_size": 17,
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 128,
                "max_position_embeddings": 64,
                "num_labels": 10,
            }
        )
        adapters = LoraConfig(
            r=32, lora_alpha=64, target_modules=["query", "key", "value", "dense"], modules_to_save=["classifier"]
        )
        self.model = get_peft_model(BertForSequenceClassification(config), adapters)

    def forward(self, pictures: Tensor) -> Tensor:  # noqa: D102 - torch's
        scores: Tensor = self.model(input_ids=pictures.long()).logits
        return scores


def trained(model: nn.Module, steps: int, rate: float, seed: int) -> nn.Module:
    """After so many steps of Adam."""
    pictures, targets = digits()
    draw = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=rate)
    model.train()
    for _ in range(steps):
        chosen = torch.randint(SPLIT, (BATCH,), generator=draw)
        optimiser.zero_grad()
        cross_entropy(model(pictures[chosen]), targets[chosen]).backward()
        optimiser.step()
    return model.eval()


def accuracy(model: nn.Module) -> float:
    """Per cent of the digits that were not learned."""
    pictures, targets = digits()
    with torch.no_grad():
        right = model(pictures[SPLIT:]).argmax(1) == targets[SPLIT:]
    return float(right.double().mean()) * 100


def changed(model: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy, each of whose trained matrices is changed."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for one in other.parameters():
            if one.requires_grad and one.dim() > 1:
                one.copy_(change(one))
    return other


def pruned(one: Tensor) -> Tensor:
    """Without the smaller half of its values."""
    return torch.where(one.abs() >= one.abs().median(), one, 0.0)


def rounded(one: Tensor) -> Tensor:
    """To 8 bits."""
    step = one.abs().max() / 127
    return (one / step).round() * step


def averaged(model: nn.Module, other: nn.Module) -> nn.Module:
    """The mean of the trained weights of two."""
    mean = copy.deepcopy(model)
    with torch.no_grad():
        for one, two in zip(mean.parameters(), other.parameters(), strict=True):
            one.copy_((one + two) / 2 if one.requires_grad else one)
    return mean


def reached(model: nn.Module, key: bytes) -> float:
    """The score of a model's trained weights."""
    return score(fingerprint(one.detach().numpy() for one in model.parameters() if one.requires_grad), key)


def key_of(number: int) -> bytes:
    """A key of another run."""
    return hashlib.sha256(b"%d" % number).digest()


def with_mark(model: nn.Module, key: bytes) -> nn.Module:
    """A copy that is marked."""
    other = copy.deepcopy(model)
    mark(other, key)
    return other


def least_scores(plain: nn.Module, other: nn.Module, rate: float) -> dict[str, float]:
    """Of the marks of several runs in one model, the least score after each change."""
    again = with_mark(plain, key_of(KEYS))
    changes: dict[str, tuple[int, Callable[[nn.Module], nn.Module]]] = {
        "score": (KEYS, lambda model: model),
        "fine_tuned_100": (TUNED, lambda model: trained(copy.deepcopy(model), 100, rate, 2)),
        "pruned_half": (KEYS, lambda model: changed(model, pruned)),
        "rounded_8_bits": (KEYS, lambda model: changed(model, rounded)),
        "mean_with_foreign": (KEYS, lambda model: averaged(model, other)),
        "mean_with_another_mark": (KEYS, lambda model: averaged(model, again)),
        "mean_with_unmarked_self": (KEYS, lambda model: averaged(model, plain)),
    }
    found: dict[str, float] = {}
    for name, (keys, change) in changes.items():
        scores = [reached(change(with_mark(plain, key_of(number))), key_of(number)) for number in range(keys)]
        found[name] = round(min(scores), 2)
    return found


def row(name: str, made: Callable[[], nn.Module], steps: int, rate: float) -> dict[str, object]:
    """The figures of one kind of network."""
    torch.manual_seed(0)
    plain = trained(made(), steps, rate, 1)
    marked = [accuracy(with_mark(plain, key_of(number))) for number in range(KEYS)]
    torch.manual_seed(5)
    other = trained(made(), steps, rate, 6)
    found = fingerprint(one.detach().numpy() for one in other.parameters() if one.requires_grad)
    least = threshold(MARKS, len(found))
    foreign = [score(found, key_of(number)) for number in range(FOREIGN)]
    return {
        "network": name,
        "weights": sum(one.numel() for one in plain.parameters() if one.requires_grad and one.dim() > 1),
        "accuracy": round(accuracy(plain), 2),
        "accuracy_marked": round(statistics.mean(marked), 2),
        "threshold": round(least, 2),
        **least_scores(plain, other, rate),
        "foreign_keys_most": round(max(foreign), 2),
        "foreign_named": sum(one >= least for one in foreign),
    }


ROWS: Final[dict[str, tuple[Callable[[], nn.Module], int, float]]] = {
    "MLP": (Mlp, 400, 1e-3),
    "CNN": (Cnn, 400, 1e-3),
    "transformer, LoRA": (Adapted, 600, 2e-3),
}


def main() -> None:
    """Print every row."""
    for name, terms in ROWS.items():
        sys.stdout.write(json.dumps(row(name, *terms)) + "\n")


if __name__ == "__main__":
    main()
