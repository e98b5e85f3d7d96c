"""Writes of a pass into the model's own tensors, which would carry what records hold into a model without noise.

A pass may write where it only seems to read: an embedding with ``max_norm`` shortens the rows that it looks up, in
place. PyTorch counts the writes into a tensor and all its views, and the count rises even where what is written is what
was there. It does not count what goes through ``.data``, nor what some functions write into running statistics. So
where ``values`` are compared, the sum of a tensor's bits is too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.layers.memory_shortage import raise_if_short

RULE: Final = (
    "is written by a pass of the model, outside the noisy sum: leave out what writes it, as an embedding's max_norm"
)
_WHOLE: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers of so many bytes."""


class WeightsWritten(Malformed):
    """A pass wrote into the model's own tensors, or put others into their place."""


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers of a model, by name."""
    return dict(chain(model.named_parameters(), model.named_buffers()))


class WriteWatch:
    """Some tensors as they are now, by name."""

    def __init__(self, named: Mapping[str, Tensor], *, values: bool) -> None:
        """Note them; ``values``: the sums of their bits too, for which each is read once."""
        self._named, self._counts = dict(named), _counts(named)
        self._sums = _sums(named) if values else None

    def written(self) -> list[str]:
        """The names of those that were written since. Raises: MemoryError, if that cannot be computed."""
        now = _counts(self._named)
        found = [name for name, count in self._counts.items() if now[name] != count]
        if self._sums is not None and not torch.equal(sums := _sums(self._named), self._sums):
            found += [name for name, same in zip(self._named, (sums == self._sums).tolist(), strict=True) if not same]
        return found

    def replaced(self, now: Mapping[str, Tensor]) -> list[str]:
        """The names under which there are others now, or none."""
        names = {**self._named, **now}
        return [name for name in names if now.get(name) is not self._named.get(name)]

    def check(self, now: Mapping[str, Tensor] | None = None, *, erase: bool) -> None:
        """Hold the tensors to what they were.

        Args:
            now: what must be these very tensors.
            erase: put zeros where something was written, so that it can never leave, whatever is done with the error.

        Raises:
            WeightsWritten: naming the first that was written or replaced.
            MemoryError: if they cannot be compared; then each may have been written, and is erased as such.
        """
        now = self._named if now is None else now
        found = [*self._named]
        try:
            found = [*self.written(), *self.replaced(now)]
        finally:
            for name in found if erase else ():
                for value in (self._named.get(name), now.get(name)):
                    if value is not None:
                        _erase(value)
        if found:
            raise WeightsWritten(f"model.{found[0]}", RULE)


_Before: TypeAlias = tuple[nn.Module, WriteWatch]
"""A model, and its own tensors before a pass."""


@contextmanager
def unwritten(named: Mapping[str, Tensor], *, values: bool = False, erase: bool = True) -> Iterator[None]:
    """Within it nothing may write into these tensors. Raises: WeightsWritten, as :meth:`WriteWatch.check`."""
    watch = WriteWatch(named, values=values)
    try:
        yield
    finally:
        watch.check(erase=erase)


class PassWrites:
    """Holds a model's own tensors to what they were before a pass, when it ends and when its gradients are taken.

    For a loop that is not ours: a model may take another way on records than on public dummies.
    """

    def __init__(self) -> None:
        """Of no pass yet."""
        self._pass: _Before | None = None
        self._step: _Before | None = None

    def begin(self, model: nn.Module) -> None:
        """Before a pass; one without gradients is none that a step is taken of."""
        self._pass = model, WriteWatch(own_tensors(model), values=True)
        if torch.is_grad_enabled():
            self._step = self._pass

    def end(self) -> None:
        """After it. Raises: WeightsWritten, if it wrote into the model's own tensors: what it wrote is erased."""
        before, self._pass = self._pass, None
        _check(before)

    def end_step(self) -> None:
        """Where its gradients are taken, before an update: a backward pass may write too. Raises: as :meth:`end`."""
        before, self._step = self._step, None
        _check(before)


def _check(before: _Before | None) -> None:
    if before is not None:
        model, watch = before
        watch.check(own_tensors(model), erase=True)


def _erase(value: Tensor) -> None:
    # Not the tensor itself: its memory may be another tensor's too, and writing in it may be forbidden.
    memory: Any = value.untyped_storage()
    memory.fill_(0)


def _counts(named: Mapping[str, Tensor]) -> dict[str, int]:
    # A tensor of inference mode has no count, and can be written in that mode alone.
    return {name: 0 if value.is_inference() else value._version for name, value in named.items()}  # noqa: SLF001 - torch has it nowhere else


def _sums(named: Mapping[str, Tensor]) -> Tensor:
    """The sum of each tensor's bits, on the device of the first: it is waited for once."""
    with torch.no_grad():
        sums = [_sum_of_bits(value.detach()) for value in named.values()]
        return torch.stack([one.to(sums[0].device) for one in sums]) if sums else torch.zeros(0)


def _sum_of_bits(value: Tensor) -> Tensor:
    try:
        real = torch.view_as_real(value) if value.is_complex() else value
        return real.contiguous().view(_WHOLE[real.element_size()]).sum(dtype=torch.int64)
    except RuntimeError as error:
        raise_if_short(error, "the comparison of the weights")
        # What has no plain memory, as a sparse buffer, has its count alone.
        return torch.zeros((), dtype=torch.int64, device=value.device)
