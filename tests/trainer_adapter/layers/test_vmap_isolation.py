"""What keeps teachers apart: each function that takes an index, and the search for those that raise by themselves."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainer_adapter.layers.vmap_isolation import runs_apart, without_broken

TEACHERS, ROWS, WIDTH = 3, 5, 2
INDEXED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "embedding": lambda table, index, _: functional.embedding(index, table),
    "gather": lambda table, index, _: table.gather(0, index[:, None].expand(-1, WIDTH)),
    "index": lambda table, index, _: table[index],
    "index_add": lambda table, index, rows: table.index_add(0, index, rows),
    "index_copy": lambda table, index, rows: table.index_copy(0, index, rows),
    "index_fill": lambda table, index, _: table.index_fill(0, index, 0.0),
    "index_put": lambda table, index, rows: table.index_put((index,), rows, accumulate=True),
    "index_select": lambda table, index, _: table.index_select(0, index),
    "nll_loss": lambda table, index, _: functional.nll_loss(table[:2].log_softmax(1), index, reduction="none"),
    "one_hot": lambda table, index, _: functional.one_hot(index, ROWS).float() @ table,
    "scatter": lambda table, index, rows: table.scatter(0, index[:, None].expand(-1, WIDTH), rows),
    "scatter_add": lambda table, index, rows: table.scatter_add(0, index[:, None].expand(-1, WIDTH), rows),
    "take_along_dim": lambda table, index, _: torch.take_along_dim(table[:, 0], index),
}


def _computed(function: Callable[[Tensor, Tensor, Tensor], Tensor], index: Tensor) -> list[Tensor]:
    """The outputs of all teachers, and the gradient of each one's table."""
    source = torch.Generator().manual_seed(1)
    table = torch.rand((TEACHERS, ROWS, WIDTH), generator=source).requires_grad_()
    found = torch.func.vmap(function)(table, index, torch.rand((TEACHERS, 2, WIDTH), generator=source))
    found.square().sum().backward()
    assert table.grad is not None
    return [found.detach(), table.grad]


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_range_reaches_no_other_teacher(name: str) -> None:
    """It raises, or changes that teacher alone, or the function is refused for all before a record is seen."""
    index, apart = torch.tensor([[0, 1], [1, 0], [1, 1]]), True
    sound = _computed(INDEXED[name], index)
    for teacher in (0, 1):
        for wrong in (-ROWS - 1, -1, ROWS, ROWS + 1, 2 * ROWS):
            changed = index.clone()
            changed[teacher, 0] = wrong
            try:
                found = _computed(INDEXED[name], changed)
            except (IndexError, RuntimeError):
                continue
            others = torch.arange(TEACHERS) != teacher
            apart &= all(torch.equal(one[others], other[others]) for one, other in zip(sound, found, strict=True))
    assert runs_apart(lambda: _computed(INDEXED[name], index)) == apart


def test_those_that_raise_by_themselves_are_found() -> None:
    """In whichever places they are; the others are run together."""
    for bad in (set[int](), {0}, {6}, {2, 3}, set(range(7))):

        def run(shown: Tensor, bad: set[int] = bad) -> list[int]:
            places: list[int] = torch.nonzero(shown).flatten().tolist()
            if bad & set(places):
                raise ValueError("a record")
            return places

        given, sound = without_broken(run, torch.tensor([True] * 7 + [False]))
        assert given == [place for place in range(7) if place not in bad]
        assert torch.nonzero(sound).flatten().tolist() == given


def test_what_raises_for_no_record_is_raised() -> None:
    """No teacher has failed by it."""

    def run(shown: Tensor) -> Tensor:
        raise MemoryError(len(shown))

    with pytest.raises(MemoryError):
        without_broken(run, torch.ones(3, dtype=torch.bool))
