"""Trees of tensors as bytes, for another rank: safetensors, with the form of each tree and a few facts as JSON.

No pickle: what a rank receives is numbers and names, and runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from trainer_adapter.layers.tensor_trees import TensorTree


def pack(trees: Mapping[str, TensorTree], about: Mapping[str, Any]) -> bytes:
    """Trees by name, and facts that JSON can hold."""
    held: dict[str, Tensor] = {}
    form = {name: _form(tree, held) for name, tree in trees.items()}
    return save(held, {"about": json.dumps({"about": about, "form": form})})


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The trees by name, on the CPU, and the facts."""
    # The header of safetensors: eight bytes of length, then JSON, with our text among its metadata.
    length, held = int.from_bytes(data[:8], "little"), load(data)
    known = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["about"])
    return {name: _tree(form, held) for name, form in known["form"].items()}, known["about"]


def _form(tree: TensorTree, held: dict[str, Tensor]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(tree, Tensor):
        name = str(len(held))
        held[name] = tree.detach().cpu().contiguous().clone()
        return name
    if isinstance(tree, Mapping):
        return {name: _form(member, held) for name, member in tree.items()}
    return [_form(member, held) for member in tree]


def _tree(form: Any, held: Mapping[str, Tensor]) -> Any:  # noqa: ANN401 - as above
    if isinstance(form, str):
        return held[form]
    if isinstance(form, dict):
        return {name: _tree(member, held) for name, member in form.items()}
    return tuple(_tree(member, held) for member in form)
