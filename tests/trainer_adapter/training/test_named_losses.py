"""Losses by name: what each takes of one record or several, and what is measured on the public test set."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from ledger.wire.malformed import Malformed
from trainer_adapter.job_models.models import make
from trainer_adapter.training.named_losses import LOSS_BY_NAME, measured

SCORES = torch.tensor([[0.0, 2.0, -1.0]])


def _by_hand(score: float, target: float) -> float:
    share = 1 / (1 + math.exp(-score))
    return -math.log(share) if target else -math.log(1 - share)


def test_several_labels_of_a_record() -> None:
    """The mean over its labels, and the share of labels that are right."""
    loss, targets = LOSS_BY_NAME["binary_cross_entropy"], torch.tensor([[1, 1, 0]])
    expected = sum(map(_by_hand, SCORES[0].tolist(), (1, 1, 0))) / 3
    assert float(loss(SCORES, targets)) == pytest.approx(expected, rel=1e-6)
    assert measured("binary_cross_entropy", SCORES, targets) == (2, 3)
    assert float(loss(torch.tensor([[2.0]]), torch.tensor([1]))) == pytest.approx(_by_hand(2, 1), rel=1e-6)


def test_numbers_of_a_record() -> None:
    """The mean of the squares, of one number or several."""
    loss = LOSS_BY_NAME["mean_squared_error"]
    assert float(loss(SCORES, torch.tensor([[1.0, 0.0, -1.0]]))) == pytest.approx(5 / 3)
    assert float(loss(torch.tensor([[3.0]]), torch.tensor([1]))) == pytest.approx(4)


def test_each_next_token() -> None:
    """The mean over the tokens of a record; a token that is left out counts in neither."""
    loss, scores = LOSS_BY_NAME["cross_entropy"], torch.stack([SCORES[0], torch.zeros(3)])[None]
    first = -math.log(math.exp(2) / (1 + math.exp(2) + math.exp(-1)))
    assert float(loss(scores, torch.tensor([[1, 2]]))) == pytest.approx((first + math.log(3)) / 2, rel=1e-6)
    assert float(loss(scores, torch.tensor([[1, -100]]))) == pytest.approx(first, rel=1e-6)
    assert measured("cross_entropy", scores, torch.tensor([[1, 2]])) == (1, 2)
    assert measured("cross_entropy", scores, torch.tensor([[1, -100]])) == (1, 1)
    assert measured("mean_squared_error", SCORES, torch.tensor([[1.0, 0.0, -1.0]])) == pytest.approx((5, 3))


@pytest.mark.parametrize(
    ("files", "rule"),
    [
        ((), "holds no config.json"),
        (("config.json",), "holds no weights as safetensors"),
        (("config.json", "pytorch_model.bin"), "holds no weights as safetensors"),
    ],
)
def test_a_folder_of_other_weights_is_refused(tmp_path: Path, files: tuple[str, ...], rule: str) -> None:
    """Python's pickles run code when they are read, so they are not."""
    (tmp_path / "bert").mkdir()
    for name in files:
        (tmp_path / "bert" / name).write_bytes(b"{}")
    with pytest.raises(Malformed, match=f"model: the folder bert {rule}"):
        make("bert", tmp_path)
