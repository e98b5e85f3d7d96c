"""The networks of ``networks`` for JAX, from the same first weights, so that both frameworks work out the same."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from torch import nn

from tests.bench.networks import Network, Sizes

Values = dict[str, Any]
"""Parameters by the names PyTorch gives them, as JAX arrays."""
GROUPS: Final = 8
EPSILON: Final = 1e-5


def weights(model: nn.Module) -> Values:
    """A model's parameters."""
    numbers = import_module("jax.numpy")
    return {name: numbers.asarray(value.detach().cpu().numpy()) for name, value in model.named_parameters()}


def apply(network: Network, sizes: Sizes, values: Values, inputs: Any) -> Any:  # noqa: ANN401 - JAX's own types
    """Scores of the network with these weights."""
    if network.name == "cnn":
        return _cnn(values, inputs)
    if network.name == "resnet":
        return _resnet(sizes, values, inputs)
    return _transformer(sizes, values, inputs, causal=network.name == "decoder")


def _cnn(values: Values, maps: Any) -> Any:  # noqa: ANN401 - as above, and below
    jax = import_module("jax")
    for place, stride, margin in (("0", 2, 3), ("3", 2, 0)):
        maps = jax.nn.relu(_convolve(values, place, maps, stride, margin))
        window = ((1, 1, 2, 2), (1, 1, 1, 1), "VALID")
        maps = jax.lax.reduce_window(maps, -jax.numpy.inf, jax.lax.max, *window)
    hidden = jax.nn.relu(_linear(values, "7", maps.reshape(maps.shape[0], -1)))
    return _linear(values, "9", hidden)


def _resnet(sizes: Sizes, values: Values, maps: Any) -> Any:  # noqa: ANN401
    relu = import_module("jax").nn.relu
    maps = relu(_in_groups(values, "1", _convolve(values, "0", maps, 1, 1)))
    for block in range(3 * sizes.depth):
        place, stride = str(3 + block), 2 if block and block % sizes.depth == 0 else 1
        inside = relu(_in_groups(values, f"{place}.first_norm", _convolve(values, f"{place}.first", maps, stride, 1)))
        found = _in_groups(values, f"{place}.second_norm", _convolve(values, f"{place}.second", inside, 1, 1))
        short = f"{place}.shortcut"
        maps = relu(found + (_convolve(values, short, maps, stride, 0) if f"{short}.weight" in values else maps))
    return _linear(values, str(5 + 3 * sizes.depth), maps.mean(axis=(2, 3)))


def _transformer(sizes: Sizes, values: Values, words: Any, *, causal: bool) -> Any:  # noqa: ANN401
    heads = max(2, sizes.width // 64)
    tokens = values["words.weight"][words] + values["places.weight"][: words.shape[1]]
    for layer in range(sizes.depth):
        place = f"layers.{layer}"
        tokens = tokens + _attention(values, place, tokens, heads, causal=causal)
        up = _linear(values, f"{place}.up", _normed(values, f"{place}.between", tokens))
        tokens = tokens + _linear(values, f"{place}.down", import_module("jax").nn.gelu(up, approximate=False))
    tokens = _normed(values, "norm", tokens)
    return _linear(values, "head", tokens if causal else tokens.mean(axis=1))


def _attention(values: Values, place: str, tokens: Any, heads: int, *, causal: bool) -> Any:  # noqa: ANN401
    records, length, width = tokens.shape
    requested = _linear(values, f"{place}.asked", _normed(values, f"{place}.before", tokens))
    parts = requested.reshape(records, length, 3, heads, width // heads)
    attend = import_module("jax").nn.dot_product_attention
    mixed = attend(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=causal)
    return _linear(values, f"{place}.out", mixed.reshape(records, length, width))


def _linear(values: Values, name: str, inputs: Any) -> Any:  # noqa: ANN401
    return inputs @ values[f"{name}.weight"].T + values[f"{name}.bias"]


def _convolve(values: Values, name: str, maps: Any, stride: int, margin: int) -> Any:  # noqa: ANN401
    lax = import_module("jax.lax")
    layout = ("NCHW", "OIHW", "NCHW")
    found = lax.conv_general_dilated(
        maps, values[f"{name}.weight"], (stride, stride), [(margin, margin)] * 2, dimension_numbers=layout
    )
    bias = values.get(f"{name}.bias")
    return found if bias is None else found + bias[:, None, None]


def _normed(values: Values, name: str, tokens: Any) -> Any:  # noqa: ANN401
    centred = tokens - tokens.mean(axis=-1, keepdims=True)
    spread = (centred**2).mean(axis=-1, keepdims=True)
    return centred / (spread + EPSILON) ** 0.5 * values[f"{name}.weight"] + values[f"{name}.bias"]


def _in_groups(values: Values, name: str, maps: Any) -> Any:  # noqa: ANN401
    grouped = maps.reshape(maps.shape[0], GROUPS, -1)
    centred = grouped - grouped.mean(axis=-1, keepdims=True)
    made = centred / ((centred**2).mean(axis=-1, keepdims=True) + EPSILON) ** 0.5
    scale, bias = values[f"{name}.weight"], values[f"{name}.bias"]
    return made.reshape(maps.shape) * scale[:, None, None] + bias[:, None, None]
