"""Lightning under a charge: its loop, its schedulers and loggers; every gradient is the run's.

    with attach(module.model, optimiser, loss, "job.toml") as run:
        trainer = Trainer(max_steps=run.steps, callbacks=[LedgerCallback(run)])
        trainer.fit(module, public_loader)

``configure_optimizers`` returns that optimiser. The batches of the loader are public: any gradient they give is
thrown away before the optimiser steps, and the noisy sum over the sealed records is put in its place.

Of a run that leases its steps nothing leaves before a lease, or the post, names it: only a :class:`FencedLogger` around
a logger is taken, and neither a progress bar nor checkpoints of the Trainer's own, which write at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import Logger
from torch.optim import Optimizer

from ledger.wire.malformed import Malformed
from trainer_adapter.run.charged_run import Run
from trainer_adapter.training.model_run import ModelRun


class FencedLogger(Logger):
    """Another logger, which gets each line once it may leave the run."""

    def __init__(self, run: Run, logger: Logger) -> None:
        """Hold what is logged for ``logger`` behind the fence of ``run``."""
        super().__init__()
        self._run, self._logger = run, logger

    @property
    def name(self) -> str | None:
        """The other's."""
        return self._logger.name

    @property
    def version(self) -> int | str | None:
        """The other's."""
        return self._logger.version

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log them once they may leave."""
        held = {**metrics}
        texts = {name: repr(float(value)) for name, value in held.items()}
        self._run.output.put({"metrics": {**texts}, "step": step}, partial(self._log, held, step))

    def _log(self, metrics: Mapping[str, float], step: int | None) -> None:
        """In the thread that trains; the Trainer has ended before the last ones, so each is saved."""
        self._logger.log_metrics({**metrics}, step)
        self._logger.save()

    def log_hyperparams(self, params: object, *_: object, **__: object) -> None:
        """Nothing: they are free in form, and would be no part of what a lease names."""
        del params


class LedgerCallback(Callback):
    """Puts the run's noisy gradient in place of the batch's, and stops when the run is over.

    It logs ``epsilon``, the same named by its partition, and ``steps_left``, which are public, and nothing else.
    """

    def __init__(self, run: ModelRun) -> None:
        """``run`` is attached to the module's model and optimiser."""
        self._run = run

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Charge, get the key, open the data. Raises: Malformed, Refused, OSError, Unreachable."""
        del pl_module
        if trainer.accumulate_grad_batches != 1 or trainer.world_size != 1:
            raise Malformed("trainer", "must not accumulate batches, and has one device: a step is one noisy sum")
        if self._run.wants_leases:
            self._check_fenced(trainer)
        self._run.open()

    @staticmethod
    def _check_fenced(trainer: Trainer) -> None:
        """Raises: Malformed, for what would write before a lease names it."""
        for logger in trainer.loggers:
            if not isinstance(logger, FencedLogger):
                wrapped = f"FencedLogger(run, {type(logger).__name__}(...))"
                rule = f"would write before a lease names it: give the Trainer {wrapped}"
                raise Malformed("trainer.logger", rule)
        if trainer.progress_bar_callback is not None:
            raise Malformed("trainer.enable_progress_bar", "must be False: it would write before a lease names it")
        if trainer.checkpoint_callbacks:
            raise Malformed(
                "trainer.enable_checkpointing",
                "must be False: a model would be on the disk before a lease names it; use train.resume in the job",
            )

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Replace the gradient; without one the step that follows changes nothing. Raises: Malformed, OSError."""
        del pl_module
        _only(optimizer, self._run)
        if self._run.gradients() is None:
            trainer.should_stop = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        """Log the ε of the run, and stop before a step that was not charged."""
        left = self._run.remaining()
        epsilon = float(left.epsilon)
        shown = {f"epsilon on {left.epsilon.partition}": epsilon, "steps_left": float(left.steps)}
        pl_module.log_dict(shown, prog_bar=True, batch_size=1)
        # Under a name that does not differ from run to run, for callbacks that watch it.
        pl_module.log("epsilon", epsilon, batch_size=1)
        if left.steps == 0:
            trainer.should_stop = True


def _only(optimiser: Optimizer, run: ModelRun) -> None:
    theirs = {id(param) for group in optimiser.param_groups for param in group["params"]}
    if theirs != {id(param) for group in run.optimiser.param_groups for param in group["params"]}:
        raise Malformed("optimiser", "updates other parameters than the run is attached to")
