"""Scaled dot-product attention under ``torch.func.vmap``: one fused call for all records.

PyTorch has no batching rule for its fused kernel on the CPU and would run it record by record. Units are folded
into the batch dimension that the kernel has already; each record still attends to itself alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class AttentionCall(NamedTuple):
    """The arguments of ``torch.nn.functional.scaled_dot_product_attention``."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def run(self) -> Tensor:
        """As PyTorch does."""
        return functional.scaled_dot_product_attention(**self._asdict())


class _Folded(torch.autograd.Function):
    """Used under ``vmap`` only: what is differentiated is the call inside."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:  # noqa: ANN401 - those of the call
        """As the plain function."""
        return AttentionCall(*arguments).run()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401 - PyTorch's own
        """Keep nothing: this has no backward of its own."""

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Tensor, int]:  # noqa: ANN401 - PyTorch's own
        """Fold the units' dimension into the first of each tensor."""
        units, call = info.batch_size, AttentionCall(*arguments)
        query, key, value = (_first(tensor, dim, units) for tensor, dim in zip(call[:3], in_dims, strict=False))
        mask = call.attn_mask
        if mask is not None:
            mask = _mask(_first(mask, in_dims[3], units), query)
        query, key, value = (tensor.flatten(0, 1) for tensor in (query, key, value))
        output = attention(call._replace(query=query, key=key, value=value, attn_mask=mask))
        return output.reshape(units, -1, *output.shape[1:]), 0


def _first(value: Tensor, dim: int | None, units: int) -> Tensor:
    return value.expand(units, *value.shape) if dim is None else value.movedim(dim, 0)


def _mask(mask: Tensor, query: Tensor) -> Tensor:
    """A mask (units, ...) as one for (units, batch, heads, ...) with the first two folded."""
    full = mask.reshape(len(mask), *(1,) * (query.dim() - mask.dim()), *mask.shape[1:])
    return full.expand(len(mask), query.shape[1], *full.shape[2:]).flatten(0, 1)


def attention(call: AttentionCall) -> Tensor:
    """As ``torch.nn.functional.scaled_dot_product_attention``; dropout is left to it, which refuses it here."""
    batched = any(torch._C._functorch.is_batchedtensor(tensor) for tensor in call[:3])  # noqa: SLF001 - it has no other name
    if not batched or call.query.dim() != 4 or call.dropout_p:
        return call.run()
    output: Tensor = _Folded.apply(*call)  # type: ignore[no-untyped-call] # PyTorch
    return output
