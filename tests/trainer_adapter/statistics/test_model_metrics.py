"""Metrics of a model: what it gives for each record alone, and the stated error of a noisy area under the curve."""

from __future__ import annotations

import io
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ledger.mechanisms.statistics import ConfusionMatrix, RocCurve
from ledger.wire.malformed import Malformed
from trainer_adapter.statistics.answers import area, area_error
from trainer_adapter.statistics.columns import RecordColumns
from trainer_adapter.statistics.exact_totals import exact_totals
from trainer_adapter.statistics.model_outputs import MeasuredColumns, ModelOutputs

ONE = Fraction(1)


class Mixing(nn.Module):
    """A layer that takes the mean of what passes with a record."""

    def __init__(self) -> None:
        """One weight, so that there is something to train."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (records, 1)."""
        return self.weight * (inputs - inputs.mean(dim=0)).sum(dim=1, keepdim=True)


class Branching(Mixing):
    """A model that decides in Python."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (records, 1)."""
        return self.weight * inputs[:, :1] if float(inputs.sum()) > 0 else self.weight * inputs[:, 1:]


def test_one_record_more_changes_no_other_row() -> None:
    """Not even of a model that mixes what passes together: each record passes alone."""
    inputs = torch.tensor([[1.0, 2.0], [5.0, -1.0], [0.5, 0.5]])
    for model in (Mixing(), Branching()):
        for loss in ("binary_cross_entropy", "mean_squared_error"):
            whole = ModelOutputs.of(model, loss, inputs).scores
            assert torch.equal(ModelOutputs.of(model, loss, inputs[1:]).scores, whole[1:])
    assert ModelOutputs.of(Mixing(), "mean_squared_error", inputs).scores.abs().max() == 0


class Remembering(Mixing):
    """A model that moves a mean while it is evaluated, record by record."""

    mean: Tensor

    def __init__(self) -> None:
        """A mean of two features."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (records, 1)."""
        self.mean.mul_(0.5).add_(inputs[0], alpha=0.5)
        return self.weight * (inputs - self.mean).sum(dim=1, keepdim=True)


class Caching(Mixing):
    """A model that keeps a tensor, where no buffer is, from one record for the next."""

    kept: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (records, 1)."""
        before = self.kept if self.kept is not None and float(inputs.sum()) else inputs[:, :1]
        self.kept = inputs[:, :1] + before
        return self.weight * before


class Embedded(nn.Module):
    """A model of ten tokens: any other ends it."""

    def __init__(self) -> None:
        """Two numbers a token."""
        super().__init__()
        self.table = nn.Embedding(10, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (records, 2); one number more for a record of token 9."""
        found = self.table(inputs.long()).sum(dim=1)
        return functional.pad(found, (0, int(inputs.max() == 9)))


def test_a_record_leaves_nothing_for_the_next() -> None:
    """Not in a buffer, and a model that keeps a tensor elsewhere is refused for public records."""
    inputs = torch.tensor([[1.0, 2.0], [5.0, -1.0], [0.5, 0.5]])
    whole = ModelOutputs.of(Remembering(), "mean_squared_error", inputs, 1).scores
    assert torch.equal(ModelOutputs.of(Remembering(), "mean_squared_error", inputs[1:], 1).scores, whole[1:])
    with pytest.raises(Malformed, match="keeps a tensor from one record for the next"):
        ModelOutputs.of(Caching(), "mean_squared_error", inputs)


def test_a_record_that_the_model_fails_on_is_of_no_class() -> None:
    """It ends nothing, by an error or by another number of outputs; for public records it does."""
    inputs = torch.tensor([[1, 2], [3, 11], [4, 9], [5, 6]])
    model = Embedded()
    for loss in ("cross_entropy", "mean_squared_error"):
        found = ModelOutputs.of(model, loss, inputs, 2)
        assert found.scores.isnan().all(dim=1).tolist() == [False, True, True, False]
        assert torch.equal(found.scores[[0, 3]], ModelOutputs.of(model, loss, inputs[[0, 3]], 2).scores)
    predicted = ModelOutputs.of(model, "cross_entropy", inputs, 2).values("predictions")
    assert predicted[1:3].tolist() == [-1, -1]
    for wrong in (inputs, inputs[[0, 2]]):
        with pytest.raises((IndexError, RuntimeError)):
            ModelOutputs.of(model, "cross_entropy", wrong)


class Wide(nn.Module):
    """Large enough that kernels round by how many records pass together; a token of 10 or more ends it."""

    def __init__(self) -> None:
        """Five outputs."""
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(10, 32)
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 5))

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (records, 5)."""
        found: Tensor = self.layers(self.table(inputs).mean(dim=1))
        return found


@pytest.mark.parametrize("loss", ["cross_entropy", "binary_cross_entropy", "mean_squared_error"])
def test_a_row_is_of_its_record_bit_for_bit(loss: str) -> None:
    """Whether another record fails, is missing, or lies elsewhere."""
    model, inputs = Wide(), torch.randint(0, 10, (200, 6), generator=torch.Generator().manual_seed(1))
    whole = ModelOutputs.of(model, loss, inputs, 5).scores
    failing = inputs.clone()
    failing[0, 0] = 99
    found = ModelOutputs.of(model, loss, failing, 5).scores
    assert found[0].isnan().all()
    assert torch.equal(found[1:], whole[1:])
    for size in (199, 7, 3, 1):
        assert torch.equal(ModelOutputs.of(model, loss, inputs[:size], 5).scores, whole[:size])
        assert torch.equal(ModelOutputs.of(model, loss, inputs[-size:], 5).scores, whole[-size:])


def test_no_record_has_as_many_numbers_as_any() -> None:
    """So that a metric of one of them does not end where nothing was held out."""
    found = ModelOutputs.of(Wide(), "cross_entropy", torch.zeros((0, 6), dtype=torch.int64), 5)
    assert found.values("outputs[4]").shape == (0,)


class Drawing(Mixing):
    """A model that draws while it is evaluated, and more for some records."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (records, 1)."""
        drawn = torch.rand(7 if float(inputs.sum()) > 4 else 1)
        return self.weight * inputs[:, :1] + drawn[-1]


def test_what_a_model_draws_is_of_one_record() -> None:
    """Those after it draw the same without it."""
    inputs = torch.tensor([[5.0, 2.0], [1.0, -1.0], [0.5, 0.5]])
    whole = ModelOutputs.of(Drawing(), "mean_squared_error", inputs, 1).scores
    assert torch.equal(ModelOutputs.of(Drawing(), "mean_squared_error", inputs[1:], 1).scores, whole[1:])


def test_scores_and_predictions() -> None:
    """Softmax of classes, a sigmoid of one of two; a record without a finite score is of no class."""
    linear = nn.Linear(2, 3, bias=False)
    inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [float("nan"), 0.0]])
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[0.0, 5.0], [1.0, 0.0], [0.0, 0.0]]))
    found = ModelOutputs.of(linear, "cross_entropy", inputs)
    assert found.values("outputs[1]")[0] == pytest.approx(np.e / (np.e + 2), rel=1e-6)
    assert found.values("predictions").tolist() == [1, 0, -1]
    binary = nn.Linear(2, 1, bias=False)
    assert ModelOutputs.of(binary, "binary_cross_entropy", inputs).values("outputs").shape == (3,)
    for column, words in (("outputs", "has 3 numbers"), ("outputs[3]", "is not among the 3 numbers")):
        with pytest.raises(Malformed, match=words):
            found.values(column)
    with pytest.raises(Malformed, match="predicts no one class"):
        ModelOutputs.of(linear, "mean_squared_error", inputs).values("predictions")


def test_totals_are_of_the_model_and_the_record() -> None:
    """A record of no class, or without a finite score, is in no cell."""
    file = io.BytesIO()
    np.savez(file, inputs=np.array([[1.0], [2.0], [np.nan], [-1.0]]), targets=np.array([1, 0, 1, 7]))
    own = RecordColumns({"did:web:h.example/d/p": file.getvalue()})
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    seen = ModelOutputs.of(model, "binary_cross_entropy", torch.tensor([[1.0], [2.0], [np.nan], [-1.0]]))
    columns = MeasuredColumns(own, seen)
    roc = RocCurve(name="roc", epsilon=ONE, buckets=2, score="outputs", truth="targets")
    assert exact_totals(roc, columns).tolist() == [0, 1, 0, 1]
    matrix = ConfusionMatrix(name="m", epsilon=ONE, classes=2, truth="targets", predicted="predictions")
    assert exact_totals(matrix, columns).tolist() == [0, 1, 0, 1]


def _pairwise(negatives: np.ndarray, positives: np.ndarray) -> float:
    """The area by its definition: over all pairs."""
    above = (positives[:, None] > negatives[None, :]).mean()
    return float(above + (positives[:, None] == negatives[None, :]).mean() / 2)


@pytest.mark.parametrize(
    ("shift", "size", "buckets", "scale"), [(0.25, 300, 8, 2.5), (0.1, 700, 16, 5.0), (0.4, 200, 10, 1.0)]
)
def test_a_stated_error_holds(shift: float, size: int, buckets: int, scale: float) -> None:
    """In at least 95 of 100 draws of discrete Laplace noise, against the area over all pairs of scores."""
    drawn, inside, rounds = np.random.default_rng(int(1000 * shift)), 0, 300
    for _ in range(rounds):
        scores = [np.clip(drawn.normal(0.5 + side * shift / 2, 0.15, size), 0, 1) for side in (-1, 1)]
        cells = [np.minimum((one * buckets).astype(int), buckets - 1) for one in scores]
        counts = np.stack([np.bincount(one, minlength=buckets) for one in cells])
        ratio = 1 - np.exp(-1 / scale)
        noise = drawn.geometric(ratio, counts.shape) - drawn.geometric(ratio, counts.shape)
        noisy = counts + noise
        inside += abs(area(noisy) - _pairwise(*scores)) <= area_error(noisy, 2 * scale**2)
    assert inside >= 0.95 * rounds


def test_an_error_says_when_it_says_nothing() -> None:
    """Where noise may be all there is, a half."""
    assert area_error(np.array([[3, 1], [2, 2]]), 2 * 5.0**2) == 0.5
    assert area_error(np.array([[900, 0], [0, 900]]), 2.0) < 0.02
    assert area(np.array([[-4, 1], [2, 2]])) == 0.5
