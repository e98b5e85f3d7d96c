"""Steps are given out in order, each after its block is durable, and never more than were charged."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN
from trainer_adapter.job.step_log import StepLog, steps_begun
from trainer_adapter.run.progress import ProgressReporter
from trainer_adapter.run.step_budget import StepBudget


def test_the_cost_of_a_block_is_one_fsync_and_at_most_one_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty steps in two blocks: two fsyncs, and within one pace two reports, the first and the last."""
    synced, reported, fsync = list[int](), list[int](), os.fsync

    def tell(descriptor: int) -> None:
        synced.append(descriptor)
        fsync(descriptor)

    with (
        closing(StepLog.create(tmp_path / "steps", "run-1", PLAN, 10)) as log,
        closing(ProgressReporter(reported.append, lambda: "", pace_s=1_000)) as progress,
    ):
        monkeypatch.setattr(os, "fsync", tell)
        for step in StepBudget(PLAN, log):
            progress.report(step)
        assert len(synced) == 2
    assert reported[-1] == PLAN.steps
    assert len(reported) <= 2


@settings(max_examples=40)
@given(
    blocks=st.integers(1, 25),
    runs=st.lists(st.integers(0, 12), max_size=5),
    torn=st.booleans(),
)
def test_processes_that_go_on_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    blocks: int,
    runs: list[int],
    torn: bool,  # noqa: FBT001 - drawn
) -> None:
    """However many die, each after some steps: no step twice, none beyond the plan, all within what was begun."""
    path, taken, begun = tmp_path_factory.mktemp("log") / "steps", list[int](), 0
    StepLog.create(path, "run-1", PLAN, blocks).close()
    for dies_after in runs:
        with closing(StepLog.resume(path, "run-1", PLAN, blocks)) as log:
            steps = StepBudget(PLAN, log)
            assert steps.taken == begun
            for _ in range(dies_after):
                if (step := steps.next_step()) is not None:
                    taken.append(step)
        begun = steps.steps_durable
        if torn and path.read_bytes().count(b"\n") > 1:
            # What a crash left of the last line counts as a whole block, never as less than it may have been.
            path.write_bytes(path.read_bytes()[:-3])
            assert steps_begun(path, "run-1", PLAN) >= begun
            begun = steps_begun(path, "run-1", PLAN)
        assert steps_begun(path, "run-1", PLAN) == begun
        assert taken == sorted(set(taken))
        assert (taken[-1] if taken else 0) <= begun <= PLAN.steps


def test_a_run_that_has_ended_stays_ended(tmp_path: Path) -> None:
    """An end is asked before each step, not after, and once said it is final."""
    ends = iter(["", "", "enough", ""])
    with closing(StepLog.create(tmp_path / "steps", "run-1", PLAN, 1)) as log:
        steps = StepBudget(PLAN, log, [lambda: next(ends)])
        assert [steps.next_step() for _ in range(4)] == [1, 2, None, None]
        assert (steps.ended, steps.taken, log.steps_begun()) == ("enough", 2, 2)


def test_a_log_that_cannot_be_gone_on_with(tmp_path: Path) -> None:
    """Another plan's, another run's, or one of other blocks."""
    other = Plan(PLAN.sampling_probability, PLAN.noise_multiplier, PLAN.clipping_norm, 21, PLAN.batch_size_expected)
    StepLog.create(tmp_path / "steps", "run-1", PLAN, 10).close()
    for run, plan, blocks in (("run-2", PLAN, 10), ("run-1", other, 10), ("run-1", PLAN, 9)):
        with pytest.raises(Malformed, match="another"):
            StepLog.resume(tmp_path / "steps", run, plan, blocks)
    with (
        closing(StepLog.resume(tmp_path / "steps", "run-1", PLAN, 10)) as log,
        pytest.raises(Malformed, match="another plan"),
    ):
        StepBudget(other, log)
