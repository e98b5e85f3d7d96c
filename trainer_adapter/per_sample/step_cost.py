"""What a microbatch's graph costs beside plain training, measured on public dummies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.tensor_trees import map_tensors
from trainer_adapter.per_sample.microbatch import Batch
from trainer_adapter.per_sample.record_loss import RecordLoss

_ROUNDS: Final = 3


def times_plain(run: Callable[[], object], record: RecordLoss, values: Mapping[str, Tensor], public: Batch) -> float:
    """How many times as long ``run`` takes as one forward and backward pass of all records at once.

    Args:
        run: the graph on ``public``, all of whose records are dummies; nothing drops in the plain pass.
    """
    trained = {name: values[name].detach().requires_grad_() for name in record.trained}
    inputs, targets = (
        map_tensors(lambda tensor: tensor.flatten(0, 1), part) for part in (public.inputs, public.targets)
    )

    def plain() -> object:
        with torch.enable_grad():
            loss = record.loss(record.outputs({**values, **trained}, inputs, PerExampleDropout(None)), targets)
            return torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)

    ours, theirs = (min(_seconds(each, public.mask.device) for _ in range(_ROUNDS)) for each in (run, plain))
    return ours / theirs


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    """Processor time; on a GPU time by the clock, in which its work is done."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    start = clock()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start
