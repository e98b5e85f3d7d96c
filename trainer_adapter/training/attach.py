"""A run of a user's own model: a model, an optimiser and a loss attached to a contract; the training loop stays theirs.

    with attach(model, optimiser, loss, "job.toml") as run:
        print(run.plan())
        for step in run:
            ...
    run.release()

Nothing is charged before the first step is requested. From there on the order is fixed: charge, key, data, then one
private step each time round; however the loop ends, the block posts what ran.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.session.noise_choice import load_assignment
from trainer_adapter.training.correlated_run import CorrelatedRun
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.run_options import Loss, Options


def attach(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    assignment: Assignment | Path | str,
    options: Options | None = None,
    **changes: Any,  # noqa: ANN401 - members of the assignment
) -> ModelRun:
    """A run of ``model`` under a contract; nothing is sent to the service yet.

    Args:
        model: on its device; see :class:`~trainer_adapter.dpsgd.engine.Engine` for what it may hold.
        optimiser: any torch optimiser over exactly the trainable parameters.
        loss: from what the model gives for one record, a tensor or a structure of several, and targets to one number.
        assignment: which contract, data, plan and keys; or the file that holds it, a job of ``epsilon train`` too.
        options: everything else.
        changes: members of the assignment that replace those of the file, as ``id="run-2"``.

    Raises:
        Malformed, OSError: for an assignment that cannot be read, or a compiled model. Refused, Unreachable: where
            the file states its ε and the noise has to be requested from the service.
    """
    loaded = attached_assignment(model, assignment, **changes)
    kind = CorrelatedRun if isinstance(loaded.plan, CorrelatedPlan) else ModelRun
    return kind(model, optimiser, loss, loaded, options or Options())


def attached_assignment(
    model: nn.Module,
    assignment: Assignment | Path | str,
    **changes: Any,  # noqa: ANN401 - its members
) -> Assignment:
    """The assignment of a run that trains this model and does nothing else. Raises: as :func:`attach`."""
    refuse_compiled(model)
    loaded = assignment_of(assignment, **changes)
    if isinstance(loaded.plan, StagedPlan):
        raise Malformed("train.plan", "is of stages, which `epsilon train` and attach_stages take: attach trains alone")
    return loaded


def assignment_of(assignment: Assignment | Path | str, **changes: Any) -> Assignment:  # noqa: ANN401 - its members
    """The assignment of a run that trains, or of the file that holds it, with these members changed.

    Raises:
        Malformed, OSError: if it cannot be read or does not train. Refused, Unreachable: as :func:`attach`.
    """
    loaded = assignment if isinstance(assignment, Assignment) else load_assignment(Path(assignment))
    _ = loaded.training
    if "output" in changes:
        changes["output"] = Path(changes["output"])
    return replace(loaded, **changes)


def refuse_compiled(model: nn.Module) -> None:
    """Raises: Malformed, for what ``torch.compile`` made, whose calls cannot be traced record by record."""
    for name, module in model.named_modules():
        if "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None:  # noqa: SLF001 - torch says it nowhere else
            where = f"model.{name}" if name else "model"
            rule = "is compiled: attach the module that was given to torch.compile, with engine={'compiled': True}"
            raise Malformed(where, rule)
