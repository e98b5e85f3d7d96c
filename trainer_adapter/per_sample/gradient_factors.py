"""Per-example gradients of one parameter in factored form, which a kernel multiplies out only where it must.

A linear layer's gradient for one record is the sum over its positions of (gradient of the output) times (input), an
outer product each; an embedding's is the same with a one in the row that was looked up; a convolution's is that over
patches. Every factor begins with one dimension that counts the units of a microbatch. All tensors are in the
precision's work type already, but for outer products that are ``rounded`` to be multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from trainer_adapter.gpu_kernels.tensor_core_product import product


@dataclass(frozen=True, slots=True)
class DenseGrad:
    """Multiplied out: ``value`` has shape (units, *parameter)."""

    value: Tensor

    def whole(self) -> Tensor:
        """The gradients themselves."""
        return self.value


@dataclass(frozen=True, slots=True)
class OuterProductGrad:
    """Of a matrix (p, d): the sum over positions of ``left`` (units, positions, p) times ``right`` (.., d)."""

    left: Tensor
    right: Tensor

    def whole(self) -> Tensor:
        """Multiplied out, shape (units, p, d)."""
        if self.left.shape[1] == 1:
            return widened(self.left).transpose(1, 2) * widened(self.right)
        return product(self.left.transpose(1, 2), self.right)


@dataclass(frozen=True, slots=True)
class EmbeddingGrad:
    """Of a table (height, d): ``right`` (units, positions, d) added to the rows ``places`` (units, positions)."""

    places: Tensor
    right: Tensor
    height: int

    def whole(self) -> Tensor:
        """Multiplied out, shape (units, height, d)."""
        units, _, width = self.right.shape
        into = self.places[..., None].expand_as(self.right)
        return self.right.new_zeros((units, self.height, width)).scatter_add(1, into, self.right)

    def once(self) -> EmbeddingGrad:
        """The same with what falls into one row gathered in the first position that names it, zero elsewhere."""
        same = self.places[:, :, None] == self.places[:, None, :]
        first = same.to(torch.uint8).argmax(dim=2)
        gathered = torch.zeros_like(self.right).scatter_add(1, first[..., None].expand_as(self.right), self.right)
        return EmbeddingGrad(self.places, gathered, self.height)


@dataclass(frozen=True, slots=True)
class NextTokenGrad:
    """Of a head (words, d) and the cross-entropy after it: outer products whose left side is made where it is needed.

    Attributes:
        right: the positions' vectors, (units, positions, d).
        scale: the gradients of their losses, (units, positions); 0 where a position counts for nothing.
        logarithm: of the sums of their exponentials, as scale. targets: their next tokens, as scale, integers.
        weight: the head as it is, (words, d): no record's.
        words_at_once: how many columns of the left side there are at a time.
    """

    right: Tensor
    scale: Tensor
    logarithm: Tensor
    targets: Tensor
    weight: Tensor
    words_at_once: int

    def whole(self) -> Tensor:
        """Multiplied out, shape (units, words, d)."""
        return torch.cat([left.transpose(1, 2) @ self.right for _, left in self.lefts()], 1)

    def lefts(self) -> Iterator[tuple[int, Tensor]]:
        """The left side's columns in their order: the first one's number, and (units, positions, words at once).

        A column is exp(x), or exp(x) - 1 at the target, times the scale: of an x that is the same each time it is made,
        as the product of the same two tensors, a column differs by no more than roundings of its own size.
        """
        for start in range(0, len(self.weight), self.words_at_once):
            rows = self.weight[start : start + self.words_at_once]
            x = self.right @ rows.T - self.logarithm[..., None]
            target = self.targets[..., None] - start
            words = torch.arange(len(rows), device=rows.device)
            at_target = x.gather(2, target.clamp(0, len(rows) - 1)).expm1()
            yield start, self.scale[..., None] * torch.where(target == words, at_target, x.exp())


@dataclass(frozen=True, slots=True)
class ConvGrad:
    """Of a convolution's weight.

    Attributes:
        inputs: what it was applied to, shape (units, images, channels, *space).
        grad: gradients of its outputs, shape (units, images, channels out, *space out).
        kernel: the weight's shape (channels out, channels / groups, *window).
        padding: zeros on both sides of each dimension of space.
    """

    inputs: Tensor
    grad: Tensor
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def whole(self) -> Tensor:
        """Multiplied out, shape (units, *kernel)."""
        return self.whole_unfolded().movedim(-1, 2)

    def whole_unfolded(self) -> Tensor:
        """Multiplied out over unfolded patches, with channels last: shape (units, out, *window, channels / groups)."""
        left, right = self.columns()
        out, channels, *window = self.kernel
        return (left @ right).reshape(len(self.grad), out, *window, channels)

    def whole_by_groups(self) -> Tensor:
        """Multiplied out by one convolution in which every image is a group of its own."""
        units, images = self.grad.shape[:2]
        folded = units * images
        grad, inputs = (value.reshape(1, -1, *value.shape[3:]) for value in (self.grad, self.inputs))
        kernel = (folded * self.kernel[0], *self.kernel[1:])
        result = self._backward(grad, inputs, kernel, folded * self.groups)
        if images == 1:
            return result.reshape(units, *self.kernel)
        return result.reshape(units, images, *self.kernel).sum(dim=1)

    def product(self, weights: Tensor) -> Tensor:
        """The sum over units of weight times gradient, by the convolution's own backward; shape (*kernel,)."""
        scaled = self.grad * weights.reshape(-1, *(1,) * (self.grad.dim() - 1))
        return self._backward(scaled.flatten(0, 1), self.inputs.flatten(0, 1), self.kernel, self.groups)

    def _backward(self, grad: Tensor, inputs: Tensor, kernel: tuple[int, ...], groups: int) -> Tensor:
        """The gradient of a weight of this shape, by the convolution's own backward."""
        result: Tensor = torch.ops.aten.convolution_backward(
            grad,
            inputs,
            grad.new_zeros(1).expand(kernel),
            None,
            self.stride,
            self.padding,
            self.dilation,
            False,  # noqa: FBT003 - aten takes it by position: not transposed
            (0,) * len(self.stride),
            groups,
            (False, True, False),
        )[1]
        return result

    def _padded(self) -> Tensor:
        if not any(self.padding):
            return self.inputs
        return pad(self.inputs, [n for size in reversed(self.padding) for n in (size, size)])

    def columns(self) -> tuple[Tensor, Tensor]:
        """Gradients and patches by position, whose product is the gradient group by group.

        (units, groups, out / groups, positions) and (units, groups, positions, window * channels / groups).
        """
        units, images, channels = self.inputs.shape[:3]
        dims = len(self.stride)
        # Channels last: a row of a patch is then one run of memory, which copies several times as fast.
        patches = self._padded().movedim(2, -1).contiguous()
        for place, (size, step, gap) in enumerate(zip(self.kernel[2:], self.stride, self.dilation, strict=True)):
            patches = patches.unfold(2 + place, (size - 1) * gap + 1, step)[..., ::gap]
        # (units, images, *space, groups, channels, *window) to (units, groups, images, *space, *window, channels)
        patches = patches.unflatten(2 + dims, (self.groups, channels // self.groups))
        window = range(4 + dims, 4 + 2 * dims)
        right = patches.permute(0, 2 + dims, 1, *range(2, 2 + dims), *window, 3 + dims)
        positions = images * prod(right.shape[3 : 3 + dims])
        right = right.reshape(units, self.groups, positions, prod(self.kernel[1:]))
        left = self.grad.reshape(units, images, self.groups, self.kernel[0] // self.groups, -1)
        left = left.permute(0, 2, 3, 1, 4).reshape(units, self.groups, -1, positions)
        return left, right


def rounded(grad: PerExampleGrad, dtype: torch.dtype | None) -> PerExampleGrad:
    """The factors of a matrix's gradient in the type that they are multiplied in; all else as it is."""
    if dtype is None or not isinstance(grad, OuterProductGrad):
        return grad
    return replace(grad, left=grad.left.to(dtype), right=grad.right.to(dtype))


def widened(value: Tensor) -> Tensor:
    """What was rounded, in a type in which sums of it do not round so; exact."""
    return value.to(torch.float32) if value.dtype == torch.bfloat16 else value


PerExampleGrad: TypeAlias = DenseGrad | OuterProductGrad | EmbeddingGrad | NextTokenGrad | ConvGrad
