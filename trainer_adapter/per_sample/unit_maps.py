"""A function of one unit, mapped over all units of a microbatch: vectorised, or one unit after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

UnitMap: TypeAlias = Callable[..., Callable[..., Any]]
"""As ``vmap``, of a function and its ``in_dims``: 0 or None for each argument."""
vectorised: Final[UnitMap] = partial(torch.func.vmap, randomness="error")
"""All units at once; no randomness but what is passed in."""


def looped(function: Callable[..., Any], in_dims: int | tuple[int | None, ...] = 0) -> Callable[..., Any]:
    """One unit after the other, with the same arguments and results as :func:`vectorised`."""

    def run(*args: Any) -> Any:  # noqa: ANN401 - whatever the function takes and gives
        dims = (in_dims,) * len(args) if isinstance(in_dims, int) else in_dims
        split, shape = tree_flatten([arg for arg, dim in zip(args, dims, strict=True) if dim is not None])
        # Unbound at once: the gradient of each piece by itself would have the size of the whole.
        units = zip(*(value.unbind(0) for value in split), strict=True)
        results = []
        for unit in units:
            own = iter(tree_unflatten(list(unit), shape))
            results.append(function(*(arg if dim is None else next(own) for arg, dim in zip(args, dims, strict=True))))
        return tree_map(lambda *values: torch.stack(values), *results)

    return run
