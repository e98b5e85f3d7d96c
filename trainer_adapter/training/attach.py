"""What a TDC writes: a model, an optimiser and a loss attached to a contract; the training loop stays theirs.

    with attach(model, optimiser, loss, "job.toml") as run:
        print(run.plan())
        for step in run:
            ...
    run.release()

Nothing is charged before the first step is asked for. From there on the order is fixed: charge, key, data, then one
private step each time round; whatever ends the loop, the block posts what ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from client.service.service import Service
from ledger.mechanisms.plan import USER
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import Randomness
from trainer_adapter.dpsgd.engine import PHYSICAL_BATCH, Engine
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.run.charged_run import ChargedRun, Remaining
from trainer_adapter.run.checkpointing import Place, Stateful
from trainer_adapter.session.loss_report import Foreseen
from trainer_adapter.session.model_release import Pause
from trainer_adapter.session.protocol import Say
from trainer_adapter.training.model_export import model_bytes
from trainer_adapter.training.preprocessing_constants import Prepared
from trainer_adapter.training.record_archive import arrays, users

Loss = Callable[[Tensor, Tensor], Tensor]
Take = Callable[[int, torch.optim.Optimizer, Randomness], None]
Read = Callable[[bytes, str], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run may be given besides model, optimiser, loss and assignment.

    Attributes:
        service: as the consumer calls it; the assignment's own if none is given.
        say: is told each stage in one line.
        read: from a partition's decrypted bytes, and its name for faults, to inputs and targets.
        example: public records of the same shape, on which the model is checked before anything is charged.
        resume: go on with the run of this assignment whose process died, if there is one.
        also: whatever else goes on with a resumed run, as schedulers, by name.
        pause: waits some seconds: with it :meth:`Run.release` stays until the providers have had their notice.
        physical_batch: records that pass through the model at once; users, where they are the units.
        records_per_user_max: of each user so many records train, where the plan's unit is the user; the archives of
            all partitions then say whose each record is. None where it is the record.
        engine: what else the engine is told, as ``compiled``.
    """

    service: Service | None = None
    say: Say | None = None
    read: Read = arrays
    example: tuple[Tensor, Tensor] | None = None
    resume: bool = False
    also: Mapping[str, Stateful] = field(default_factory=dict)
    pause: Pause | None = None
    physical_batch: int = PHYSICAL_BATCH
    records_per_user_max: int | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)


def attach(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    assignment: Assignment | Path | str,
    options: Options | None = None,
    **changes: Any,  # noqa: ANN401 - members of the assignment
) -> Run:
    """A run of ``model`` under a contract; nothing is asked of the service yet.

    Args:
        model: on its device; see :class:`~trainer_adapter.dpsgd.engine.Engine` for what it may hold.
        optimiser: any torch optimiser over exactly the trainable parameters.
        loss: from outputs and targets of one record to one number.
        assignment: which contract, data, plan and keys; or the file that says so.
        options: what else there is to say.
        changes: members of the assignment to put in place of the file's, as ``id="run-2"``.

    Raises:
        Malformed, OSError: for an assignment that cannot be read.
    """
    known = assignment if isinstance(assignment, Assignment) else Assignment.load(Path(assignment))
    return Run(model, optimiser, loss, replace(known, **changes), options or Options())


class Run:
    """One run; see :func:`attach`. A context manager, and an iterator over the steps it has taken."""

    def __init__(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, loss: Loss, assignment: Assignment, options: Options
    ) -> None:
        """Use :func:`attach`."""
        self.model, self.optimiser, self.options = model, optimiser, options
        self.charged = ChargedRun(assignment, options.service, options.say, resume=options.resume)
        self.prepared = Prepared()
        self._loss = loss
        self._engine: Take = _no_engine
        self._randomness = Randomness.fresh()
        self._saved = -1.0
        self._at = Place(0, ended=False)

    def plan(self) -> Foreseen:
        """What the run would get now: permitted or why not, its ε, the accounts afterwards. Nothing is recorded."""
        return self.charged.plan()

    def remaining(self) -> Remaining:
        """What is left of the run, and its loss so far. Raises: Malformed, before the first step is asked for."""
        return self.charged.remaining()

    def __iter__(self) -> Iterator[int]:
        """Take the steps; each has been taken when its number comes out, and the next begins when the loop goes on.

        Raises:
            Refused: if the charge or the key is. Malformed, OSError, Unreachable.
        """
        self.open()
        while (step := self._next(self.optimiser)) is not None:
            yield step

    def gradients(self) -> int | None:
        """Put the next step's noisy gradient into the parameters, for an optimiser that somebody else steps.

        Whatever gradient they held is thrown away. The step's number, or None when the run is over: then they hold
        none, and an optimiser that steps all the same changes nothing.

        Raises:
            Malformed: before :meth:`open`. OSError.
        """
        self.optimiser.zero_grad(set_to_none=True)
        return self._next(_Standing([*self.model.parameters()]))

    def _next(self, optimiser: torch.optim.Optimizer) -> int | None:
        if self.charged.over or self._at.ended:
            return None
        self._keep_now_and_then()
        step = self.charged.steps.take()
        if step is not None:
            # First, so that a step that breaks after its update is told of the model as well.
            self._at = Place(step, ended=False)
            self._step(step, optimiser)
            self.charged.done(step)
        return step

    def open(self) -> None:
        """Charge, get the key and open the data; the loop does it by itself. Once.

        Raises:
            Refused: if the charge or the key is. Malformed, OSError, Unreachable.
        """
        model, options, known = self.model, self.options, self.charged.assignment
        self._check_units()
        self.prepared = prepared = Prepared.of(known.preprocessing, self.charged.service, known.log)
        loss = prepared.loss(self._loss)
        if options.example is not None:
            inputs, targets = options.example
            self._checked(loss, (prepared.inputs(inputs), targets), torch.arange(len(targets)))
        opened = self.charged.open()
        if self.charged.keeper is not None and options.resume:
            self._at = self.charged.keeper.restore_run(model, self.optimiser, options.also)
        if self.charged.over:
            return
        parts = [options.read(data, ref) for ref, data in opened.items()]
        device = next(model.parameters()).device
        inputs = prepared.inputs(torch.cat([one for one, _ in parts])).to(device)
        targets = torch.cat([one for _, one in parts]).to(device)
        whose = None if options.records_per_user_max is None else users(opened)
        self._begin()
        self._engine = self._checked(loss, (inputs, targets), whose).step

    def _check_units(self) -> None:
        """The plan that is charged says who is clipped, and so does whoever attaches."""
        unit, bound = self.charged.assignment.plan.unit, self.options.records_per_user_max
        if (unit == USER) != (bound is not None):
            raise Malformed("records_per_user_max", f"must be given where the plan's unit is the user: it is {unit}")

    def _step(self, step: int, optimiser: torch.optim.Optimizer) -> None:
        try:
            self._engine(step, optimiser, self._randomness)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as fault:
            raise Malformed(
                "step", f"{step} failed ({type(fault).__name__}); what it said may quote a record"
            ) from None

    def _begin(self) -> None:
        steps = self.charged.begin()
        if self._at.step > steps.begun:
            raise Malformed(
                "steps.log", f"has {steps.begun} steps, but the saved model {self._at.step}: it was put back"
            )
        if self._at.ended:
            steps.taken = self._at.step

    def _checked(self, loss: Loss, records: tuple[Tensor, Tensor], users: Tensor | None) -> Engine:
        told, bound = dict(self.options.engine), self.options.records_per_user_max
        if bound is not None:
            told |= {"users": users, "records_per_user_max": bound}
        engine = Engine(self.charged.assignment.plan, self.model, loss, records, self.options.physical_batch, **told)
        engine.check_optimiser(self.optimiser)
        return engine

    def _keep_now_and_then(self) -> None:
        keeper = self.charged.keeper
        if keeper is None or not self.charged.steps.between_blocks or self._at.step != self.charged.steps.taken:
            return
        if time.monotonic() - self._saved >= keeper.every_s or self._saved < 0:
            keeper.keep_run(self._at, self.model, self.optimiser, self.options.also)
            self._saved = time.monotonic()

    @property
    def steps(self) -> int:
        """How many steps are charged."""
        return self.charged.assignment.plan.steps

    @property
    def taken(self) -> int:
        """How many steps the model has seen, those of a process that died among them."""
        return self._at.step

    def release(self) -> str:
        """After the block: ask whether the model may leave, and write it if it may; its SHA-256, or nothing.

        What may not leave, or not yet, is sealed in the run's folder; ``epsilon release`` asks again.

        Raises:
            Malformed: before a step was posted. Unreachable, OSError. Whatever ``pause`` raises.
        """
        steps = self._at.step
        data = model_bytes(self.model, self.charged.assignment, steps, self.charged.spent(steps))
        return self.charged.release(data, self.options.pause)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        """Post what ran, as :class:`ChargedRun` does; the last state is kept before."""
        if fault is None:
            try:
                self._keep_last()
            except BaseException as broken:
                self.charged.__exit__(type(broken), broken, broken.__traceback__)
                raise
        self.charged.__exit__(kind, fault, at)

    def _keep_last(self) -> None:
        keeper = self.charged.keeper
        if keeper is not None and not self.charged.over and self._engine is not _no_engine:
            # From here on no step is taken, so the steps of this place are all that ever were.
            self._at = Place(self.charged.steps.taken, ended=True)
            keeper.keep_run(self._at, self.model, self.optimiser, self.options.also)


class _Standing(torch.optim.Optimizer):
    """Stands where the engine expects an optimiser, and leaves the gradients to whoever steps the real one."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override] # it steps nothing
        """Nothing."""

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - torch's own signature
        """Nothing."""


def _no_engine(_step: int, _optimiser: torch.optim.Optimizer, _randomness: Randomness) -> None:
    raise AssertionError
