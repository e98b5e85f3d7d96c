"""Steps of Opacus under a charge: no update without one, whoever hangs which hooks where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import pytest
import torch
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.trainer_adapter.integrations.opacus_bench import PLAN, WARNINGS, Bench, bench_of, posted_steps
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations.opacus import Refusal

pytestmark = WARNINGS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("opacus") / "place") as found:
        yield found


def _wrapped(bench: Bench) -> None:
    before = bench.optimiser.step_hook
    bench.optimiser.attach_step_hook(lambda stepped: (before and before(stepped), bench.hook("a")(stepped)))


def _twice(bench: Bench) -> None:
    bench.optimiser.attach_step_hook(bench.hook("a"))
    bench.optimiser.attach_step_hook(bench.hook("b"))


def _emptied(bench: Bench) -> None:
    bench.optimiser.attach_step_hook(bench.hook("a"))
    bench.optimiser.step_hook = None


WAYS: Final[dict[str, tuple[Callable[[Bench], object], str]]] = {
    "none": (lambda _: None, ""),
    "attached": (lambda bench: bench.optimiser.attach_step_hook(bench.hook("a")), "a"),
    "two attached": (_twice, "ab"),
    "attached by the class": (lambda bench: DPOptimizer.attach_step_hook(bench.optimiser, bench.hook("a")), "a"),
    "put into the slot": (lambda bench: setattr(bench.optimiser, "step_hook", bench.hook("a")), "a"),
    "slot emptied": (_emptied, ""),
    "around the one before": (_wrapped, "a"),
}
"""How a hook is attached, and which are called at each step."""


@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("by", ["ours", "engine"])
@pytest.mark.parametrize("way", WAYS)
def test_every_update_takes_a_step_whatever_hooks_there_are(place: Place, way: str, by: str, when: str) -> None:
    """Six updates, all posted; the seventh is refused before its noise, and every hook was called in order."""
    attach, called = WAYS[way]
    name = f"{way}-{by}-{when}".replace(" ", "-")
    with bench_of(place, name) as bench:
        bench.private(by)
        before = 0
        if when == "later":
            bench.backward(next(iter(bench.loader)))
            bench.optimiser.step()
            before = 1
        attach(bench)
        bench.weights.append(bench.model.weight.detach().clone())
        bench.refused()
        assert len(bench.weights) == PLAN.steps - before + 1
        assert all(not torch.equal(one, two) for one, two in pairwise(bench.weights))
        assert torch.equal(bench.model.weight, bench.weights[-1])
        assert "".join(bench.hooked) == called * (PLAN.steps - before)
    assert posted_steps(place, name) == PLAN.steps


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_an_update_in_pieces_takes_a_step(place: Place, by: str) -> None:
    """Who calls the parts of a step one by one, with the hook left out, gets no more of them."""
    with bench_of(place, f"pieces-{by}") as bench:
        bench.private(by)

        def step() -> None:
            bench.optimiser.clip_and_accumulate()
            bench.optimiser.add_noise()
            bench.optimiser.scale_grad()
            bench.optimiser.original_optimizer.step()

        bench.refused(step=step)
        assert len(bench.weights) == PLAN.steps
    assert posted_steps(place, f"pieces-{by}") == PLAN.steps


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_the_optimiser_beneath_makes_no_update_of_its_own(place: Place, by: str) -> None:
    """Stepped past Opacus, on gradients without noise: refused, the weights as they were, and so again after a step."""
    with bench_of(place, f"beneath-{by}") as bench:
        bench.private(by)
        beneath = bench.optimiser.original_optimizer
        bench.backward(next(iter(bench.loader)))
        bench.optimiser.step()
        start = bench.model.weight.detach().clone()
        with pytest.raises(Refusal, match="noise of its own"):
            beneath.step()
        bench.refused("noise of its own", beneath.step)
        assert torch.equal(bench.model.weight, start)
        assert not bench.weights
    # The second of them left a draw without a step.
    assert posted_steps(place, f"beneath-{by}") is None


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_a_step_that_breaks_leaves_no_gradient(place: Place, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that cannot be made durable: no noise is drawn, the weights stay, and nothing is left to change them."""
    with bench_of(place, f"breaks-{by}") as bench:
        bench.private(by)
        start = bench.model.weight.detach().clone()

        def full(_: int) -> None:
            raise OSError(28, "no space left on device")

        bench.backward(next(iter(bench.loader)))
        bench.optimiser.generator = generator = torch.Generator().manual_seed(3)
        undrawn = generator.get_state()
        with monkeypatch.context() as disk:
            disk.setattr("os.fsync", full)
            with pytest.raises(OSError, match="no space"):
                bench.optimiser.step()
        assert torch.equal(generator.get_state(), undrawn)
        assert torch.equal(bench.model.weight, start)
        assert all(one.grad is None for one in bench.model.parameters())


@pytest.mark.parametrize("when", ["between parts", "before the noise"])
def test_the_clipping_norm_stays_the_plans(place: Place, when: str) -> None:
    """Parts that were clipped to 1 with noise for a tenth would have a tenth of the noise that was charged."""
    with bench_of(place, f"norm-{when}".replace(" ", "-")) as bench:
        bench.private("engine", max_grad_norm=[0.6, 0.8], clipping="per_layer")
        bench.backward(next(iter(bench.loader)))
        if when == "between parts":
            bench.optimiser.max_grad_norms[0] = 0.06
            with pytest.raises(Refusal, match="it was changed"):
                bench.optimiser.step()
        else:
            bench.optimiser.clip_and_accumulate()
            bench.optimiser.max_grad_norm = 0.1
            with pytest.raises(Refusal, match="it was changed"):
                bench.optimiser.add_noise()
        assert all(one.grad is None for one in bench.model.parameters())
        assert bench.run.budget.taken == 0
    assert posted_steps(place, f"norm-{when}".replace(" ", "-")) is None


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_a_norm_that_is_a_tensor_is_not_changed_in_place(place: Place, clipping: str) -> None:
    """It would be compared with itself: records clipped to 100, with noise for 1."""
    share = torch.tensor(1.0 if clipping == "flat" else 0.5**0.5)
    with bench_of(place, f"tensor-{clipping}") as bench:
        bench.private("engine", max_grad_norm=share if clipping == "flat" else [share, share], clipping=clipping)
        batches = iter(bench.loader)
        bench.backward(next(batches))
        bench.optimiser.step()
        bench.backward(next(batches))
        share.mul_(100)
        with pytest.raises(Refusal, match="it was changed"):
            bench.optimiser.clip_and_accumulate()
        assert all(one.grad is None for one in bench.model.parameters())
    assert posted_steps(place, f"tensor-{clipping}") is None


def test_parts_of_a_draw_are_one_sum(place: Place) -> None:
    """Its records, each once, and those of no other; the epoch that is left after it begins anew with the next."""
    with bench_of(place, "early") as bench:
        bench.records = TensorDataset(torch.zeros(700, 64))
        bench.private("engine")
        summed: list[float] = []
        # Of a record of zeros the bias alone has a gradient, of the same ten numbers for each, cut to length 1.
        bench.optimiser.attach_step_hook(lambda _: summed.append(float(bench.model.bias.summed_grad.norm())))  # type: ignore[attr-defined] # Opacus's own

        def step(inputs: Tensor) -> int:
            bench.optimiser.zero_grad()
            bench.module(inputs).sum(dim=1).mean().backward()
            bench.optimiser.step()
            return len(inputs)

        with BatchMemoryManager(
            data_loader=bench.loader, max_physical_batch_size=64, optimizer=bench.optimiser
        ) as parts:
            drawn = [0, 0]
            for epoch in range(2):
                for (inputs,) in parts:
                    drawn[epoch] += step(inputs)
                    if len(summed) > epoch:
                        break
        assert summed == [pytest.approx(count, rel=1e-3) for count in drawn]
    assert posted_steps(place, "early") == 2
