"""A model or a microbatch that does not fit into memory: refused in words, in a process with little room."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.job_models.models import make
from trainer_adapter.layers.weight_writes import WriteWatch

PLAN = Plan(Fraction(1, 2), Fraction(1), Fraction(1), 10, 32)
HUGE = "from torch import nn\n\n\ndef huge():\n    return nn.Linear(1_000_000, 4_000_000)\n"


@contextmanager
def room(size: int) -> Iterator[None]:
    """Within it this process gets ``size`` bytes of address space more than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def wide() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Hardly a weight, and a hundred million activations in a microbatch of thousands."""
    model = nn.Sequential(nn.Linear(1, 1_000), nn.Tanh(), nn.Flatten(), nn.Linear(10_000, 2))
    return model, (torch.rand(4, 1, 1).expand(4, 10, 1), torch.arange(4) % 2)


def heavy() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Of 36 million bytes, each of which its run needs several times."""
    return nn.Sequential(nn.Linear(1, 3_000), nn.Linear(3_000, 3_000)), (torch.rand(4, 1), torch.arange(4) % 2)


@pytest.mark.parametrize(
    ("made", "places", "rule"),
    [
        (wide, 1 << 14, r"^microbatch: does not fit into memory: take a smaller one$"),
        # What the process has freed before may hold the weights once more, and then the microbatch is what fails.
        (heavy, 2, r"^(model|microbatch): does not fit into memory: take a smaller one(, or a machine with more)?$"),
    ],
)
def test_what_does_not_fit_is_named(
    made: Callable[[], tuple[nn.Module, tuple[Tensor, Tensor]]], places: int, rule: str
) -> None:
    """Before the charge, on public dummies."""
    model, data = made()
    with room(1 << 24), pytest.raises(Malformed, match=rule):
        Engine(PLAN, model, cross_entropy, data, places)


def test_a_comparison_of_weights_that_does_not_fit_is_no_write() -> None:
    """It is said to be what it is; and what may have been written on records is erased."""
    weights = {"weight": torch.ones(18_000_000)}
    watch = WriteWatch(weights, values=True)
    assert watch.written() == []
    with room(1 << 24), pytest.raises(MemoryError, match="the comparison of the weights does not fit into memory"):
        watch.check(erase=True)
    assert not weights["weight"].any()


def test_a_file_whose_model_does_not_fit_is_named(tmp_path: Path) -> None:
    """Sixteen terabytes of weights, which PyTorch's allocator refuses."""
    (tmp_path / "networks.py").write_text(HUGE, encoding="utf-8")
    with pytest.raises(Malformed, match=r"^model: networks\.py:huge does not fit into memory: take a smaller model"):
        make("networks.py:huge", tmp_path)
