"""A run takes at most the plan's steps, begins each block before using it, and tells nothing private."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import torch
from msgspec import structs
from torch.nn.functional import cross_entropy

from ledger.wire.malformed import Malformed
from tests.trainer_adapter.local_training import train
from trainer_adapter.cli.train import best_device, device_in_words
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.job.step_log import StepLog, steps_begun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

    from ledger.mechanisms.plan import Plan
    from trainer_adapter.dpsgd.csprng import Purpose, Stream

    MakeModel = Callable[[], nn.Module]
    Data = tuple[Tensor, Tensor]


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_a_run_takes_the_plans_steps_and_no_more(
    tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every step is told once, the log covers each before it is told, nothing is printed."""
    model, seen = make_model(), []
    with closing(StepLog.create(tmp_path / "steps", "run-1", plan, 5)) as log:
        ran = train(
            plan,
            model,
            cross_entropy,
            data,
            _sgd(model),
            log,
            on_step=lambda k, n: seen.append((k, n, log.steps_begun())),
        )
    assert ran == plan.steps == steps_begun(tmp_path / "steps", "run-1", plan)
    assert seen == [(k, 12, min(-(-k // 5) * 5, 12)) for k in range(1, 13)]
    assert capfd.readouterr() == ("", "")
    assert all(torch.isfinite(value).all() for value in model.parameters())


def test_no_noise_is_drawn_before_its_block_is_on_the_disk(
    tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data
) -> None:
    """Whenever a step opens a stream, the log as another process would read it counts that step already."""
    path, opened = tmp_path / "steps", []

    class Watched(CsprngRandomness):
        """The run's own randomness, which looks at the log each time it is asked."""

        def stream(self, purpose: Purpose, step: int) -> Stream:
            opened.append((purpose, step, steps_begun(path, "run-1", plan) >= step))
            return super().stream(purpose, step)

    model = make_model()
    with closing(StepLog.create(path, "run-1", plan, 5)) as log:
        train(plan, model, cross_entropy, data, _sgd(model), log, randomness=Watched(bytes(32)))
    assert opened == [(purpose, step, True) for step in range(1, 13) for purpose in ("sampler", "noise")]


@pytest.mark.parametrize("after", [0, 3, 5, 11])
def test_a_run_stops_before_the_next_noise(
    tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data, after: int
) -> None:
    """Asked to stop after some steps, a run returns just those, and its log no block more than they need."""
    model, seen = make_model(), []
    with closing(StepLog.create(tmp_path / "steps", "run-1", plan, 5)) as log:
        ran = train(
            plan,
            model,
            cross_entropy,
            data,
            _sgd(model),
            log,
            on_step=lambda k, _: seen.append(k),
            stop=lambda: len(seen) == after,
        )
        assert ran == len(seen) == after
        assert log.steps_begun() == min(-(-after // 5) * 5, 12)


def test_a_failure_in_the_midst_leaves_the_block_counted(
    tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data
) -> None:
    """If step 7 fails, ten steps have begun."""
    model = make_model()

    def fail(step: int, _: int) -> None:
        if step == 7:
            raise KeyboardInterrupt

    with closing(StepLog.create(tmp_path / "steps", "run-1", plan, 5)) as log:
        with pytest.raises(KeyboardInterrupt):
            train(plan, model, cross_entropy, data, _sgd(model), log, on_step=fail)
        assert log.steps_begun() == 10


def test_a_log_of_another_plan_is_refused_and_a_used_one_gone_on_with(
    tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data
) -> None:
    """The log of another plan starts nothing; what a log has begun is not taken again, and counts."""
    model, seen = make_model(), list[int]()
    more = structs.replace(plan, steps=13)
    with closing(StepLog.create(tmp_path / "steps", "run-1", plan, 5)) as log:
        with pytest.raises(Malformed, match=r"^log: belongs to another plan"):
            train(more, model, cross_entropy, data, _sgd(model), log)
        assert log.steps_begun() == 0
        log.begin(1, 5)
        ran = train(plan, model, cross_entropy, data, _sgd(model), log, on_step=lambda k, _: seen.append(k))
    assert (ran, seen) == (plan.steps, list(range(6, plan.steps + 1)))


def test_the_same_randomness_gives_the_same_model_and_fresh_another(
    tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data
) -> None:
    """A run's randomness is its keys': fixed ones repeat it whatever torch's seed, fresh ones do not."""
    weights = []
    for place, secret in enumerate((bytes(32), bytes(32), None)):
        model = make_model()
        torch.manual_seed(place)
        with closing(StepLog.create(tmp_path / str(place), "run-1", plan, 12)) as log:
            randomness = None if secret is None else CsprngRandomness(secret)
            train(plan, model, cross_entropy, data, _sgd(model), log, randomness=randomness)
        weights.append(torch.cat([value.detach().reshape(-1) for value in model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.allclose(weights[0], weights[2], atol=1e-4)


def test_a_run_learns(tmp_path: Path, plan: Plan) -> None:
    """With little noise it separates two clouds: the sign and scale of its steps are right."""
    easy = structs.replace(plan, steps=40, batch_size_expected=100)
    labels = torch.arange(400) % 2
    inputs = torch.randn((400, 2), generator=torch.Generator().manual_seed(1)) + 4.0 * labels[:, None] - 2.0
    model = torch.nn.Linear(2, 2)
    with closing(StepLog.create(tmp_path / "steps", "run-1", easy, 40)) as log:
        train(easy, model, cross_entropy, (inputs, labels), torch.optim.SGD(model.parameters(), lr=2.0), log)
    with torch.no_grad():
        assert (model(inputs).argmax(dim=1) == labels).float().mean() > 0.95


def test_the_device_has_a_name_in_words() -> None:
    """The best device present is named for people."""
    best = best_device()
    assert best.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device_in_words(best).endswith(("(GPU)", "(CPU)"))
