"""One run on several devices: the loop that ``attach`` runs in one process, in one process for each device.

    # torchrun --standalone --nproc-per-node 4 train.py
    with attach_ranks(model, optimiser, loss, "job.toml") as run:
        for step in run:
            ...
    run.release()

Every rank runs the same lines. Rank 0 charges the run, opens the data and gives each rank a shard; each step is the
plan's own, so its price does not depend on how many devices take it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.devices.following_run import FollowingRun
from trainer_adapter.devices.leading_run import LeadingRun
from trainer_adapter.devices.rank_group import RankGroup
from trainer_adapter.job.job_spec import Assignment, Job
from trainer_adapter.training.attach import attached_assignment
from trainer_adapter.training.run_options import Loss, Options

WAIT_MARGIN_S = 600.0
"""Ranks wait for rank 0 until its charge's deadline and so much longer."""


def attach_ranks(  # noqa: PLR0913, PLR0917 - as attach, and the ranks
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    assignment: Assignment | Path | str,
    options: Options | None = None,
    ranks: RankGroup | None = None,
    **changes: Any,  # noqa: ANN401 - members of the assignment
) -> LeadingRun | FollowingRun:
    """This rank's part of a run, as :func:`~trainer_adapter.training.attach.attach` gives it to a single process.

    Args:
        model: on this rank's device. It begins as rank 0's does, whatever its weights are here.
        optimiser: with the same settings on every rank.
        loss: as there.
        assignment: the same on every rank.
        options: the same on every rank; ``service`` and ``say`` are rank 0's.
        ranks: those that ``torchrun`` started, unless given.
        changes: as there.

    Raises:
        Malformed: as there; without torchrun, or for ranks on several machines. RankLost.
        OSError, Refused, Unreachable: as there.
    """
    loaded, given = attached_assignment(model, assignment, **changes), options or Options()
    _ = Plan.of(loaded.plan)
    group = ranks or RankGroup.of_torchrun(loaded.deadline_s + WAIT_MARGIN_S)
    kind = LeadingRun if group.leads else FollowingRun
    return kind(model, optimiser, loss, loaded, given, group)


def ranks_of(job: Job) -> RankGroup | None:
    """The ranks of a job that names several devices; None for one. Raises: Malformed, RankLost."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    wanted = job.devices or 1
    if started != wanted:
        command = f"torchrun --standalone --nproc-per-node {wanted} --no-python epsilon train JOB"
        here = "one process was started" if started == 1 else f"{started} processes were started"
        remedy = f"start it as `{command}`" if wanted > 1 else "name their number, or start one"
        raise Malformed("devices", f"is {wanted}, and {here}: {remedy}")
    return None if wanted == 1 else RankGroup.of_torchrun(job.deadline_s + WAIT_MARGIN_S)
