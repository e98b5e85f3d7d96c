"""Training without a ledger, for tests: each block is durable in the step log before its first noise is used.

Nothing about a record is printed, returned or logged: no training loss, no gradient norm, no batch size, and
no count of records that were not finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import MICROBATCH, Engine
from trainer_adapter.run.step_budget import StepBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor, nn

    from ledger.mechanisms.plan import Plan
    from trainer_adapter.job.step_log import StepLog


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
    microbatch: int = MICROBATCH,
    randomness: CsprngRandomness | None = None,
) -> int:
    """Train for at most the plan's steps, without a ledger, and tell how many ran.

    Args:
        plan: what was charged.
        model: on its device; see :class:`~trainer_adapter.dpsgd.engine.Engine` for what it may hold.
        loss_fn: from outputs and targets of one record to one number.
        data: inputs and targets of the partition, one row a record.
        optimiser: any torch optimiser over exactly the trainable parameters.
        log: the step log of this run and this plan; what it has begun is not taken again.
        on_step: called after each step with the step and the plan's steps; both are public.
        stop: asked before each step; a true answer ends the run there. It must not look at the data.
        microbatch: records that pass through the model at once.
        randomness: only for tests; a run makes its own.

    Returns:
        The steps whose noise was used, and all before them. If this raises instead, ``log.steps_begun()`` counts.

    Raises:
        Malformed: before anything is used, if the log is another plan's or the model is refused.
        OSError: if a block could not be made durable.
    """
    steps = StepBudget(plan, log, [] if stop is None else [lambda: "asked to stop" if stop() else ""])
    engine = Engine(plan, model, loss_fn, data, microbatch)
    engine.traced.check_optimiser(optimiser)
    randomness = randomness or CsprngRandomness.fresh()
    for step in steps:
        engine.step(step, optimiser, randomness)
        if on_step is not None:
            on_step(step, plan.steps)
    return steps.taken
