"""Indices held to their range before a kernel reads them: on a GPU, or compiled, one that is not would end the process.

On a CPU a token of no word or a label of no class raises, and its unit is left out of the sum. A kernel of CUDA asserts
instead, and nothing of the process's context works afterwards; one that TorchInductor compiles for a CPU throws inside
a thread of OpenMP's, which ends the process. The run would end, and its end would tell of a record. So there each such
index is replaced by 0 and noted in the record's own factor, NaN in place of 1, which its loss is multiplied by: the
gradient is not finite, and the unit counts for nothing. Nothing waits for a value of a record.

Held are embeddings, cross-entropy and its like, ``gather``, ``take``, ``take_along_dim``, ``index_select``,
``one_hot``, ``scatter``, ``index_add`` and their like, and reading and writing by tensors of integers. Another
operation that is given a record's indices reads them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from trainer_adapter.layers.functional_call import FunctionMode
from trainer_adapter.layers.next_token_loss import LEFT_OUT, next_token_loss


class _Range(NamedTuple):
    """What indices of a call must lie in: from ``low`` to below ``high``, or at ``also``."""

    high: int
    low: int = 0
    also: int | None = None


Bound: TypeAlias = Mapping[str, Any]
RangeOf: TypeAlias = Callable[[Bound], _Range]


def _along(call: Bound) -> _Range:
    dim = call.get("dim")
    return _Range(call["input"].numel() if dim is None else call["input"].shape[dim])


def _classes(call: Bound) -> _Range:
    scores = call["input"]
    return _Range(scores.shape[min(1, scores.dim() - 1)], also=call.get("ignore_index", LEFT_OUT))


def _rows(call: Bound) -> _Range:
    return _Range(len(call["weight"]))


def _words(call: Bound) -> _Range:
    return _Range(len(call["weight"]), also=LEFT_OUT)


def _hot(call: Bound) -> _Range:
    # Without a number of classes it is the greatest index that says it, which a trace refuses.
    return _Range(call.get("num_classes", -1))


def _from_the_end(call: Bound) -> _Range:
    """As :func:`_along`, where a negative index counts from the end."""
    size = _along(call).high
    return _Range(size, low=-size)


_ALONG: Final = (("input", "dim", "index"), "index", _along)
_FILLED: Final = (("input", "dim", "index"), "index", _from_the_end)
_FLAT: Final = (("input", "index"), "index", _from_the_end)
_TAKEN: Final = (("input", "indices", "dim"), "indices", _along)
_CLASSES: Final = (("input", "target", "weight", "size_average", "ignore_index"), "target", _classes)
_RULES: Final[dict[Any, tuple[tuple[str, ...], str, RangeOf]]] = {
    functional.embedding: (("input", "weight"), "input", _rows),
    functional.embedding_bag: (("input", "weight"), "input", _rows),
    torch.embedding: (("weight", "indices"), "indices", _rows),
    functional.cross_entropy: _CLASSES,
    functional.nll_loss: _CLASSES,
    functional.one_hot: (("tensor", "num_classes"), "tensor", _hot),
    next_token_loss: (("hidden", "weight", "targets"), "targets", _words),
    torch.gather: _ALONG,
    Tensor.gather: _ALONG,
    torch.index_select: _ALONG,
    Tensor.index_select: _ALONG,
    torch.take_along_dim: _TAKEN,
    Tensor.take_along_dim: _TAKEN,
    torch.take: _FLAT,
    Tensor.take: _FLAT,
    torch.index_fill: _FILLED,
    Tensor.index_fill: _FILLED,
    Tensor.index_fill_: _FILLED,
    **{
        getattr(of, name): _ALONG
        for name in ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce")
        for of, name in ((torch, name), (Tensor, name), (Tensor, f"{name}_"))
    },
}
_PUT: Final = (torch.index_put, Tensor.index_put, Tensor.index_put_)


class IndexGuard(FunctionMode):
    """Within its block, one record's pass, every index of a known call is one that its kernel can read."""

    def __init__(self) -> None:
        """Of a pass that has not begun."""
        super().__init__()
        self._outside: list[Tensor] = []

    def factor(self) -> Tensor | None:
        """What the record's loss is multiplied by: 1, or NaN if an index lay outside; None if none was looked at."""
        if not self._outside:
            return None
        return torch.where(torch.stack(self._outside).any(), torch.nan, 1.0)

    def replace(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any function of PyTorch's
        """Run the call, its indices held to their range."""
        if function is Tensor.__getitem__:
            return function(args[0], self._subscript(args[0], args[1]))
        if function is Tensor.__setitem__:
            return function(args[0], self._subscript(args[0], args[1]), args[2])
        if function in _PUT:
            return self._put(function, args, kwargs)
        rule = _RULES.get(function)
        if rule is None:
            return function(*args, **kwargs)
        names, where, range_of = rule
        call = {**dict(zip(names, args, strict=False)), **kwargs}
        if isinstance(call[where], Tensor) and _is_index(call[where]):
            call[where] = self._held(call[where], range_of(call))
        # By position as far as it was given so: what is written in C may take some by position alone.
        given = names[: len(args)]
        return function(
            *(call[name] for name in given),
            *args[len(names) :],
            **{name: value for name, value in call.items() if name not in given},
        )

    def _put(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as replace
        """A write by indices. As :meth:`replace`."""
        call = {**dict(zip(("input", "indices", "values", "accumulate"), args, strict=False)), **kwargs}
        value, indices = call.pop("input"), call.pop("indices")
        return function(value, self._subscript(value, tuple(indices)), **call)

    def _held(self, index: Tensor, within: _Range) -> Tensor:
        inside = (index >= within.low) & (index < within.high)
        if within.also is not None:
            inside = inside | (index == within.also)
        self._outside.append(~inside.all())
        return torch.where(inside, index, torch.zeros_like(index))

    def _subscript(self, value: Tensor, subscript: Any) -> Any:  # noqa: ANN401 - whatever a tensor is indexed by
        parts = subscript if isinstance(subscript, tuple) else (subscript,)
        if not any(isinstance(part, Tensor) and _is_index(part) for part in parts):
            return subscript
        taken = sum(_dimensions(part) for part in parts if part is not Ellipsis)
        held, dim = [], 0
        for part in parts:
            if isinstance(part, Tensor) and _is_index(part):
                size = value.shape[dim]
                held.append(self._held(part, _Range(size, low=-size)))
            else:
                held.append(part)
            dim += value.dim() - taken if part is Ellipsis else _dimensions(part)
        return tuple(held)


def _is_index(value: Tensor) -> bool:
    return not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool


def _dimensions(part: object) -> int:
    """How many dimensions of a tensor one part of a subscript stands for."""
    if isinstance(part, Tensor) and part.dtype == torch.bool:
        return part.dim()
    return 0 if part is None or isinstance(part, bool) else 1
