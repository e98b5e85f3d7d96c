"""Trees of tensors: what one record is made of when it is more than one tensor, as tokens with their attention mask.

A tree is a tensor, or a dictionary, list or tuple of trees. A model takes a dictionary by keyword, as those of
Transformers do, a list or tuple by position, and one tensor as its only argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ledger.wire.malformed import Malformed

TensorTree: TypeAlias = "Tensor | Mapping[str, TensorTree] | Sequence[TensorTree]"


def tree_of(value: object, where: str) -> TensorTree:
    """The same in dictionaries, by name in order, and tuples alone, whatever mappings and sequences it came in.

    Raises:
        Malformed: naming the place of what is no tensor, or of an empty dictionary, list or tuple.
    """
    if isinstance(value, Tensor):
        return value
    known: dict[str, object] | None = None
    if isinstance(value, Mapping):
        known = {str(name): member for name, member in value.items()}
        made: TensorTree = {name: tree_of(known[name], f"{where}.{name}") for name in sorted(known)}
    elif isinstance(value, list | tuple):
        made = tuple(tree_of(item, f"{where}[{place}]") for place, item in enumerate(value))
    else:
        raise Malformed(where, f"is a {type(value).__name__}: must be a tensor, or a dictionary or list of tensors")
    if not made:
        raise Malformed(where, "holds no tensor")
    return made


def map_tensors(function: Callable[..., Any], tree: TensorTree, *others: TensorTree) -> Any:  # noqa: ANN401 - a tree of what the function gives
    """A tree of the same form; ``others`` have it too."""
    return tree_map(function, tree, *others)


def tensors(tree: TensorTree) -> list[Tensor]:
    """Its tensors, in order."""
    return tree_flatten(tree)[0]


def count_records(tree: TensorTree, where: str) -> int:
    """The length of the first dimension, which all tensors share. Raises: Malformed."""
    lengths = {len(tensor) if tensor.dim() else -1 for tensor in tensors(tree)}
    if len(lengths) != 1 or lengths == {-1}:
        raise Malformed(where, "must hold tensors whose first dimension counts the records, the same in all")
    return lengths.pop()


def select(tree: TensorTree, places: Any) -> Any:  # noqa: ANN401 - any index of a tensor; a tree, whose tensors callers know
    """A tree of what is at these places of each tensor."""
    return tree_map(lambda tensor: tensor[places], tree)


def form(tree: TensorTree) -> object:
    """The form of a tree: its names, and the shape of one record. Records of trees of one form can be concatenated."""
    leaves, spec = tree_flatten(tree)
    return spec, [leaf.shape[1:] for leaf in leaves]


def concatenate(trees: Sequence[TensorTree]) -> Any:  # noqa: ANN401 - a tree, whose tensors callers know
    """The records of trees of one form, one after the other."""
    spec = tree_flatten(trees[0])[1]
    return tree_unflatten([torch.cat(parts) for parts in zip(*map(tensors, trees), strict=True)], spec)


def arguments(inputs: TensorTree) -> tuple[tuple[TensorTree, ...], dict[str, TensorTree]]:
    """What a model is called with."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return ((inputs,), {}) if isinstance(inputs, Tensor) else (tuple(inputs), {})
