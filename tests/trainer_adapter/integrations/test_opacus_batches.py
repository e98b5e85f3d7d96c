"""Batches of Opacus under a charge: a step is on the batch that the loader handed out last, once, and on all of it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, Final

import pytest
import torch
from opacus.data_loader import DPDataLoader
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader

from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.integrations.opacus_bench import PLAN, SPARSE, WARNINGS, Bench, bench_of, posted_steps
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations import opacus
from trainer_adapter.integrations.opacus import Refusal

pytestmark = WARNINGS
NONE: Final = "no batch was handed out for this step"
PASSED_OVER: Final = "the one before had no step"


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


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_batches_are_not_drawn_ahead(place: Place, by: str) -> None:
    """The records of one draw in each step, or steps on chosen draws, would have a loss that was never charged."""
    with bench_of(place, f"ahead-{by}") as bench:
        bench.private(by)
        with pytest.raises(Refusal, match=PASSED_OVER):
            list(bench.loader)
        assert all(one.grad is None for one in bench.model.parameters())
    assert posted_steps(place, f"ahead-{by}") is None


def test_the_newest_batch_is_good_for_one_step(place: Place) -> None:
    """A second step on it is refused, and the next batch has a step of its own."""
    with bench_of(place, "newest") as bench:
        bench.private("engine")
        for batch in bench.loader:
            _step(bench, batch)
            with pytest.raises(Refusal, match=NONE):
                _step(bench, batch)
    assert posted_steps(place, "newest") == 2


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
    assert posted_steps(place, change) is None


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
    assert posted_steps(place, f"part-{wrong}".replace(" ", "-")) is None


def test_parts_that_a_loop_leaves_behind_shift_no_others(place: Place) -> None:
    """The first draw is given up after one part: its sum is thrown away, and the next draw is not handed out."""
    with bench_of(place, "given-up") as bench:
        bench.private("engine")
        with _parts(bench, 64) as parts:
            given = iter(parts)
            part = next(given)
            _step(bench, part)
            whole = bench.loader.batch_sampler.records
            handed = [len(part[0])]
            with pytest.raises(Refusal, match=PASSED_OVER):
                handed.extend(len(inputs) for inputs, _ in given)
        assert sum(handed) == whole
        assert all(one.grad is None and one.summed_grad is None for one in bench.module.parameters())
    assert posted_steps(place, "given-up") is None


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


def _on_some(bench: Bench, loader: Any) -> None:  # noqa: ANN401 - as above
    """Step on those alone that one record is in."""
    for batch in loader:
        if (batch[0] == bench.records[0][0]).all(dim=1).any():
            _step(bench, batch)


def _epochs(bench: Bench, loader: Any) -> None:  # noqa: ANN401 - as above
    """Look at the first batch of each epoch."""
    while True:
        _step(bench, next(iter(loader)))
        next(iter(loader))


def _of_two_loaders(bench: Bench, loader: Any) -> None:  # noqa: ANN401 - as above
    """One to look at, and one to step on."""
    other = DPDataLoader(bench.records, sample_rate=0.5)
    opacus._of(bench.run)().hold(bench.model, bench.optimiser, other)  # noqa: SLF001 - as make_private makes it
    next(iter(loader))
    next(iter(other))


def _on_what_collates(bench: Bench, loader: Any, error: type[BaseException]) -> None:  # noqa: ANN401 - as above
    """The collator fails on draws without a record, and the loop begins another epoch."""
    collate, failed = loader.collate_fn, 0

    def chosen(rows: list[Any]) -> object:
        if not any(torch.equal(row[0], bench.records[0][0]) for row in rows):
            raise error("it is not there")
        return collate(rows)

    loader.collate_fn = chosen
    while failed < 50:
        try:
            _steps(bench, loader)
        except error:
            failed += 1


PASSES: Final[dict[str, Callable[[Bench, Any], None]]] = {
    "empty": lambda bench, loader: _all_steps(bench, loader, empty=False),
    "chosen": _on_some,
    "epochs": _epochs,
    "loaders": _of_two_loaders,
    "collator": lambda bench, loader: _on_what_collates(bench, loader, LookupError),
    "collator-ends": lambda bench, loader: _on_what_collates(bench, loader, SystemExit),
}
"""How a loop passes over a draw that it has seen."""


@pytest.mark.parametrize("name", PASSES)
def test_a_loop_that_passes_over_a_draw_ends_in_doubt(place: Place, name: str) -> None:
    """The others were sampled at another rate than the plan's: nothing is posted, no model leaves, the charge stays."""
    # Of a dense plan's few draws each may have the record that is looked for.
    plan = PLAN if name in {"epochs", "loaders"} else SPARSE
    with bench_of(place, f"passes-{name}", plan) as bench:
        bench.private("engine", batch_size=plan.batch_size_expected)
        with pytest.raises(Refusal, match=PASSED_OVER):
            PASSES[name](bench, bench.loader)
    assert not bench.run.release_model(b"model")
    assert posted_steps(place, f"passes-{name}") is None


def test_a_loop_that_ends_on_a_draw_posts_nothing(place: Place) -> None:
    """It may have ended because of what it saw; one that looks at the next batch when all steps are taken has not."""
    with bench_of(place, "ends-on-one") as bench:
        bench.private("engine")
        for batch in bench.loader:
            if bench.run.remaining().steps < PLAN.steps:
                break
            _step(bench, batch)
    assert posted_steps(place, "ends-on-one") is None
    with bench_of(place, "ends-in-time") as bench:
        bench.private("engine")
        while bench.run.remaining().steps:
            for batch in bench.loader:
                if not bench.run.remaining().steps:
                    break
                _step(bench, batch)
    assert posted_steps(place, "ends-in-time") == PLAN.steps


def test_a_run_that_is_ended_from_outside_posts_its_steps(place: Place) -> None:
    """By a signal, say: the step of the draw that its loop has is refused, which is no choice of the loop."""
    with bench_of(place, "ended") as bench:
        bench.private("engine")
        bench.optimiser.attach_step_hook(lambda _: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Refusal, match="stopped by SIGTERM"):
            _all_steps(bench, bench.loader)
    assert posted_steps(place, "ended") == 1


def _leaves_one(bench: Bench, loader: Any) -> None:  # noqa: ANN401 - as above
    """One step of an epoch, and another epoch."""
    for _ in range(2):
        for batch in loader:
            _step(bench, batch)
            break


def _leaves_parts(bench: Bench, _: Any) -> None:  # noqa: ANN401 - as above
    """The same by loaders that BatchMemoryManager makes."""
    for _ in range(2):
        with _parts(bench, 1_000) as loader:
            _leaves_one(bench, loader)


def _fails(bench: Bench, loader: Any) -> None:  # noqa: ANN401 - as above
    """The loop fails after a step."""
    _step(bench, next(iter(loader)))
    raise LookupError


LEAVES: Final[dict[str, tuple[Callable[[Bench, Any], None], type[Exception] | None]]] = {
    "new-epoch": (_leaves_one, Refusal),
    "new-parts": (_leaves_parts, Refusal),
    "ends": (lambda bench, loader: _step(bench, next(iter(loader))), None),
    "fails": (_fails, LookupError),
}
"""How a loop leaves batches that workers read, and what it ends by."""


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("name", LEAVES)
def test_what_workers_read_is_left_behind_by_no_loop(place: Place, name: str, *, persistent: bool) -> None:
    """The collator has seen these records, and may have told the loop of them: nothing is posted, no model leaves."""
    loop, error = LEAVES[name]
    run = f"leaves-{name}-{persistent}"
    expected = nullcontext() if error is None else pytest.raises(error)
    with expected, bench_of(place, run) as bench:
        bench.private("engine", loader={"num_workers": 1, "persistent_workers": persistent})
        loop(bench, bench.loader)
    assert bench.run.budget.taken == 1
    assert not bench.run.release_model(b"model")
    assert posted_steps(place, run) is None


@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_that_workers_read_for_goes_on(place: Place, *, persistent: bool) -> None:
    """After a new one was refused, to its end, and the run to its last step; what is read beyond that is no step."""
    run = f"goes-on-{persistent}"
    with bench_of(place, run) as bench:
        bench.private("engine", loader={"num_workers": 1, "persistent_workers": persistent})
        epoch = iter(bench.loader)
        _step(bench, next(epoch))
        with pytest.raises(Refusal, match="go on with that epoch to its end"):
            iter(bench.loader)
        _steps(bench, epoch)
        while bench.run.remaining().steps:
            for batch in bench.loader:
                _step(bench, batch)
                if not bench.run.remaining().steps:
                    break
        assert len(bench.loader) == 2
    assert posted_steps(place, run) == PLAN.steps


def test_a_run_that_is_ended_from_outside_leaves_what_workers_read(place: Place) -> None:
    """Which is no choice of its loop."""
    with bench_of(place, "ended-ahead") as bench:
        bench.private("engine", loader={"num_workers": 1})
        bench.optimiser.attach_step_hook(lambda _: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Refusal, match="stopped by SIGTERM"):
            _all_steps(bench, bench.loader)
    assert posted_steps(place, "ended-ahead") == 1
