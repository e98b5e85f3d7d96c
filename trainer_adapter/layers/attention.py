"""Scaled dot-product attention under ``torch.func.vmap``: one fused call for all records.

PyTorch has no batching rule for its fused kernel on the CPU and would run it record by record. Units are folded
into the batch dimension that the kernel has already; each record still attends to itself alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class _Folded(torch.autograd.Function):
    """Used under ``vmap`` only: what is differentiated is the call inside."""

    @staticmethod
    def forward(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Mapping[str, Any]) -> Tensor:
        """As the plain function."""
        return functional.scaled_dot_product_attention(query, key, value, mask, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401 - PyTorch's own
        """Keep nothing: this has no backward of its own."""

    @staticmethod
    def vmap(  # noqa: PLR0913, PLR0917 - PyTorch's signature
        info: Any,  # noqa: ANN401 - PyTorch's own
        in_dims: Sequence[int | None],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        options: Mapping[str, Any],
    ) -> tuple[Tensor, int]:
        """Fold the units' dimension into the first of each tensor."""
        dims = zip((query, key, value), in_dims, strict=False)
        heads = [_first(one, dim, info.batch_size) for one, dim in dims]
        spread = None
        if mask is not None:
            spread = _mask(_first(mask, in_dims[3], info.batch_size), heads[0])
        folded = [one.flatten(0, 1) for one in heads]
        output = attention(folded[0], folded[1], folded[2], spread, **options)
        return output.reshape(info.batch_size, -1, *output.shape[1:]), 0


def _first(value: Tensor, dim: int | None, units: int) -> Tensor:
    return value.expand(units, *value.shape) if dim is None else value.movedim(dim, 0)


def _mask(mask: Tensor, query: Tensor) -> Tensor:
    """A mask (units, ...) as one for (units, batch, heads, ...) with the first two folded."""
    full = mask.reshape(len(mask), *(1,) * (query.dim() - mask.dim()), *mask.shape[1:])
    return full.expand(len(mask), query.shape[1], *full.shape[2:]).flatten(0, 1)


def attention(  # noqa: PLR0913, PLR0917 - PyTorch's signature
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - as above
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - as above
) -> Tensor:
    """As ``torch.nn.functional.scaled_dot_product_attention``; dropout is left to it, which refuses it here."""
    options: dict[str, Any] = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    batched = any(torch._C._functorch.is_batchedtensor(one) for one in (query, key, value))  # noqa: SLF001 - it has no other name
    if not batched or query.dim() != 4 or dropout_p:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask, **options)
    output: Tensor = _Folded.apply(query, key, value, attn_mask, options)  # type: ignore[no-untyped-call] # PyTorch
    return output
