"""A run: the steps of a plan, each block of them durable in the step log before its first noise is used.

Nothing about a record is printed, returned or logged: no training loss, no gradient norm, no batch size, and
no count of records that were not finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.malformed import Malformed
from trainer_adapter.engine import PHYSICAL_BATCH, Engine
from trainer_adapter.randomness import Randomness

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor, nn

    from ledger.plan import Plan
    from trainer_adapter.step_log import StepLog


def train(  # noqa: PLR0913, PLR0917 - one name for each thing a run is made of
    plan: Plan,
    model: nn.Module,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    data: tuple[Tensor, Tensor],
    optimiser: torch.optim.Optimizer,
    log: StepLog,
    *,
    on_step: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    physical_batch: int = PHYSICAL_BATCH,
    randomness: Randomness | None = None,
) -> int:
    """Train for at most the plan's steps and tell how many ran: what is to be posted.

    Args:
        plan: what was charged.
        model: on its device; see :class:`~trainer_adapter.engine.Engine` for what it may hold.
        loss_fn: from outputs and targets of one record to one number.
        data: inputs and targets of the partition, one row a record.
        optimiser: any torch optimiser over exactly the trainable parameters.
        log: the fresh step log of this run and this plan.
        on_step: called after each step with the step and the plan's steps; both are public.
        stop: asked before each step; a true answer ends the run there. It must not look at the data.
        physical_batch: records that pass through the model at once.
        randomness: only for tests; a run makes its own.

    Returns:
        The steps whose noise was used. If this raises instead, ``log.steps_begun()`` is what counts.

    Raises:
        Malformed: before anything is used, if the log is another plan's or not fresh, or the model is
        refused. OSError: if a block could not be made durable.
    """
    if log.plan_digest != plan.digest:
        raise Malformed("log", "belongs to another plan")
    if log.steps_begun():
        raise Malformed("log", "has steps in it: a run starts with a fresh log and is never continued")
    engine = Engine(plan, model, loss_fn, data, physical_batch)
    engine.check_optimiser(optimiser)
    randomness = randomness or Randomness.fresh()
    for step in range(1, plan.steps + 1):
        if stop is not None and stop():
            return step - 1
        if step > log.steps_begun():
            log.begin(step, min(step + log.block_steps - 1, plan.steps))
        engine.step(step, optimiser, randomness)
        if on_step is not None:
            on_step(step, plan.steps)
    return plan.steps
