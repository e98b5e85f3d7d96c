"""Per-example gradient rules: one for each function of PyTorch whose per-example gradient has a factored form.

A rule looks at one call whose input is no parameter. Where it applies, it computes the output from the parameters'
values alone (no gradient runs into them) and says what of the call to save. Where it does not, the parameter takes the
general way: it goes through the model once for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from trainer_adapter.layers.next_token_loss import WORDS_AT_ONCE, chunked_loss, counted, next_token_loss
from trainer_adapter.per_sample.gradient_factors import (
    ConvGrad,
    DenseGrad,
    EmbeddingGrad,
    NextTokenGrad,
    OuterProductGrad,
    PerExampleGrad,
)

NameOf: TypeAlias = Callable[[object], str | None]
"""The name of a tensor that is a parameter under a rule, or None."""
GradOf: TypeAlias = Callable[[Tensor, Tensor], PerExampleGrad]
"""From what was saved of a call and the gradient of its output to the per-example gradients of one parameter.

Both tensors begin with the units' dimension and are in the work type, indices excepted.
"""
Factors: TypeAlias = tuple[tuple[str | None, GradOf], ...]
"""The gradients of a call's parameters; what has no name does not train."""


class CapturedCall(NamedTuple):
    """A call that a rule covers: its output, what to save, and what turns it into gradients."""

    output: Tensor
    saved: Tensor
    factors: Factors


def _products(weight: str | None, bias: str | None, *, turned: bool = False) -> Factors:
    """Of a weight (p, d), or (d, p) if ``turned``: all dimensions between the first and the last are positions."""

    def product(saved: Tensor, grad: Tensor) -> OuterProductGrad:
        left, right = _positions(grad), _positions(saved)
        return OuterProductGrad(right, left) if turned else OuterProductGrad(left, right)

    return (weight, product), (bias, lambda _, grad: DenseGrad(_positions(grad).sum(dim=1)))


def _over_positions(value: Tensor, last: int, space: int | None) -> Tensor:
    """The sum over positions, but not over the last dimensions; or, where ``space`` is no None, not over channels.

    The channels come before as many dimensions of space.
    """
    if space is not None:
        images = _images(value, space)
        return images.sum(dim=(1, *range(3, images.dim())))
    between = tuple(range(1, value.dim() - last))
    return value.sum(dim=between) if between else value


def _images(value: Tensor, space: int) -> Tensor:
    """(units, images, channels, *space)."""
    return value.reshape(len(value), -1, *value.shape[value.dim() - space - 1 :])


def _positions(value: Tensor) -> Tensor:
    return value.reshape(len(value), -1, value.shape[-1])


def _linear(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    x, weight, bias = args["input"], args["weight"], args["bias"]
    if weight.dim() != 2:
        return None
    output = functional.linear(x, _value(name, weight))
    if bias is not None:
        output = output + _value(name, bias).to(output.dtype)
    return CapturedCall(output, x.to(output.dtype), _products(name(weight), name(bias)))


def _matmul(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    x, weight = args["input"], args["other"]
    if weight.dim() != 2 or x.dim() < 1:
        return None
    output = torch.matmul(x, _value(name, weight))
    return CapturedCall(output, x.to(output.dtype), _products(name(weight), None, turned=True))


def _addmm(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    x, bias, weight = args["mat1"], args["input"], args["mat2"]
    if bias.dim() != 1 or (args["beta"], args["alpha"]) != (1, 1):
        return None
    output = torch.mm(x, _value(name, weight)) + _value(name, bias)
    return CapturedCall(output, x.to(output.dtype), _products(name(weight), name(bias), turned=True))


def _convolution(dims: int, plain: Callable[..., Tensor]) -> Rule:
    def rule(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
        x, weight, bias, padding = args["input"], args["weight"], args["bias"], args["padding"]
        if x.dim() != dims + 2:  # a single image without a batch dimension: the general way
            return None
        stride, dilation = _each(args["stride"], dims), _each(args["dilation"], dims)
        if padding == "same":
            spans = [gap * (size - 1) for gap, size in zip(dilation, weight.shape[2:], strict=True)]
            x = functional.pad(x, [n for span in reversed(spans) for n in (span // 2, span - span // 2)])
        padding = (0,) * dims if isinstance(padding, str) else _each(padding, dims)
        weight_now, bias_now = _value(name, weight), None if bias is None else _value(name, bias)
        output = plain(x, weight_now, bias_now, stride, padding, dilation, args["groups"])
        geometry = (tuple(weight.shape), stride, padding, dilation, args["groups"])
        factors: Factors = (
            (name(weight), lambda saved, grad: ConvGrad(_images(saved, dims), _images(grad, dims), *geometry)),
            (name(bias), lambda _, grad: DenseGrad(_over_positions(grad, 0, dims))),
        )
        return CapturedCall(output, x.to(output.dtype), factors)

    return rule


def _embedding(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    places, weight = args["input"], args["weight"]
    # Rows that are scaled down as they are looked up, or gradients that are by how often: the general way.
    if args["max_norm"] is not None or args["scale_grad_by_freq"]:
        return None
    padding, height = args["padding_idx"], len(weight)
    if padding is not None and padding < 0:
        padding += height
    output = functional.embedding(places, weight.detach())

    def rows(saved: Tensor, grad: Tensor) -> EmbeddingGrad:
        known = saved.reshape(len(saved), -1)
        right = grad.reshape(*known.shape, grad.shape[-1])
        # The row at the padding's place never trains.
        right = right if padding is None else torch.where((known == padding)[..., None], 0.0, right)
        return EmbeddingGrad(known, right, height)

    return CapturedCall(output, places, ((name(weight), rows),)) if name(weight) is not None else None


def _next_token(name: NameOf, args: Mapping[str, Any]) -> CapturedCall | None:
    hidden, weight, targets, at_once = args["input"], args["weight"], args["targets"], args["words_at_once"]
    if name(weight) is None:
        return None
    output, logarithm = chunked_loss(hidden, weight, targets, at_once)
    rows = weight.detach()

    def products(saved: Tensor, grad: Tensor) -> NextTokenGrad:
        known, slopes = _positions(saved), grad.reshape(len(grad), -1)
        counts, words = counted(known[..., -1].to(torch.int64))
        right, logarithms = known[..., :-2], known[..., -2]
        return NextTokenGrad(right, torch.where(counts, slopes, 0.0), logarithms, words, rows.to(right.dtype), at_once)

    # One tensor: words up to 2^24 are numbers of float32.
    parts = (hidden.to(logarithm.dtype), logarithm[..., None], targets[..., None].to(logarithm.dtype))
    return CapturedCall(output, torch.cat(parts, dim=-1), ((name(weight), products),))


def _norm(plain: Callable[..., Tensor], size: str, *, channels: bool = False) -> Rule:
    """A normalisation whose scale has the shape ``size`` of the call, or one value for each of its channels."""

    def rule(name: NameOf, args: Mapping[str, Any]) -> CapturedCall:
        x = args["input"]
        last, space = (1, x.dim() - 2) if channels else (len(args[size]), None)
        output = normal = plain(x, args[size], eps=args["eps"])
        for value, combine in ((args["weight"], torch.mul), (args.get("bias"), torch.add)):
            if value is not None:
                known = _value(name, value)
                output = combine(output, known if space is None else known.reshape(-1, *(1,) * space))
        factors: Factors = (
            (name(args["weight"]), lambda saved, grad: DenseGrad(_over_positions(grad * saved, last, space))),
            (name(args.get("bias")), lambda _, grad: DenseGrad(_over_positions(grad, last, space))),
        )
        return CapturedCall(output, normal.to(output.dtype), factors)

    return rule


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
_NEXT_TOKEN: Final = {"input": None, "weight": None, "targets": None, "words_at_once": WORDS_AT_ONCE}
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
    next_token_loss: (_NEXT_TOKEN, _next_token),
    functional.layer_norm: (_LAYER_NORM, _norm(functional.layer_norm, "normalized_shape")),
    functional.rms_norm: (_RMS_NORM, _norm(functional.rms_norm, "normalized_shape")),
    functional.group_norm: (_GROUP_NORM, _norm(functional.group_norm, "num_groups", channels=True)),
}


def take(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: NameOf) -> CapturedCall | None:  # noqa: ANN401 - any function of PyTorch's
    """What the rule for this call makes of it, or None where there is no rule or it does not apply."""
    known = RULES.get(function)
    if known is None:
        return None
    signature, rule = known
    given = dict(zip(signature, args, strict=False)) | dict(kwargs)
    if len(args) > len(signature) or not given.keys() <= signature.keys() or name(given.get("mat1", given["input"])):
        return None
    return rule(name, {**signature, **given})
