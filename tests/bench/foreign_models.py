"""How many of ten thousand foreign models a search for watermarks names: ``python -m tests.bench.foreign_models``.

Each model is a network of its own: first weights and batches of its own, trained on scikit-learn's digits. Each is
searched for a thousand marks, of which it has none. One JSON object: how many were trained, how well they read digits,
the greatest of all scores, and how many models were named. Networks are trained side by side, as stacked matrices.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from client.watermarks.spread_spectrum import Shape, fingerprint, score, signs, threshold
from tests.bench.watermark_table import BATCH, SPLIT, digits

MODELS: Final = 10_000
MARKS: Final = 1_000
TOGETHER: Final = 200
"""Networks that are trained side by side."""
HIDDEN: Final = 256
STEPS: Final = 40
RATE: Final = 0.5
SHAPES: Final[tuple[Shape, Shape]] = ((HIDDEN, 64), (10, HIDDEN))
"""Of the two matrices, as PyTorch's layers hold them: together more than a mark needs."""


def trained(count: int, seed: int) -> tuple[Tensor, Tensor, float]:
    """So many networks with weights (networks, ...), and the share of new digits that they read."""
    pictures, targets = digits()
    pictures, draw = pictures / 16, torch.Generator().manual_seed(seed)
    one, two = (torch.randn((count, *shape), generator=draw) / math.sqrt(shape[1]) for shape in SHAPES)
    weights = [one.requires_grad_(), two.requires_grad_()]
    optimiser = torch.optim.SGD(weights, lr=RATE)
    for _ in range(STEPS):
        chosen = torch.randint(SPLIT, (count, BATCH), generator=draw)
        optimiser.zero_grad()
        scores = _read(one, two, pictures[chosen])
        # The mean of each network's own records: the gradient of its weights is that of its loss.
        cross_entropy(scores.flatten(0, 1), targets[chosen].flatten(), reduction="sum").div(BATCH).backward()
        optimiser.step()
    with torch.no_grad():
        right = _read(one, two, pictures[SPLIT:].expand(count, -1, -1)).argmax(2) == targets[SPLIT:]
    return one.detach(), two.detach(), float(right.double().mean())


def _read(one: Tensor, two: Tensor, pictures: Tensor) -> Tensor:
    return torch.relu(pictures @ one.mT) @ two.mT


class Search:
    """A search for marks in models of the two shapes: their signs are drawn once."""

    def __init__(self, marks: int) -> None:
        """For so many marks."""
        self.keys = [hashlib.sha256(b"mark %d" % number).digest() for number in range(marks)]
        self._signs = [np.stack([signs(key, shape).ravel() for key in self.keys]) for shape in SHAPES]
        self.least = threshold(marks, len(SHAPES))

    def scores(self, prints: list[dict[Shape, NDArray[np.float32]]]) -> NDArray[np.float64]:
        """Of each model under each key, shape (models, marks): the greatest of the whole and of each shape."""
        own, sizes = [], []
        for shape, by_key in zip(SHAPES, self._signs, strict=True):
            values = np.stack([seen[shape].ravel() for seen in prints])
            own.append((values @ by_key.T).astype(np.float64))
            sizes.append(np.square(values, dtype=np.float64).sum(axis=1)[:, None])
        each = [by / np.sqrt(size) for by, size in zip(own, sizes, strict=True)]
        whole: NDArray[np.float64] = (own[0] + own[1]) / np.sqrt(sizes[0] + sizes[1])
        greatest: NDArray[np.float64] = np.maximum(np.maximum(each[0], each[1]), whole)
        return greatest


def _prints(models: int) -> Iterator[tuple[list[dict[Shape, NDArray[np.float32]]], float]]:
    for first in range(0, models, TOGETHER):
        count = min(TOGETHER, models - first)
        one, two, right = trained(count, first)
        yield [fingerprint([one[place].numpy(), two[place].numpy()]) for place in range(count)], right * count


def row(models: int = MODELS, marks: int = MARKS) -> dict[str, Any]:
    """What is found in so many networks."""
    search, named, greatest, right = Search(marks), 0, 0.0, 0.0
    for prints, read in _prints(models):
        found = search.scores(prints)
        # The product itself, on one of them.
        assert math.isclose(found[0, 0], score(prints[0], search.keys[0]), abs_tol=1e-3)
        named += int((found >= search.least).any(axis=1).sum())
        greatest, right = max(greatest, float(found.max())), right + read
    return {
        "models": models,
        "accuracy": round(100 * right / models, 1),
        "marks_searched": marks,
        "threshold": round(search.least, 2),
        "greatest_score": round(greatest, 2),
        "named": named,
    }


def main() -> None:
    """Print the row."""
    sys.stdout.write(json.dumps(row()) + "\n")


if __name__ == "__main__":
    main()
