"""What a model gives besides tensors in tuples: it is unfolded and compared, or the model is refused."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.integrations.opacus_models import PassWatch, check_independence


@dataclass
class _Given:
    """The outputs of a model by name."""

    logits: Tensor
    hidden: object = None


class _Named(OrderedDict[str, Tensor]):
    """The same, as other libraries have it."""


class _Closed:
    """An object whose parts nobody knows."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class _Model(nn.Module):
    """A linear layer whose output is put into something."""

    def __init__(self, put: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.layer, self.put = nn.Linear(3, 2), put

    def forward(self, inputs: Tensor) -> object:
        """What the layer gives, put into it."""
        return self.put(self.layer(inputs))


def _is_apart(put: Callable[[Tensor], object]) -> bool:
    return check_independence(_Model(put), ((torch.zeros(5, 3),), {}), 0)


APART: dict[str, Callable[[Tensor], object]] = {
    "a dataclass": _Given,
    "a mapping": lambda out: _Named(logits=out),
    "one in the other": lambda out: _Given(out, [_Named(logits=out), 3, None]),
}
MIXED: dict[str, Callable[[Tensor], object]] = {
    "a dataclass": lambda out: _Given(out - out.mean(0)),
    "beside what is apart": lambda out: (out, _Given(out - out.mean(0))),
    "a mapping in a dataclass": lambda out: _Given(out, _Named(logits=out - out.mean(0))),
}


@pytest.mark.parametrize("name", APART)
def test_outputs_that_are_apart_are_taken(name: str) -> None:
    """Whatever holds them."""
    assert _is_apart(APART[name])


@pytest.mark.parametrize("name", MIXED)
def test_outputs_that_are_mixed_are_found(name: str) -> None:
    """Wherever they are."""
    with pytest.raises(Malformed, match="lets one record change the output of another"):
        _is_apart(MIXED[name])


def test_what_cannot_be_unfolded_is_refused() -> None:
    """By the name of its class."""
    with pytest.raises(Malformed, match="gives a _Closed: must give tensors"):
        _is_apart(lambda out: (out, _Closed(out)))


def test_a_model_that_gives_its_loss_is_refused_before_a_record_is_seen() -> None:
    """No output is known to be of a record, so nothing can be compared."""
    with pytest.raises(Malformed, match="gives no tensor of which a dimension counts the records"):
        PassWatch(batch_first=True).try_record(_Model(lambda out: out.mean()), [torch.zeros(3)])
