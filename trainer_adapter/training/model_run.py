"""A charged run of a model: its steps are those of our DP-SGD engine, between the caller's lines of a training loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType

import torch
from torch import Tensor, nn

from client.dataset_files.stored_partition import PartitionData
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import USER
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.layers.memory_shortage import NO_ROOM, is_out_of_memory
from trainer_adapter.layers.tensor_trees import count_records
from trainer_adapter.per_sample.model_checks import check_modules, trainable
from trainer_adapter.run.charged_run import Run
from trainer_adapter.run.checkpointing import Position
from trainer_adapter.run.declared_records import form_is_described
from trainer_adapter.run.state_digest import Digest, state_digest
from trainer_adapter.run.unit_bounds import unit_bounds
from trainer_adapter.session.join_terms import check_join
from trainer_adapter.session.protocol import Session
from trainer_adapter.session.watermark_key import METADATA, Watermark
from trainer_adapter.training.model_file import model_bytes
from trainer_adapter.training.model_mark import check_markable, fingerprint_of, mark
from trainer_adapter.training.preprocessing_constants import PreparedConstants
from trainer_adapter.training.record_join import join_partitions
from trainer_adapter.training.records_on_disk import Miscounted, at_most_its_own, records_of
from trainer_adapter.training.run_options import Loss, Options
from trainer_adapter.training.training_records import counted_records, read_users, stated_records


class ModelRun(Run):
    """A run whose steps our DP-SGD engine takes; see :func:`attach`. Iterating takes the steps."""

    leases_by_default = True
    joins = bounds_units = True

    def __init__(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, loss: Loss, assignment: Assignment, options: Options
    ) -> None:
        """Use :func:`attach`."""
        super().__init__(assignment, options.service, options.say, resume=options.resume)
        self.model, self.optimiser, self.options = model, optimiser, options
        # The model as it leaves, and as it is sealed.
        held = (tensor for tensor in model.state_dict().values() if isinstance(tensor, torch.Tensor))
        self.room_bytes += 2 * sum(tensor.nbytes for tensor in held)
        self.constants = PreparedConstants()
        self._loss = loss
        self._engine: Engine | None = None
        self._randomness, self._lease = self.new_randomness(), 0
        self._saved_at = -1.0
        self._at = Position(0, ended=False)
        self._watermark: Watermark | None = None

    @property
    def training(self) -> Plan:
        """What the engine's steps keep to."""
        return self.assignment.training

    def __iter__(self) -> Iterator[int]:
        """Take the steps; each has been taken when its number is yielded, the next begins when the loop goes on.

        Raises:
            Refused: if the charge or the key is. Malformed, OSError, Unreachable.
        """
        self.open()
        while (step := self._next_step(update=True)) is not None:
            yield step

    def gradients(self) -> int | None:
        """Put the next step's noisy gradient into the parameters, for a loop that steps the optimiser itself.

        Any gradient they held is thrown away. The step's number, or None when the run is over: then they hold none,
        and an optimiser that steps all the same changes nothing. Raises: Malformed, before :meth:`open`; OSError.
        """
        self.optimiser.zero_grad(set_to_none=True)
        return self._next_step(update=False)

    def _next_step(self, *, update: bool) -> int | None:
        if self.over or self._at.ended:
            return None
        self._save_if_due()
        if self._engine is not None:
            # Before a step begins: what its owner does to a model in the loop ends the run, and costs no step.
            self._engine.traced.check_unchanged()
            self._engine.traced.check_optimiser(self.optimiser)
        step = self.budget.next_step()
        if step is not None:
            # First, so that the model counts a step that breaks after its update.
            self._at = Position(step, ended=False)
            self._take(step, update=update)
            self.done(step)
        return step

    def open(self) -> None:
        """Charge, get the key and open the data; the loop does it by itself. Once.

        Raises:
            Refused: if the charge or the key is. Malformed, OSError, Unreachable.
        """
        model, options, assignment = self.model, self.options, self.assignment
        if (assignment.plan.unit == USER) != (options.records_per_user_max is not None):
            rule = f"must be given where the plan's unit is the user: it is {assignment.plan.unit}"
            raise Malformed("records_per_user_max", rule)
        self.constants = constants = self.load_constants()
        loss = constants.loss(self._loss)
        self._check_example(loss)
        self.check_before_charge()
        opened = self.open_data()
        if self.checkpoints is not None and options.resume:
            self._at = self.checkpoints.load_run(model, self.optimiser, options.also)
        if self.over:
            self._require_posted_model()
            return
        described = form_is_described(opened)
        try:
            opened, present = join_partitions(opened, assignment)
        except Malformed:
            self.count_as_begun()
            raise
        try:
            if present is None:
                present = counted_records(opened, unit_bounds(opened, assignment, self.service), options.read)
            self.make_ready(loss, opened, present)
        except Malformed:
            # No record shows by a form that is described. A run that may be resumed goes on with a file that fits.
            if described and self._budget is None and self.checkpoints is None:
                self.count_as_begun()
            raise
        if options.example is None and self._engine is not None:
            self._report(self._engine)

    def make_ready(self, loss: Loss, opened: Mapping[str, PartitionData], present: Tensor | None) -> None:
        """Read the records, begin the run, and make its engine. Raises: as :meth:`open`."""
        options = self.options
        records = self.read_all(opened)
        users = None if options.records_per_user_max is None else read_users(opened)
        self.begin_at_saved()
        self._engine = self.new_engine(loss, records, users, present)

    def check_before_charge(self) -> None:
        """What else is looked at before anything is charged. Raises: Malformed."""

    def new_engine(self, loss: Loss, records: Records, users: Tensor | None, present: Tensor | None) -> Engine:
        """The engine that takes the run's steps. Raises: Malformed."""
        return self._checked_engine(loss, records, users, present)

    def new_randomness(self) -> CsprngRandomness:
        """Of the run's beginning, or of a lease that begins."""
        return CsprngRandomness.fresh()

    def renew_randomness(self) -> None:
        """Draw keys anew where a lease begins: a copy of this process would use the same noise for other sums."""
        if self.budget.lease != self._lease:
            self._lease, self._randomness = self.budget.lease, self.new_randomness()

    def load_constants(self) -> PreparedConstants:
        """The constants of the preprocessing. Raises: as :meth:`PreparedConstants.load`."""
        assignment = self.assignment
        return PreparedConstants.load(assignment.preprocessing, self.service, assignment.log)

    def read_all(self, opened: Mapping[str, PartitionData]) -> Records:
        """The records of all partitions, as the model sees them.

        Raises: as :func:`records_of`; Miscounted, of a reader that makes several of one. Refused, Unreachable.
        """
        read = at_most_its_own(self.options.read, lambda ref: stated_records(self.service.partition(ref)))
        try:
            return records_of(opened, read, self.constants.inputs, next(self.model.parameters()).device)
        except Miscounted:
            # How many a reader makes of a record may depend on it.
            self.count_as_begun()
            raise

    def begin_at_saved(self) -> None:
        """Begin the run where its saved model is. Raises: as :meth:`begin`; Malformed, for a step log put back."""
        budget = self.begin()
        if self._at.step > budget.steps_durable:
            rule = f"has {budget.steps_durable} steps, but the saved model {self._at.step}: it was put back"
            raise Malformed("steps.log", rule)
        if self._at.ended:
            budget.taken = self._at.step

    def check_before_keys(self, session: Session) -> None:
        """Look for the marks of other runs in the weights, and get the key of this run's own. Raises: Malformed."""
        weights = fingerprint_of(self.model.state_dict().values())
        if weights is not None:
            session.check_bases(weights)
        if self.assignment.watermark:
            self._watermark = session.watermark()

    def _require_posted_model(self) -> None:
        """Raises: Malformed, if the post names another model; or none, of a run that leased its steps."""
        if self.checkpoints is not None:
            kept, posted = self.checkpoints.load_model(), self.session.charge_status.model_posted()
            if (posted or self.session.identity.leases) and posted != c.digest(kept):
                raise Malformed("run", "was posted without the model of this folder: nothing of it leaves")

    def check(self) -> None:
        """Hold model, loss and optimiser to the engine's terms on the public example; nothing is sent to be recorded.

        Raises:
            Malformed: naming what does not fit. OSError, Refused, Unreachable.
        """
        check_join(self.assignment, self.service)
        self.constants = self.load_constants()
        self._check_example(self.constants.loss(self._loss))

    def _check_example(self, loss: Loss) -> None:
        if self.assignment.watermark:
            check_markable(self.model)
        if self.options.example is None:
            # What takes no record to see; without an example the rest is seen once the records are there.
            if not self.model.training:
                self.model.train()
            trainable(self.model)
            check_modules(self.model)
        else:
            inputs, targets = self.options.example
            users = torch.arange(count_records(targets, "targets"))
            self._report(self._checked_engine(loss, (self.constants.inputs(inputs), targets), users))

    def _take(self, step: int, *, update: bool) -> None:
        assert self._engine is not None
        self.renew_randomness()
        try:
            if update:
                self._engine.step(step, self.optimiser, self._randomness)
            else:
                self._engine.set_gradients(step, self._randomness)
        except MemoryError:
            raise Malformed("microbatch", f"{NO_ROOM} at step {step}: take a smaller one") from None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model may raise anything, and quote a record
            if is_out_of_memory(error):
                # Of the optimiser: what a microbatch needs is reported by the engine.
                raise Malformed("optimiser", f"{NO_ROOM} at step {step}, with what it keeps of each weight") from None
            raise Malformed("step", f"{step} failed ({type(error).__name__}); its message may quote a record") from None

    def _checked_engine(
        self, loss: Loss, records: Records, users: Tensor | None, present: Tensor | None = None
    ) -> Engine:
        given = {**self.options.engine_options, "present": present}
        if self.options.records_per_user_max is not None:
            given["users"] = users
        engine = Engine(self.training, self.model, loss, records, self.options.microbatch, **given)
        engine.traced.check_optimiser(self.optimiser)
        return engine

    def _report(self, engine: Engine) -> None:
        for line in engine.notices:
            self.say(line)

    def _save_if_due(self) -> None:
        store = self.checkpoints
        if store is None or not self.budget.at_block_boundary or self._at.step != self.budget.taken:
            return
        if time.monotonic() - self._saved_at >= store.every_s or self._saved_at < 0:
            store.save_run(self._at, self.model, self.optimiser, self.options.also)
            self._saved_at = time.monotonic()

    def snapshot(self) -> Digest:
        """Copy model and optimiser, to hash them."""
        return state_digest(self.model, self.optimiser)

    @property
    def taken(self) -> int:
        """How many steps the model has seen, those of a process that died among them."""
        return self._at.step

    def release(self) -> str:
        """After the block: request the model's release, and write it if it may leave; its SHA-256, or nothing.

        What may not leave, or not yet, is sealed in the run's folder; ``epsilon release`` requests it again.

        Raises:
            Malformed: before a step was posted. Unreachable, OSError. Whatever ``pause`` raises.
        """
        if self.over and self.checkpoints is not None:
            self.model_data = self.checkpoints.load_model()
        return self.release_model(self.model_data or self._model_bytes(), self.options.pause)

    def _model_bytes(self) -> bytes:
        return model_bytes(self.model, self.assignment, self._at.step, self.privacy, self.metadata)

    @property
    def metadata(self) -> dict[str, str]:
        """What the model's file names beside the run: the commitment to the key of its mark."""
        return {} if self._watermark is None else {METADATA: self._watermark.commitment}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Post what ran, as :class:`Run` does; the last state is saved before."""
        if error is None:
            try:
                self._save_last()
            except BaseException as broken:
                super().__exit__(type(broken), broken, broken.__traceback__)
                raise
        super().__exit__(kind, error, at)

    def _save_last(self) -> None:
        if self.checkpoints is not None and not self.over and self._engine is not None:
            # From here on no step is taken, so the steps of this position are all that ever were.
            self._at = Position(self.budget.taken, ended=True)
            self.checkpoints.save_run(self._at, self.model, self.optimiser, self.options.also)
        if self._engine is not None:
            if self._watermark is not None:
                mark(self.model, self._watermark.key)
            # What leaves is what the post names, whatever is done to the model afterwards.
            self.model_data = self._model_bytes()
            if self.checkpoints is not None:
                self.checkpoints.save_model(self.model_data)
