"""The kernels for a GPU, interpreted: the words, the normals and the updates of the CPU, and no others."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, AdamW, Optimizer

from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import PAIRS_AT_ONCE, CsprngRandomness, NormalPiece, PieceBuffer, Stream
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.known_updates import begin_updates, known_kind
from trainer_adapter.dpsgd.noisy_mean import noisy_mean
from trainer_adapter.gpu_kernels.availability import has_kernels
from trainer_adapter.per_sample.model_checks import PARAMETERS_MAX

pytestmark = pytest.mark.kernels
KEY = bytes(range(7, 39))
NONCE = (5).to_bytes(12, "little")
SCALES = (0.7, 9.0)
WIDTH = 1024
"""Pairs of a program."""
MakeModel = Callable[[], nn.Module]
Data = tuple[Tensor, Tensor]
NormalsOf = Callable[[list[int], list[int]], list[float]]


def _key() -> Tensor:
    return torch.from_numpy(np.frombuffer(KEY + NONCE, dtype="<i4").copy())


def _kernel_mean(total: Tensor, stream: Stream) -> Tensor:
    from trainer_adapter.gpu_kernels import noise_launch

    return noise_launch.noisy_mean(total, stream.seed(total.numel()), SCALES, PAIRS_AT_ONCE)


@pytest.mark.parametrize(
    ("first", "one_by_one"),
    [(0, False), (8, False), (0, True), (3, True), (8 * 5 + 1, True), ((1 << 33) + 16, False), ((1 << 33) + 13, True)],
)
def test_words_are_the_cpus_bit_for_bit(first: int, one_by_one: bool) -> None:  # noqa: FBT001
    """From the first block on, and where a block's number needs all of its bits."""
    from tests.trainer_adapter.gpu_kernels import interpreted_kernels

    found = torch.zeros(8 * 16, dtype=torch.int64)
    interpreted_kernels.keystream[1,](found, _key(), first, one_by_one=one_by_one, lanes=16)
    known = Stream(KEY, NONCE, first // 8).words(8 * 16 + first % 8)[first % 8 :]
    assert found.numpy().view(np.uint64).tolist() == known.tolist()


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        (0, torch.float32),
        (1, torch.float64),
        (7, torch.float32),
        (16, torch.float64),
        (2 * PAIRS_AT_ONCE + 27, torch.float32),
    ],
)
def test_the_noisy_mean_is_the_cpus(size: int, dtype: torch.dtype) -> None:
    """Normals to 1e-12 and so the float32 mean to one rounding: whole pieces, and a last one of any length."""
    total = torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=dtype)
    found = _kernel_mean(total, Stream(KEY, NONCE))
    assert found.dtype == torch.float32
    assert torch.allclose(found, noisy_mean(total, Stream(KEY, NONCE), *_scales()), rtol=2.0**-23, atol=1e-12)


@pytest.mark.parametrize("count", [(1 << 31) - 2, (1 << 31) - 1, 1 << 31, PARAMETERS_MAX - 1, PARAMETERS_MAX])
def test_the_first_and_the_last_values_of_the_widest_models_are_the_cpus(tmp_path: Path, count: int) -> None:
    """Where a count needs 32 bits or more: both halves of the first program and of the last, and no value after them.

    The values lie in files of which only what is touched is there.
    """
    total, mean = (
        torch.from_numpy(np.memmap(tmp_path / name, np.float32, "w+", shape=(count + 8,))) for name in ("total", "mean")
    )
    pairs = -(-count // 2)
    for program in (0, (pairs - 1) // WIDTH):
        begin = program * WIDTH // PAIRS_AT_ONCE * PAIRS_AT_ONCE
        size = min(PAIRS_AT_ONCE, pairs - begin)
        _one_program(total, mean, count, program, aligned=size % 8 == 0)
        piece = NormalPiece(Stream(KEY, NONCE, begin // 4), begin, size, pairs, count)
        for place, normals in piece.normals(PieceBuffer()):
            first = place.start + program * WIDTH - begin
            known = normals[first - place.start : first - place.start + WIDTH] * SCALES[0] / SCALES[1]
            assert torch.allclose(mean[first : first + len(known)], known.to(torch.float32), rtol=2.0**-23, atol=1e-12)
            assert bool(known.abs().min() > 0)
    assert mean[count:].tolist() == [0] * 8


def _one_program(total: Tensor, mean: Tensor, count: int, program: int, *, aligned: bool) -> None:
    """One program of the kernel, as a launch has it."""
    from trainer_adapter.gpu_kernels.noise_step import LANES, noise_step

    scales, starts = torch.tensor(SCALES, dtype=torch.float64), torch.tensor([0, count])
    numbers = torch.from_numpy(np.zeros((program + 1, 2), dtype=np.int64))
    no_weights, no_factors = torch.tensor([[0]]), torch.zeros((1, 9), dtype=torch.float64)
    noise_step[1,](
        total, mean, _key(), scales, starts, numbers, no_weights, no_factors, count, 1, program,
        kind=0, aligned=aligned, piece=PAIRS_AT_ONCE, lanes=LANES, enable_fp_fusion=False,
    )  # fmt: skip


class _WritesNothing:
    """A kernel on a device that does not do its work."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *_, **__: None


def test_what_no_program_writes_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never what lay in that memory, such as a sum before noise: the mean of a kernel that writes nothing is NaN."""
    from trainer_adapter.gpu_kernels import noise_launch

    monkeypatch.setattr(noise_launch, "noise_step", _WritesNothing())
    assert _kernel_mean(torch.ones(2_000), Stream(KEY, NONCE)).isnan().all()


def _scales() -> tuple[float, int]:
    return SCALES[0], int(SCALES[1])


def _in_float64(radius: list[int], angle: list[int]) -> list[float]:
    """The kernel's normals."""
    from tests.trainer_adapter.gpu_kernels import interpreted_kernels

    words = [torch.from_numpy(np.array(part, dtype=np.uint64).view(np.int64)) for part in (radius, angle)]
    found = torch.zeros(2 * len(radius), dtype=torch.float64)
    interpreted_kernels.normals[1,](found, *words, count=len(radius))
    return found.tolist()


def _in_24_bits(radius: list[int], angle: list[int]) -> list[float]:
    """What a generator of float32 would make of them: uniforms of 24 bits."""
    high = [(word >> 40) + 1 for word in radius]
    sizes = [math.sqrt(-2 * math.log(one * 2.0**-24)) for one in high]
    turns = [2 * math.pi * (word >> 40) * 2.0**-24 for word in angle]
    cosines = [size * math.cos(turn) for size, turn in zip(sizes, turns, strict=True)]
    return cosines + [size * math.sin(turn) for size, turn in zip(sizes, turns, strict=True)]


def _tail(normals: NormalsOf) -> bool:
    """Whether words that are rare enough give the normals that a Gaussian has out there, to 1e-6."""
    rare = [0, 1 << 11, 5 << 11, (1 << 40) - 1, 1 << 40, (1 << 44) - 1, 1 << 63, (1 << 64) - 1]
    found = normals(rare, [0] * len(rare))
    known = [math.sqrt(-2 * math.log(((word >> 11) + 1) * 2.0**-53)) for word in rare]
    return all(math.isclose(one, other, abs_tol=1e-6) for one, other in zip(found, known, strict=False))


def test_normals_reach_beyond_what_24_bits_give() -> None:
    """The least words give 8.57 standard deviations and no two of them the same; 24 bits end below 5.8, and fail."""
    assert _in_float64([0, 1 << 11], [0, 0])[:2] == pytest.approx([8.57167, 8.49043], abs=1e-5)
    assert _tail(_in_float64)
    assert max(_in_24_bits([0], [0])) < 5.8
    assert not _tail(_in_24_bits)


def test_normals_are_box_and_mullers() -> None:
    """Both of each pair, of words all over their range, to 1e-12 of the textbook's formula."""
    radius, angle = ([int(word) for word in Stream(KEY, bytes([one] * 12)).words(64)] for one in (1, 2))
    sizes = [math.sqrt(-2 * math.log(((word >> 11) + 1) * 2.0**-53)) for word in radius]
    turns = [2 * math.pi * ((word >> 11) * 2.0**-53) for word in angle]
    known = [size * way(turn) for way in (math.cos, math.sin) for size, turn in zip(sizes, turns, strict=True)]
    assert _in_float64(radius, angle) == pytest.approx(known, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: SGD(weights, lr=0.3),
        lambda weights: SGD(weights, lr=0.3, momentum=0.9, weight_decay=0.1, dampening=0.2),
        lambda weights: SGD(weights, lr=0.3, momentum=0.9, nesterov=True, maximize=True),
        lambda weights: SGD([{"params": weights[:2], "lr": 0.1}, {"params": weights[2:], "momentum": 0.5}], lr=1.0),
        lambda weights: AdamW(weights, lr=0.01, weight_decay=0.1),
        lambda weights: Adam(weights, lr=0.01, betas=(0.3, 0.9), weight_decay=0.1, maximize=True),
    ],
)
def test_an_update_is_the_optimisers(make: Callable[[list[Tensor]], Optimizer]) -> None:
    """Two steps by the kernel and by PyTorch's own optimiser on the CPU's noisy mean: to roundings of float32."""
    from trainer_adapter.gpu_kernels import noise_launch

    # Weights that begin and end inside a program's values, in both halves, and two that one program holds whole.
    sizes: list[tuple[int, ...]] = [(3,), (), (40, 60), (0,), (1,), (7,)]
    public = torch.Generator().manual_seed(3)
    first = [torch.randn(size, generator=public) for size in sizes]
    ours, theirs = ([nn.Parameter(one.clone()) for one in first] for _ in range(2))
    mine, other = make([*ours]), make([*theirs])
    count = sum(one.numel() for one in first)
    for step in range(1, 3):
        total, nonce = torch.randn(count, generator=public), step.to_bytes(12, "little")
        mean, start = noisy_mean(total.clone(), Stream(KEY, nonce), *_scales()), 0
        for one in theirs:
            one.grad = mean[start : start + one.numel()].view_as(one)
            start += one.numel()
        other.step()
        kind = known_kind(mine, ours)
        assert kind is not None
        updates = begin_updates(mine, ours)
        noise_launch.updated(total, Stream(KEY, nonce).seed(count), SCALES, updates, kind, PAIRS_AT_ONCE)
    for one, another in zip(ours, theirs, strict=True):
        assert torch.allclose(one, another, rtol=1e-5, atol=1e-6)


def test_a_run_by_the_kernel_is_the_run_of_the_cpu(plan: Plan, make_model: MakeModel, data: Data) -> None:
    """Three steps of the engine with the same randomness, once with each tail: the same weights to 1e-6."""
    from trainer_adapter.gpu_kernels import noise_launch

    ours, theirs = make_model(), make_model()
    engines = [Engine(plan, model, cross_entropy, data, 8) for model in (ours, theirs)]
    mine, other = (SGD(model.parameters(), lr=0.2, momentum=0.9) for model in (ours, theirs))
    drawn = [CsprngRandomness(bytes(range(32))) for _ in engines]
    for step in range(1, 4):
        engines[1].step(step, other, drawn[1])
        total, noise = engines[0].total(step, drawn[0]), drawn[0].stream("noise", step)
        parameters = list(ours.parameters())
        kind, scales = known_kind(mine, parameters), (engines[0].noise_std, float(plan.batch_size_expected))
        assert kind is not None
        noise_launch.updated(
            total, noise.seed(total.numel()), scales, begin_updates(mine, parameters), kind, PAIRS_AT_ONCE
        )
    for one, another in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, another, rtol=1e-6, atol=1e-7)


def test_a_cpu_never_takes_the_kernels() -> None:
    """Not with Triton installed either: what a run on it computed yesterday it computes today."""
    assert not has_kernels(torch.device("cpu"))


def test_the_key_does_not_stay_on_the_device() -> None:
    """What a launch copied there is zeros afterwards, and the stream gives nothing a second time."""
    stream = Stream(KEY, NONCE)
    _kernel_mean(torch.zeros(5), stream)
    with pytest.raises(OverflowError):
        stream.take(1)
    with pytest.raises(ValueError, match="beginning"):
        stream.seed(5)


def test_the_kernels_compile_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """For Ampere and Hopper, each kind of update, in float64 where the CPU is."""
    without = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    home = Path(__file__).resolve().parents[3]
    path = os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainer_adapter.gpu_kernels.compile_child"],
        env={**without, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.endswith("float64 True, rotations True") for line in lines), lines
