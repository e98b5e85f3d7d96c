"""Lightning under a charge: its loop, its schedulers and loggers; every gradient is the run's.

    with attach(module.model, optimiser, loss, "job.toml") as run:
        trainer = Trainer(max_steps=run.steps, callbacks=[LedgerCallback(run)])
        trainer.fit(module, public_loader)

``configure_optimizers`` returns that optimiser. The batches of the loader are public: any gradient they give is
thrown away before the optimiser steps, and the noisy sum over the sealed records is put in its place.
"""

from __future__ import annotations

from pytorch_lightning import Callback, LightningModule, Trainer
from torch.optim import Optimizer

from ledger.wire.malformed import Malformed
from trainer_adapter.training.attach import ModelRun


class LedgerCallback(Callback):
    """Puts the run's noisy gradient in place of the batch's, and stops when the run is over.

    It logs ``epsilon`` and ``steps_left``, which are public, and nothing else.
    """

    def __init__(self, run: ModelRun) -> None:
        """``run`` is attached to the module's model and optimiser."""
        self._run = run

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Charge, get the key, open the data. Raises: Malformed, Refused, OSError, Unreachable."""
        del pl_module
        if trainer.accumulate_grad_batches != 1 or trainer.world_size != 1:
            raise Malformed("trainer", "must not accumulate batches, and has one device: a step is one noisy sum")
        self._run.open()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Replace the gradient; without one the step that follows changes nothing. Raises: Malformed, OSError."""
        del pl_module
        _only(optimizer, self._run)
        if self._run.gradients() is None:
            trainer.should_stop = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        """Log the ε of the run, and stop before a step that was not charged."""
        left = self._run.remaining()
        logged = {"epsilon": float(left.epsilon), "steps_left": float(left.steps)}
        pl_module.log_dict(logged, prog_bar=True, batch_size=1)
        if left.steps == 0:
            trainer.should_stop = True


def _only(optimiser: Optimizer, run: ModelRun) -> None:
    theirs = {id(one) for group in optimiser.param_groups for one in group["params"]}
    if theirs != {id(one) for group in run.optimiser.param_groups for one in group["params"]}:
        raise Malformed("optimiser", "updates other parameters than the run is attached to")
