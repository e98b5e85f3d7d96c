"""Batches of Opacus under a charge: a step is on the batch that the loader handed out last, once, and on all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from fractions import Fraction
from typing import Any, Final

import pytest
from opacus.data_loader import DPDataLoader
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader

from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.integrations.opacus_bench import PLAN, WARNINGS, Bench, bench_of, posted_steps
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations import opacus
from trainer_adapter.integrations.opacus import Refusal

pytestmark = WARNINGS
NONE: Final = "no batch was handed out for this step"
SPARSE: Final = Plan(Fraction(1, 700), Fraction(8), Fraction(1), 20, 1)
"""More than a third of its draws are empty."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("opacus") / "place") as found:
        yield found


def _step(bench: Bench, batch: Any) -> None:  # noqa: ANN401 - what a loader gives
    bench.backward(batch)
    bench.optimiser.step()


def _steps(bench: Bench, loader: Iterable[Any]) -> None:
    """Step on each batch of an epoch."""
    for batch in loader:
        _step(bench, batch)


def _all_steps(bench: Bench, loader: Iterable[Any], *, empty: bool = True) -> None:
    """Epoch after epoch, on empty batches or without them, until something refuses it."""
    while True:
        _steps(bench, (batch for batch in loader if empty or len(batch[0])))


def _parts(bench: Bench, size: int) -> Any:  # noqa: ANN401 - Opacus' own
    return BatchMemoryManager(data_loader=bench.loader, max_physical_batch_size=size, optimizer=bench.optimiser)


def _two_sizes(bench: Bench) -> list[Any]:
    """Batches drawn ahead, of which the first is of another size than the last."""
    while True:
        kept = list(bench.loader)
        if len(kept[0][0]) != len(kept[-1][0]):
            return kept


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_one_of_many_batches_drawn_ahead_is_good_for_no_step(place: Place, by: str) -> None:
    """The records of one draw in each step would have a loss that was never charged."""
    with bench_of(place, f"ahead-{by}") as bench:
        bench.private(by)
        kept = _two_sizes(bench)
        for _ in range(PLAN.steps):
            with pytest.raises(Refusal, match="of another number of records|" + NONE):
                _step(bench, kept[0])
            assert all(one.grad is None for one in bench.model.parameters())
    assert posted_steps(place, f"ahead-{by}") == 0


def test_the_newest_batch_is_good_for_one_step(place: Place) -> None:
    """Of a list drawn ahead that is the last; a second step on it is refused."""
    with bench_of(place, "newest") as bench:
        bench.private("engine")
        kept = list(bench.loader)
        _step(bench, kept[-1])
        with pytest.raises(Refusal, match=NONE):
            _step(bench, kept[-1])
    assert posted_steps(place, "newest") == 1


@pytest.mark.parametrize("change", ["fewer", "more"])
def test_a_step_has_as_many_gradients_as_its_batch_has_records(place: Place, change: str) -> None:
    """A record left out or taken twice: refused, and the batch is used up."""
    with bench_of(place, change) as bench:
        bench.private("engine")
        inputs, targets = next(iter(bench.loader))
        places = list(range(1, len(inputs))) if change == "fewer" else [0, *range(len(inputs))]
        with pytest.raises(Refusal, match="of another number of records"):
            _step(bench, [inputs[places], targets[places]])
        with pytest.raises(Refusal, match=NONE):
            _step(bench, [inputs, targets])
    assert posted_steps(place, change) == 0


def test_what_another_loader_hands_out_is_good_for_no_step(place: Place) -> None:
    """It reads the same draws, and no one sees what it does with them."""
    with bench_of(place, "another") as bench:
        bench.private("engine")
        another = DataLoader(bench.records, batch_sampler=bench.loader.batch_sampler)
        with pytest.raises(Refusal, match=NONE):
            _step(bench, next(iter(another)))
    assert posted_steps(place, "another") == 0


def test_a_loader_in_another_order_is_refused(place: Place) -> None:
    """Then which draw a batch is of would not be known."""
    with bench_of(place, "order") as bench:
        bench.private("ours")
        accountant = opacus._of(bench.run)()  # noqa: SLF001 - as make_private makes it
        loader = DPDataLoader(bench.records, sample_rate=0.5, num_workers=1, in_order=False)
        with pytest.raises(Refusal, match="in_order must be True"):
            accountant.hold(bench.model, bench.optimiser, loader)


@pytest.mark.parametrize("wrong", ["again", "left out"])
def test_each_part_of_a_draw_is_summed_once(place: Place, wrong: str) -> None:
    """By BatchMemoryManager, whose parts have no noise of their own: one taken twice or left out ends in a refusal."""
    with bench_of(place, f"part-{wrong}".replace(" ", "-")) as bench:
        bench.private("engine")
        with _parts(bench, 64) as parts:
            given = iter(parts)
            part = next(given)
            if wrong == "again":
                _step(bench, part)
                with pytest.raises(Refusal, match=NONE):
                    _step(bench, part)
            else:
                with pytest.raises(Refusal, match="a part of it was left out"):
                    _steps(bench, given)
        assert all(one.grad is None for one in bench.model.parameters())
    assert posted_steps(place, f"part-{wrong}".replace(" ", "-")) == 0


def test_parts_that_a_loop_leaves_behind_shift_no_others(place: Place) -> None:
    """The first draw is given up after one part: its sum is thrown away, and the next is a step of its own parts."""
    with bench_of(place, "given-up") as bench:
        bench.private("engine")
        draws, first, stepped = bench.loader.batch_sampler, True, list[int]()
        bench.optimiser.attach_step_hook(lambda _: stepped.append(draws.drawn))
        with _parts(bench, 64) as parts:
            for part in parts:
                if first or draws.drawn > 1:
                    _step(bench, part)
                first = False
                if stepped:
                    break
        assert stepped == [2]
    assert posted_steps(place, "given-up") == 1


LOADERS: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "whole": ({}, 0),
    "parts": ({}, 64),
    "workers": ({"num_workers": 2}, 0),
    "parts of workers": ({"num_workers": 2, "persistent_workers": True}, 64),
}
"""Options of a loader, and how many records a part has."""


@pytest.mark.parametrize("plan", [PLAN, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", LOADERS)
def test_who_steps_on_each_batch_takes_every_step(place: Place, name: str, plan: Plan) -> None:
    """With batches drawn ahead, in parts, and empty: every step of the plan, and in the end the refusal of one more."""
    options, part = LOADERS[name]
    run = f"{name}-{plan.steps}".replace(" ", "-")
    with bench_of(place, run, plan) as bench:
        bench.private("engine", batch_size=plan.batch_size_expected, loader=options)
        with (
            _parts(bench, part) if part else nullcontext(bench.loader) as loader,
            pytest.raises(Refusal, match=f"all {plan.steps} steps that were charged are taken"),
        ):
            _all_steps(bench, loader)
    assert posted_steps(place, run) == plan.steps


def test_a_loop_may_pass_over_empty_batches(place: Place) -> None:
    """As many do; in parts too, where Opacus' own signals would then be one behind."""
    with bench_of(place, "passed-over", SPARSE) as bench:
        bench.private("engine", batch_size=1)
        with _parts(bench, 1) as loader, pytest.raises(Refusal, match="all 20 steps that were charged are taken"):
            _all_steps(bench, loader, empty=False)
    assert posted_steps(place, "passed-over") == SPARSE.steps
