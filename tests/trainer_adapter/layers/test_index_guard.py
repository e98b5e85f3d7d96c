"""Indices that no kernel may read: found in the graph itself, and their unit left out, as a GPU needs it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.poisson_sampler import microbatches
from trainer_adapter.dpsgd.privacy_units import UnitRecords
from trainer_adapter.layers.index_guard import IndexGuard
from trainer_adapter.per_sample.microbatch import MicrobatchGradientSum
from trainer_adapter.per_sample.record_loss import LossFn, RecordLoss
from trainer_adapter.per_sample.rounding_margins import precision_of

PLAN = Plan(Fraction(1, 2), Fraction(1), Fraction(1), 10, 3)
WORDS, CLASSES, RECORDS = 9, 3, 6


class _Looks(nn.Module):
    """Words by an embedding, and rows of another table by ``look``."""

    table: Tensor

    def __init__(self, look: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 4), nn.Linear(8, CLASSES)
        self.register_buffer("table", torch.linspace(-1, 1, WORDS * 4).reshape(WORDS, 4))
        self._look = look

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head((self.words(tokens) + self._look(self.table, tokens)).flatten(1))
        return scores


def _gather(table: Tensor, tokens: Tensor) -> Tensor:
    return table.gather(0, tokens.flatten()[:, None].expand(-1, 4)).reshape(*tokens.shape, 4)


def _hot(write: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Rows of the table by ones that are written, one row a token; of (rows, words) and the tokens, (rows,)."""

    def look(table: Tensor, tokens: Tensor) -> Tensor:
        flat = tokens.flatten()
        return (write(table.new_zeros(len(flat), WORDS), flat) @ table).reshape(*tokens.shape, 4)

    return look


def _counted(write: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The same for each token, by the words that a record has; of (words,) and the tokens, (rows,)."""

    def look(table: Tensor, tokens: Tensor) -> Tensor:
        return (write(table.new_zeros(WORDS), tokens.flatten()) @ table).expand(*tokens.shape, 4)

    return look


def _set(hot: Tensor, flat: Tensor) -> Tensor:
    hot[torch.arange(len(flat)), flat] = 1.0
    return hot


LOOKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "subscript": lambda table, tokens: table[tokens],
    "subscript after others": lambda table, tokens: table[None, ..., :][0, tokens],
    "gather": _gather,
    "index_select": lambda table, tokens: table.index_select(0, tokens.flatten()).reshape(*tokens.shape, 4),
    "take_along_dim": lambda table, tokens: table.T.take_along_dim(tokens.expand(4, -1), dim=1).T[None],
    "embedding": lambda table, tokens: functional.embedding(tokens, table),
    "one_hot": lambda table, tokens: functional.one_hot(tokens, WORDS).to(table.dtype) @ table,
    "take": lambda table, tokens: table.take(tokens[..., None].expand(*tokens.shape, 4)),
    "scatter": _hot(lambda hot, flat: hot.scatter(1, flat[:, None], 1.0)),
    "scatter_": _hot(lambda hot, flat: hot.scatter_(1, flat[:, None], 1.0)),
    "scatter_add": _hot(lambda hot, flat: torch.scatter_add(hot, 1, flat[:, None], torch.ones(len(flat), 1))),
    "scatter_reduce": _hot(lambda hot, flat: hot.scatter_reduce(1, flat[:, None], torch.ones(len(flat), 1), "sum")),
    "index_add": _counted(lambda counts, flat: counts.index_add(0, flat, torch.ones(len(flat)))),
    "index_copy": _counted(lambda counts, flat: counts.index_copy(dim=0, index=flat, source=torch.ones(len(flat)))),
    "index_fill": _counted(lambda counts, flat: counts.index_fill(0, flat, 1.0)),
    "index_put": _hot(lambda hot, flat: hot.index_put((torch.arange(len(flat)), flat), torch.ones(()))),
    "a subscript that is written to": _hot(_set),
}


def _sum(model: nn.Module, loss: LossFn, data: tuple[Tensor, Tensor], chosen: list[int], *, guarded: bool) -> Tensor:
    """The clipped sum of the records that are chosen, by one microbatch of all places."""
    units = UnitRecords(PLAN, data, None, 1)
    record = RecordLoss(model, loss, precision_of("float32"), tuple(name for name, _ in model.named_parameters()))
    device = torch.device("cpu")
    public = units.public_batch(RECORDS, device)
    graph = MicrobatchGradientSum(record, record.values(), public, bound=0.5, guarded=guarded)
    (batch,) = microbatches(np.array(chosen), RECORDS)
    return graph(record.values(), units.gather(batch, None, device)).total


def _data() -> tuple[Tensor, Tensor]:
    return torch.arange(12).remainder(WORDS).reshape(RECORDS, 2), torch.arange(RECORDS) % CLASSES


@pytest.mark.parametrize("look", LOOKS)
def test_a_unit_with_an_index_outside_adds_nothing_and_raises_nothing(look: str) -> None:
    """Tokens of no word, too great and below zero, and a label of no class: the sum is that of the others."""
    torch.manual_seed(2)
    model = _Looks(LOOKS[look])
    others = _sum(model, functional.cross_entropy, _data(), [0, 3, 5], guarded=False)
    inputs, targets = _data()
    inputs[1, 0], inputs[2, 1], targets[4] = 99, -1, CLASSES
    found = _sum(model, functional.cross_entropy, (inputs, targets), list(range(RECORDS)), guarded=True)
    assert torch.allclose(found, others, atol=1e-6)
    assert float(others.norm()) > 0.1
    with pytest.raises((RuntimeError, IndexError)):
        _sum(model, functional.cross_entropy, (inputs, targets), list(range(RECORDS)), guarded=False)


@pytest.mark.parametrize("look", LOOKS)
def test_without_such_an_index_the_sum_is_the_same_bit_for_bit(look: str) -> None:
    """The factor is 1."""
    torch.manual_seed(2)
    model, chosen = _Looks(LOOKS[look]), list(range(RECORDS))
    plain, guarded = (
        _sum(model, functional.cross_entropy, _data(), chosen, guarded=guarded) for guarded in (False, True)
    )
    assert torch.equal(plain, guarded)


def test_a_class_that_is_left_out_is_no_index() -> None:
    """A target at ``ignore_index`` counts for nothing in its own record, and the record's others count."""
    scores = torch.randn(3, 4, requires_grad=True)
    targets = torch.tensor([1, -100, 2])
    with IndexGuard() as guard:
        loss = functional.cross_entropy(scores, targets)
    factor = guard.factor()
    assert factor is not None
    assert float(factor) == 1
    assert torch.equal(loss, functional.cross_entropy(scores, targets))
    with IndexGuard() as guard:
        functional.cross_entropy(scores, torch.tensor([1, 7, 2]), ignore_index=7)
        functional.nll_loss(scores, torch.tensor([1, 7, 2]), None, None, 7)
    assert float(guard.factor() or 0) == 1


def test_a_negative_subscript_counts_from_the_end() -> None:
    """As in PyTorch, down to minus the size; below that it lies outside."""
    values = torch.arange(5.0)
    with IndexGuard() as guard:
        assert values[torch.tensor([-5, 4])].tolist() == [0, 4]
    assert float(guard.factor() or 0) == 1
    with IndexGuard() as guard:
        assert values[torch.tensor([-6, 5])].tolist() == [0, 0]
    factor = guard.factor()
    assert factor is not None
    assert torch.isnan(factor)
