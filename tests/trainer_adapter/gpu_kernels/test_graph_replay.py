"""Recorded computations: all but CUDA's own recording and replay; the recording here computes over the same memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from fractions import Fraction
from typing import Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.gpu_kernels.graph_replay import Outputs, ReplayedRun, can_record, replayed
from trainer_adapter.per_sample import microbatch

PLAN: Final = Plan(Fraction(1, 2), Fraction(1), Fraction(1, 2), 10, 4)


class Recorder:
    """What a device records: fixed memory that a replay reads and writes. How often each happened is counted."""

    def __init__(self) -> None:
        self.records = self.replays = 0

    def __call__(self, compute: Callable[[], Outputs]) -> Callable[[], Outputs]:
        """As CUDA's: outputs lie in one place, and each replay writes there."""
        self.records += 1
        outputs = compute()

        def replay() -> Outputs:
            self.replays += 1
            for place, value in zip(outputs, compute(), strict=True):
                place.copy_(value)
            return outputs

        return replay


def _run(weight: Tensor, batch: Tensor) -> Outputs:
    return weight * batch, batch.sum()[None]


def test_each_call_gives_its_own_results() -> None:
    """A result is not overwritten by the next replay, and the recording holds nobody's batch but a copy of it."""
    weight, recorder = torch.tensor([2.0, 3.0]), Recorder()
    run = ReplayedRun(_run, [weight, torch.zeros(2)], 1, recorder)
    batches = [torch.tensor([1.0, 1.0]), torch.tensor([4.0, 5.0])]
    first, second = (run(weight, batch) for batch in batches)
    for found, batch in ((first, batches[0]), (second, batches[1])):
        assert all(torch.equal(one, other) for one, other in zip(found, _run(weight, batch), strict=True))
    assert (recorder.records, recorder.replays) == (1, 2)
    assert torch.equal(batches[0], torch.ones(2))


def test_weights_are_read_where_they_are_and_others_are_not_written_there() -> None:
    """An update in place is seen by the next replay; a call with other weights leaves the model's as they are."""
    weight, recorder = torch.tensor([2.0, 3.0]), Recorder()
    run = ReplayedRun(_run, [weight, torch.zeros(2)], 1, recorder)
    weight.add_(1)
    assert torch.equal(run(weight, torch.ones(2))[0], torch.tensor([3.0, 4.0]))
    other = torch.tensor([7.0, 8.0])
    assert torch.equal(run(other, torch.ones(2))[0], other)
    assert torch.equal(weight, torch.tensor([3.0, 4.0]))
    strided = torch.stack([weight, weight]).T[:, 0]
    assert torch.equal(run(strided, torch.ones(2))[0], weight)
    assert recorder.replays == 1


def test_a_cpu_records_nothing() -> None:
    """There a computation stays the very same."""
    assert not can_record(torch.device("cpu"))
    assert replayed(_run, [torch.ones(2), torch.ones(2)], 1) is _run


def test_a_batch_of_another_shape_is_an_error() -> None:
    """None is stretched to fit the buffer, and none is left out."""
    run = ReplayedRun(_run, [torch.ones(2), torch.zeros(2)], 1, Recorder())
    with pytest.raises(RuntimeError):
        run(torch.ones(2), torch.zeros(3))


def _trained(precision: str) -> tuple[Engine, Tensor]:
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Embedding(9, 6), nn.Linear(6, 5), nn.Tanh(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(20, 3)
    )
    inputs, targets = torch.arange(48).remainder(9).reshape(12, 4), torch.arange(12) % 3
    engine = Engine(PLAN, model, cross_entropy, (inputs, targets), 4, precision=precision)
    optimiser, randomness = torch.optim.AdamW(model.parameters(), lr=0.1), CsprngRandomness(bytes(32))
    for step in range(1, 6):
        engine.step(step, optimiser, randomness)
    return engine, torch.cat([value.detach().flatten() for value in model.parameters()])


@pytest.mark.parametrize("precision", ["float32", "bfloat16_products"])
def test_a_run_that_replays_is_the_run_that_does_not(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    """Five steps of several microbatches, and records one by one: bit for bit, by the same weights in place."""
    plain, expected = _trained(precision)
    recorder = Recorder()
    monkeypatch.setattr(microbatch, "replayed", lambda run, tensors, fixed: ReplayedRun(run, tensors, fixed, recorder))
    engine, found = _trained(precision)
    assert torch.equal(found, expected)
    assert recorder.records == 1
    assert recorder.replays >= 5
    keys = [one.keys(9, CsprngRandomness(bytes(32))) for one in (plain, engine)]
    sums = [
        one.clipped_sum(one.microbatches(np.arange(7)), key) for one, key in zip((plain, engine), keys, strict=True)
    ]
    assert torch.equal(*sums)


def test_what_cannot_be_recorded_runs_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that refuses to record leaves the computation as it was; one without memory ends it."""
    from trainer_adapter.gpu_kernels import graph_replay

    monkeypatch.setattr(graph_replay, "can_record", lambda _: True)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    tensors = [torch.ones(2), torch.ones(2)]
    for error in (RuntimeError("operation not permitted when stream is capturing"), torch.OutOfMemoryError("full")):

        def refuse(_: object, error: Exception = error) -> Callable[[], Outputs]:
            raise error

        monkeypatch.setattr(graph_replay, "record_cuda_graph", refuse)
        if isinstance(error, torch.OutOfMemoryError):
            with pytest.raises(torch.OutOfMemoryError):
                graph_replay.replayed(_run, tensors, 1)
        else:
            assert graph_replay.replayed(_run, tensors, 1) is _run
