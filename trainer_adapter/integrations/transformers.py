"""The Trainer of Transformers under a charge: its loop and its schedulers; every gradient is the run's.

    with attach(scores, optimiser, loss, "job.toml") as run:
        arguments = TrainingArguments(..., max_steps=run.steps, max_grad_norm=0.0, report_to=[])
        trainer = Trainer(model, arguments, train_dataset=public, optimizers=(optimiser, None))
        LedgerTrainerCallback(run).add_to(trainer)
        trainer.train()

``scores`` is a module of the model's parameters that gives one tensor for inputs alone. The training set of the
Trainer is public: any gradient it gives is thrown away before the optimiser steps.

Of a run that leases its steps nothing that the Trainer logs leaves before a lease, or the post, names it: its printing
and its progress bar are taken from it, it may report to nothing and save nothing by itself, and what it logs goes
through ``report``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from ledger.wire.malformed import Malformed
from trainer_adapter.training.model_run import ModelRun


class LedgerTrainerCallback(TrainerCallback):
    """Puts the run's noisy gradient in place of the batch's, and stops when the run is over."""

    def __init__(self, run: ModelRun, report: Callable[[dict[str, object]], None] | None = None) -> None:
        """``run`` is attached to the parameters that the Trainer trains, and to its optimiser.

        Args:
            report: gets each line that the Trainer logs, once it may leave the run.
        """
        self._run, self._report, self._added = run, report, False

    def add_to(self, trainer: Trainer) -> None:
        """Join a Trainer, whose own printing and progress bar end."""
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(self)
        self._added = True

    def on_train_begin(self, args: TrainingArguments, *_: object, **__: object) -> None:
        """Charge, get the key, open the data. Raises: Malformed, Refused, OSError, Unreachable."""
        if args.gradient_accumulation_steps != 1 or args.world_size != 1:
            raise Malformed("arguments", "must not accumulate batches, and have one device: a step is one noisy sum")
        if self._run.wants_leases:
            if not self._added:
                raise Malformed(
                    "callbacks", "would print before a lease names it: use LedgerTrainerCallback(run).add_to(trainer)"
                )
            if args.report_to:
                raise Malformed(
                    "arguments.report_to", "must be []: give LedgerTrainerCallback a report, which waits for a lease"
                )
            if args.save_strategy != "no":
                raise Malformed(
                    "arguments.save_strategy",
                    'must be "no": a model would be on the disk before a lease names it; use train.resume in the job',
                )
        self._run.open()

    def on_pre_optimizer_step(self, args: object, state: object, control: TrainerControl, **_: object) -> None:
        """Replace the gradient; without one the step that follows changes nothing. Raises: Malformed, OSError."""
        del args, state
        if self._run.gradients() is None:
            control.should_training_stop = True

    def on_step_end(self, args: object, state: object, control: TrainerControl, **_: object) -> None:
        """Stop before a step that was not charged."""
        del args, state
        if self._run.remaining().steps == 0:
            control.should_training_stop = True

    def on_log(self, args: object, state: TrainerState, *_: object, logs: object = None, **__: object) -> None:
        """Add the ε of the whole run and its partition to what is logged: to the history, and for later callbacks."""
        del args
        epsilon = self._run.remaining().epsilon
        # The Trainer keeps a copy before it calls its callbacks.
        for line in (logs, *state.log_history[-1:]):
            if isinstance(line, dict):
                line |= {"epsilon": float(epsilon), "epsilon_partition": epsilon.partition}
        if self._report is not None and isinstance(logs, dict):
            texts = {str(name): repr(value) for name, value in logs.items()}
            self._run.output.put({"metrics": {**texts}, "step": state.global_step}, partial(self._report, {**logs}))
