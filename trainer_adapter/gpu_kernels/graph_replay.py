"""A computation of fixed shapes, recorded once and replayed: on a GPU a CUDA graph.

A microbatch has the same shapes at every step, so a GPU can be handed all of its kernels at once; launched one by one,
those of a small model take longer to launch than to run. A replay reads and writes the memory of its recording. So the
batch is copied into buffers that stay, results are copied out of theirs, and weights are read where the optimiser has
them: a call with others, as a check of other weights makes it, is computed without the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

Outputs: TypeAlias = tuple[Tensor, ...]
Run: TypeAlias = Callable[..., Outputs]
Record: TypeAlias = Callable[[Callable[[], Outputs]], Callable[[], Outputs]]
"""From a computation over fixed memory to its replay, which gives the same tensors each time, computed anew."""
WARM_RUNS: Final = 3
"""Before a recording: what libraries set up at their first calls does not belong into it."""


def replayed(run: Run, tensors: Sequence[Tensor], fixed: int) -> Run:
    """The same computation, replayed where the device can record it.

    Args:
        run: from tensors to tensors, always the same operations.
        tensors: arguments of the shapes to come; those after the first ``fixed`` are public dummies.
        fixed: how many come first that stay where they are in memory, as weights do.

    Raises: torch.OutOfMemoryError, for a device whose memory is short.
    """
    device = tensors[0].device
    if not can_record(device):
        return run
    try:
        with torch.cuda.device(device):
            return ReplayedRun(run, tensors, fixed, record_cuda_graph)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        # An operation that waits for the device cannot be recorded: it runs as it did.
        return run


def can_record(device: torch.device) -> bool:
    """Whether there is a device that records: one of CUDA's."""
    return device.type == "cuda" and torch.cuda.is_available() and torch.version.hip is None


def record_cuda_graph(compute: Callable[[], Outputs]) -> Callable[[], Outputs]:
    """Record on a stream of its own, as CUDA asks. Raises: RuntimeError, for what cannot be recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_RUNS):
            compute()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = compute()

    def replay() -> Outputs:
        graph.replay()
        return outputs

    return replay


class ReplayedRun:
    """A recorded computation, its buffers and the memory that it reads weights from."""

    def __init__(self, run: Run, tensors: Sequence[Tensor], fixed: int, record: Record) -> None:
        """Record it on ``tensors``; see :func:`replayed`."""
        self._run, self._fixed = run, fixed
        self._weights = [_place(value) for value in tensors[:fixed]]
        self._buffers = [value.clone() for value in tensors[fixed:]]
        held = [*tensors[:fixed], *self._buffers]
        self._replay = record(lambda: self._run(*held))

    def __call__(self, *tensors: Tensor) -> Outputs:
        """What the computation gives, in memory of its own."""
        if [_place(value) for value in tensors[: self._fixed]] != self._weights:
            return self._run(*tensors)
        for buffer, value in zip(self._buffers, tensors[self._fixed :], strict=True):
            buffer.copy_(value)
        # The next replay writes where this one does.
        return tuple(value.clone() for value in self._replay())


def _place(value: Tensor) -> tuple[object, ...]:
    return value.data_ptr(), value.dtype, tuple(value.shape), value.stride()
