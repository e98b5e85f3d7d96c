"""Per-example gradient rules: one for each function of PyTorch whose per-example gradient has a factored form.

A rule looks at one call. Where it applies, it computes the output from the parameters' values alone (no gradient runs
into them) and says what of the call to save. Where it does not, the parameter takes the general way: it goes through
the model once for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from trainer_adapter.per_sample.gradient_factors import (
    ConvGrad,
    DenseGrad,
    EmbeddingGrad,
    OuterProductGrad,
    PerExampleGrad,
)

NameOf: TypeAlias = Callable[[object], str | None]
"""The name of a tensor that is a parameter under a rule, or None."""


class Layer(Protocol):
    """One call: turns what was saved of it, and the gradient of its output, into per-example gradients."""

    def factors(self, saved: Tensor, grad: Tensor) -> Iterator[tuple[str, PerExampleGrad]]:
        """Both tensors begin with the units' dimension and are in the work type, indices excepted."""
        ...


class CapturedCall(NamedTuple):
    """A call that a rule covers: its output, what to save, and the layer that turns it into gradients."""

    output: Tensor
    saved: Tensor
    layer: Layer


@dataclass(frozen=True, slots=True)
class Linear:
    """``weight`` (p, d), or (d, p) if ``turned``; one of its names may be None where only the other trains."""

    weight: str | None
    bias: str | None
    turned: bool = False

    def factors(self, saved: Tensor, grad: Tensor) -> Iterator[tuple[str, PerExampleGrad]]:
        """All dimensions between the first and the last are positions."""
        left, right = _positions(grad), _positions(saved)
        if self.weight is not None:
            yield self.weight, OuterProductGrad(right, left) if self.turned else OuterProductGrad(left, right)
        if self.bias is not None:
            yield self.bias, DenseGrad(left.sum(dim=1))


@dataclass(frozen=True, slots=True)
class Convolution:
    """In one, two or three dimensions of space."""

    weight: str | None
    bias: str | None
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def factors(self, saved: Tensor, grad: Tensor) -> Iterator[tuple[str, PerExampleGrad]]:
        """All dimensions before the channels count images."""
        saved, grad = (_images(value, len(self.stride)) for value in (saved, grad))
        if self.weight is not None:
            geometry = (self.stride, self.padding, self.dilation, self.groups)
            yield self.weight, ConvGrad(saved, grad, self.kernel, *geometry)
        if self.bias is not None:
            yield self.bias, DenseGrad(grad.sum(dim=(1, *range(3, grad.dim()))))


@dataclass(frozen=True, slots=True)
class Embedding:
    """A table of ``height`` rows; ``padding`` is the row that never trains."""

    weight: str
    height: int
    padding: int | None

    def factors(self, saved: Tensor, grad: Tensor) -> Iterator[tuple[str, PerExampleGrad]]:
        """``saved`` are the rows looked up."""
        places = saved.reshape(len(saved), -1)
        right = grad.reshape(*places.shape, grad.shape[-1])
        if self.padding is not None:
            right = torch.where((places == self.padding)[..., None], 0.0, right)
        yield self.weight, EmbeddingGrad(places, right, self.height)


@dataclass(frozen=True, slots=True)
class Scale:
    """A normalisation's scale and shift: ``saved`` is what was scaled.

    They have the last ``last`` dimensions of it; or, where ``space`` is no None, the channels before as many dimensions
    of space.
    """

    weight: str | None
    bias: str | None
    last: int
    space: int | None = None

    def factors(self, saved: Tensor, grad: Tensor) -> Iterator[tuple[str, PerExampleGrad]]:
        """Positions are summed before anything is multiplied by a weight."""
        if self.weight is not None:
            yield self.weight, DenseGrad(self._over_positions(grad * saved))
        if self.bias is not None:
            yield self.bias, DenseGrad(self._over_positions(grad))

    def _over_positions(self, value: Tensor) -> Tensor:
        if self.space is not None:
            images = _images(value, self.space)
            return images.sum(dim=(1, *range(3, images.dim())))
        between = tuple(range(1, value.dim() - self.last))
        return value.sum(dim=between) if between else value


def _images(value: Tensor, space: int) -> Tensor:
    """(units, images, channels, *space)."""
    return value.reshape(len(value), -1, *value.shape[value.dim() - space - 1 :])


def _positions(value: Tensor) -> Tensor:
    return value.reshape(len(value), -1, value.shape[-1])


def _linear(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    x, weight, bias = args["input"], args["weight"], args["bias"]
    if name(x) or weight.dim() != 2:
        return None
    output = functional.linear(x, _value(name, weight))
    if bias is not None:
        output = output + _value(name, bias).to(output.dtype)
    return CapturedCall(output, x.to(output.dtype), Linear(name(weight), name(bias)))


def _matmul(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    x, weight = args["input"], args["other"]
    if name(x) or weight.dim() != 2 or x.dim() < 1:
        return None
    output = torch.matmul(x, _value(name, weight))
    return CapturedCall(output, x.to(output.dtype), Linear(name(weight), None, turned=True))


def _addmm(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    bias, x, weight = args["input"], args["mat1"], args["mat2"]
    if name(x) or bias.dim() != 1 or (args["beta"], args["alpha"]) != (1, 1):
        return None
    output = torch.mm(x, _value(name, weight)) + _value(name, bias)
    return CapturedCall(output, x.to(output.dtype), Linear(name(weight), name(bias), turned=True))


def _convolution(dims: int, plain: Callable[..., Tensor]) -> Rule:
    def rule(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
        x, weight, bias, padding = args["input"], args["weight"], args["bias"], args["padding"]
        if name(x) or x.dim() != dims + 2:  # a single image without a batch dimension: the general way
            return None
        stride, dilation = _each(args["stride"], dims), _each(args["dilation"], dims)
        if padding == "same":
            spans = [gap * (size - 1) for gap, size in zip(dilation, weight.shape[2:], strict=True)]
            x = functional.pad(x, [n for span in reversed(spans) for n in (span // 2, span - span // 2)])
        padding = (0,) * dims if isinstance(padding, str) else _each(padding, dims)
        weight_now, bias_now = _value(name, weight), None if bias is None else _value(name, bias)
        output = plain(x, weight_now, bias_now, stride, padding, dilation, args["groups"])
        geometry = (tuple(weight.shape), stride, padding, dilation, args["groups"])
        return CapturedCall(output, x.to(output.dtype), Convolution(name(weight), name(bias), *geometry))

    return rule


def _embedding(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    places, weight = args["input"], args["weight"]
    # EmbeddingGrad that are scaled down as they are looked up, or gradients that are by how often: the general way.
    if args["max_norm"] is not None or args["scale_grad_by_freq"]:
        return None
    padding = args["padding_idx"]
    if padding is not None and padding < 0:
        padding += len(weight)
    output = functional.embedding(places, weight.detach())
    known = name(weight)
    return None if known is None else CapturedCall(output, places, Embedding(known, len(weight), padding))


def _layer_norm(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    x, shape = args["input"], args["normalized_shape"]
    if name(x):
        return None
    return _scaled(name, functional.layer_norm(x, shape, eps=args["eps"]), args, len(shape))


def _rms_norm(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    x, shape = args["input"], args["normalized_shape"]
    if name(x):
        return None
    return _scaled(name, functional.rms_norm(x, shape, eps=args["eps"]), args, len(shape))


def _group_norm(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    x = args["input"]
    if name(x):
        return None
    return _scaled(name, functional.group_norm(x, args["num_groups"], eps=args["eps"]), args, 1, x.dim() - 2)


def _scaled(name: NameOf, normal: Tensor, args: Mapping[str, Any], last: int, space: int | None = None) -> CapturedCall:
    def spread(value: Tensor) -> Tensor:
        known = _value(name, value)
        return known if space is None else known.reshape(-1, *(1,) * space)

    output, weight, bias = normal, args["weight"], args.get("bias")
    if weight is not None:
        output = output * spread(weight)
    if bias is not None:
        output = output + spread(bias)
    return CapturedCall(output, normal.to(output.dtype), Scale(name(weight), name(bias), last, space))


def _value(name: NameOf, tensor: Tensor) -> Tensor:
    """Cut off from its gradient if that comes by a rule; a weight computed from others passes its own on to them."""
    return tensor if name(tensor) is None else tensor.detach()


def _each(value: int | Iterable[int], dims: int) -> tuple[int, ...]:
    known = (value,) if isinstance(value, int) else tuple(value)
    return known * dims if len(known) == 1 else known


Rule: TypeAlias = Callable[[NameOf, Mapping[str, Any]], CapturedCall | None]

_CONVOLUTION: Final = {
    "input": None, "weight": None, "bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1,
}  # fmt: skip
_EMBEDDING: Final = {
    "input": None, "weight": None, "padding_idx": None, "max_norm": None, "norm_type": 2.0,
    "scale_grad_by_freq": False, "sparse": False,
}  # fmt: skip
_LINEAR: Final = {"input": None, "weight": None, "bias": None}
_MATMUL: Final = {"input": None, "other": None}
_ADDMM: Final = {"input": None, "mat1": None, "mat2": None, "beta": 1, "alpha": 1}
_LAYER_NORM: Final = {"input": None, "normalized_shape": None, "weight": None, "bias": None, "eps": 1e-5}
_RMS_NORM: Final = {"input": None, "normalized_shape": None, "weight": None, "eps": None}
_GROUP_NORM: Final = {"input": None, "num_groups": None, "weight": None, "bias": None, "eps": 1e-5}

RULES: Final[dict[Any, tuple[Mapping[str, Any], Rule]]] = {
    functional.linear: (_LINEAR, _linear),
    torch.matmul: (_MATMUL, _matmul),
    Tensor.matmul: (_MATMUL, _matmul),
    Tensor.__matmul__: (_MATMUL, _matmul),
    torch.addmm: (_ADDMM, _addmm),
    functional.conv1d: (_CONVOLUTION, _convolution(1, functional.conv1d)),
    functional.conv2d: (_CONVOLUTION, _convolution(2, functional.conv2d)),
    functional.conv3d: (_CONVOLUTION, _convolution(3, functional.conv3d)),
    functional.embedding: (_EMBEDDING, _embedding),
    functional.layer_norm: (_LAYER_NORM, _layer_norm),
    functional.rms_norm: (_RMS_NORM, _rms_norm),
    functional.group_norm: (_GROUP_NORM, _group_norm),
}


def take(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: NameOf) -> CapturedCall | None:  # noqa: ANN401 - any function of PyTorch's
    """What the rule for this call makes of it, or None where there is no rule or it does not apply."""
    known = RULES.get(function)
    if known is None:
        return None
    signature, rule = known
    given = dict(zip(signature, args, strict=False)) | dict(kwargs)
    if len(args) > len(signature) or not given.keys() <= signature.keys():
        return None
    return rule(name, {**signature, **given})
