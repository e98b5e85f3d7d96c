"""What an optimiser of Opacus changes weights by: sums in full precision, and nothing without noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.trainer_adapter.integrations.opacus_bench import WARNINGS, Bench, bench_of, posted_steps
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations.opacus import Refusal

pytestmark = WARNINGS
BY = pytest.mark.parametrize("by", ["ours", "engine"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("opacus") / "place") as found:
        yield found


def _backward(bench: Bench, batch: list[Tensor]) -> None:
    bench.optimiser.zero_grad()
    cross_entropy(bench.module(batch[0]), batch[1]).backward()


def _clipped_sums(bench: Bench) -> list[Tensor]:
    """What the records add to the sum for each parameter, computed in float64."""
    samples = [sample.double() for sample in bench.optimiser.grad_samples]
    norms = torch.stack([sample.flatten(1).norm(dim=1) for sample in samples]).norm(dim=0)
    assert float(norms.max()) > 1
    factors = (1 / (norms + 1e-6)).clamp(max=1)
    return [torch.einsum("i,i...", factors, sample) for sample in samples]


@BY
def test_a_layer_that_is_frozen_after_its_backward_pass_is_not_updated(place: Place, by: str) -> None:
    """Its gradient is that of the records, without noise; once it trains again nothing of the old sum is left."""
    with bench_of(place, f"frozen-{by}") as bench:
        first: Any = nn.Linear(64, 16)
        layers: Any = nn.Sequential(first, nn.Tanh(), nn.Linear(16, 10))
        bench.model = layers
        bench.private(by)
        before, moved = first.weight.detach().clone(), list[bool]()
        _backward(bench, next(iter(bench.loader)))
        assert first.weight.grad is not None
        first.requires_grad_(requires_grad=False)
        bench.optimiser.step()
        moved += [not torch.equal(first.weight, before), bool(layers[2].weight.grad.abs().max() > 0)]
        assert (first.weight.grad, first.weight.grad_sample, first.weight.summed_grad) == (None, None, None)
    assert moved == [False, True]
    with bench_of(place, f"thawed-{by}") as bench:
        bench.private(by)
        steps = 0
        kept: Any = bench.model.bias
        while steps < 2:
            for batch in bench.loader:
                _backward(bench, batch)
                expected = _clipped_sums(bench)
                kept.requires_grad_(steps > 0)
                bench.optimiser.step()
                kept.requires_grad_(requires_grad=True)
                steps += 1
                if steps == 2:
                    break
        torch.testing.assert_close(kept.summed_grad.double(), expected[1], rtol=1e-5, atol=1e-5)
    assert posted_steps(place, f"thawed-{by}") == 2


@BY
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_weights_of_few_bits_are_refused(place: Place, by: str, kind: torch.dtype) -> None:
    """Before a step, and where a loop makes them so later: a sum in them is rounded by more than a record adds."""
    with bench_of(place, f"few-{by}-{str(kind)[6:]}") as bench:
        bench.model.to(kind)
        with pytest.raises(Refusal, match="would round the sum by more than a record adds: keep them in float32"):
            bench.private(by)
    with bench_of(place, f"fewer-{by}-{str(kind)[6:]}") as bench:
        bench.private(by)
        inputs, targets = next(iter(bench.loader))
        bench.model.to(kind)
        cross_entropy(bench.module(inputs.to(kind)), targets).backward()
        with pytest.raises(Refusal, match="keep them in float32"):
            bench.optimiser.step()
        assert all(one.grad is None for one in bench.model.parameters())


@BY
def test_gradients_under_autocast_are_clipped_in_float32(place: Place, by: str) -> None:
    """Each record's own gradient has 8 bits, its norm and the sum have 24: none adds more than the clipping norm."""
    torch.set_float32_matmul_precision("high")
    try:
        with bench_of(place, f"autocast-{by}") as bench:
            bench.private(by)
            batch = next(iter(bench.loader))
            bench.optimiser.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                cross_entropy(bench.module(batch[0] * 50), batch[1]).backward()
                expected = _clipped_sums(bench)
                kinds = {sample.dtype for sample in bench.optimiser.grad_samples}
                bench.optimiser.step()
            params: list[Any] = [*bench.model.parameters()]
            for param, whole in zip(params, expected, strict=True):
                torch.testing.assert_close(param.summed_grad.double(), whole, rtol=1e-5, atol=1e-5)
        assert kinds == {torch.bfloat16}
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
