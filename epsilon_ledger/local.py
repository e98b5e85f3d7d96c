"""One person, one process, no service: a model trained on one's own records under a budget that a book keeps.

    from epsilon_ledger.local import attach

    with attach(model, optimiser, loss, (inputs, targets), budget="3", book="book.sqlite") as run:
        print(run)
        for step in run:
            ...

Engine, rules, policy gate and book are those of the service. docs/local.md says what this gives, and what it does not.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from epsilon_ledger.local_book import RELATION, LocalBook, LocalRefused
from epsilon_ledger.record_names import RecordNames
from ledger.accounting.calibration import calibrate_noise
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.plan import Plan
from ledger.wire.exact_numbers import ceil_decimal, format_number, parse_positive
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.job.step_log import StepLog
from trainer_adapter.layers.tensor_trees import TensorTree, count_records, tree_of
from trainer_adapter.run.step_budget import StepBudget
from trainer_adapter.training.public_set import read_public_set

__all__ = ["LocalRefused", "LocalRun", "attach", "read_table"]

BLOCK_STEPS: Final = 10
BATCH: Final = 256
RUN_SHARE: Final = 4
"""A run that names no ε is given the budget divided by this."""
Loss = Callable[[Any, Any], Tensor]


def attach(  # noqa: PLR0913 - the numbers of a run
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    data: tuple[TensorTree, TensorTree],
    *,
    budget: str,
    book: Path | str,
    epsilon: str | None = None,
    delta: str = "0.00001",
    steps: int = 100,
    batch_size: int | None = None,
    clipping_norm: str = "1",
    identities: Sequence[str] | None = None,
) -> LocalRun:
    """A run of ``model`` on one's own records; nothing is charged before the first step.

    Args:
        model: on its device. optimiser: over exactly what trains. loss: of one record's outputs and targets.
        data: inputs (records, ...) and targets (records, ...), each a tensor or a dictionary of tensors.
        budget: the ε that all runs on a record may reveal together; fixed for the life of the book.
        book: the book's file, made with its keys beside it if it is not there.
        epsilon: of this run; a quarter of the budget if not given.
        delta: of budget and run; fixed for the life of the book.
        steps: how many there are. batch_size: records in a step on average; 256, or all if there are fewer.
        clipping_norm: the L2 bound on one record's gradient.
        identities: one text for each record, each once: in another run the same identity is the same record. Without
            it, a record is its numbers, and one that is there several times is protected as all of these.

    Raises:
        Malformed, OSError, BookUnusable: for what cannot be read. LocalRefused.
    """
    inputs, targets = tree_of(data[0], "inputs"), tree_of(data[1], "targets")
    count, others = count_records(inputs, "inputs"), count_records(targets, "targets")
    if not count or count != others:
        raise Malformed("data", f"has {count} inputs and {others} targets: must be as many, and at least one")
    if identities is None:
        names = RecordNames.of_numbers((inputs, targets), count)
    else:
        names = RecordNames.of_identities(identities, count)
    total, share = parse_positive(budget, "budget"), parse_positive(delta, "delta")
    wanted = parse_positive(epsilon, "epsilon") if epsilon is not None else total / RUN_SHARE
    if wanted > total:
        raise Malformed("epsilon", f"must be at most the budget of {budget}")
    if share >= 1:
        raise Malformed("delta", "must be less than 1")
    if batch_size is not None and batch_size < 1:
        raise Malformed("batch_size", "must be at least 1")
    batch = min(count, batch_size or BATCH)
    probability = Fraction(-(-batch * 10**6 // count), 10**6)
    noise = calibrate_noise(probability, steps, wanted, share, RELATION, names.most)
    plan = Plan(probability, noise, parse_positive(clipping_norm, "clipping_norm"), steps, batch)
    engine = Engine(plan, model, loss, (inputs, targets))
    engine.traced.check_optimiser(optimiser)
    return LocalRun(engine, optimiser, plan, names, Path(book), total, share)


def read_table(path: Path | str, schema: Path | str | None = None) -> tuple[TensorTree, TensorTree]:
    """Inputs and targets of a table or an archive, as ``epsilon dataset seal`` reads it. Raises: Malformed, OSError.

    Args:
        path: CSV, Parquet, npz, or a folder of tables with its own schema.
        schema: of a table (docs/data-format.md): its target, and what text and empty cells become.
    """
    try:
        return read_public_set(Path(path), None if schema is None else Path(schema))
    except Malformed as error:
        # An archive's fields are of a job's public set there.
        raise Malformed("data" if error.field == "test" else error.field, error.rule) from None


class LocalRun:
    """A run; iterating takes its steps, and the end of the block posts what ran.

    Attributes:
        epsilon: of the whole run, whichever of its steps ran.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a run is made of
        self,
        engine: Engine,
        optimiser: torch.optim.Optimizer,
        plan: Plan,
        names: RecordNames,
        book: Path,
        budget: Fraction,
        delta: Fraction,
    ) -> None:
        """Use :func:`attach`."""
        self._engine, self._optimiser, self.plan = engine, optimiser, plan
        self._names, self._path, self._budget, self._delta = names, book, budget, delta
        self.epsilon: Final = reported_epsilon(group_privacy(names.most, plan.whole), delta, RELATION)
        self.id: Final = f"run-{secrets.token_hex(8)}"
        self._steps: StepBudget | None = None
        self._log: StepLog | None = None

    def __str__(self) -> str:
        """What the run costs and what that means."""
        return (
            f"{self.id}: ε {ceil_decimal(self.epsilon, 4)} of a budget of ε {format_number(self._budget)} at δ "
            f"{format_number(self._delta)}, unit record, {RELATION}, rule renyi, Level 1 (one budget for everyone); "
            "not given: other parties, attestation, a key that is withheld"
        )

    def __enter__(self) -> Self:
        """Open the book. Raises: Malformed, OSError, BookUnusable."""
        self._book = LocalBook(self._path, self._budget, self._delta)
        return self

    def __iter__(self) -> Iterator[int]:
        """Charge, once, and take the steps. Raises: LocalRefused, if the budget does not hold the run; OSError."""
        if self._steps is not None:
            raise Malformed("run", "was charged already: attach again for another run")
        partitions = self._book.partitions(self._names)
        folder = self._path.with_name(f"{self._path.name}.runs")
        folder.mkdir(mode=0o700, exist_ok=True)
        self._log = log = StepLog.create(folder / f"{self.id}.log", self.id, self.plan, BLOCK_STEPS)
        self._room = self._book.charge(self.id, self.plan, partitions, self._names.most)
        self._steps = StepBudget(self.plan, log)
        randomness = CsprngRandomness.fresh()
        while (step := self._steps.next_step()) is not None:
            self._engine.step(step, self._optimiser, randomness)
            yield step

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Post the steps that ran, or all that were begun if something broke. Raises: LocalRefused, OSError."""
        try:
            if self._steps is not None:
                self._steps.close()
                self._book.post(self.id, self._room, self._steps.taken if error is None else self._steps.steps_durable)
        finally:
            if self._log is not None:
                self._log.close()
            self._book.close()
