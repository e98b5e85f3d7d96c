"""The run of every rank but 0: it holds a shard, takes each step that rank 0 takes, and sends nothing to the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import torch
from torch import nn

from ledger.wire.malformed import Malformed
from trainer_adapter.devices.leading_run import constants_of
from trainer_adapter.devices.packed_trees import unpack
from trainer_adapter.devices.rank_group import RankGroup, RankLost
from trainer_adapter.devices.rank_terms import agree, terms_of
from trainer_adapter.devices.sharded_engine import ShardedEngine
from trainer_adapter.devices.shards import Shard, ShardRecords
from trainer_adapter.devices.step_orders import StepOrder, check_weights
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.job.signals import stop_signals
from trainer_adapter.layers.memory_shortage import NO_ROOM, is_out_of_memory
from trainer_adapter.run.checkpointing import restore_state
from trainer_adapter.run.core_dumps import leave_no_core
from trainer_adapter.training.preprocessing_constants import PreparedConstants
from trainer_adapter.training.run_options import Loss, Options


class FollowingRun:
    """What a rank beside rank 0 iterates over; made by :func:`~trainer_adapter.devices.attach_ranks.attach_ranks`.

    Attributes:
        model: the same bits as rank 0's after each step.
        taken: how many steps the model has seen.
        over: whether rank 0 has ended the run.
        ranks: this rank and the others.
    """

    leads = False

    def __init__(  # noqa: PLR0913, PLR0917 - as the run of rank 0
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        loss: Loss,
        assignment: Assignment,
        options: Options,
        ranks: RankGroup,
    ) -> None:
        """Use :func:`~trainer_adapter.devices.attach_ranks.attach_ranks`."""
        self.model, self.optimiser, self.assignment, self.options, self.ranks = (
            model,
            optimiser,
            assignment,
            options,
            ranks,
        )
        self.taken, self.over = 0, False
        self._loss = loss
        self._engine: ShardedEngine | None = None
        self._randomness: CsprngRandomness | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __iter__(self) -> Iterator[int]:
        """Take the steps that rank 0 takes. Raises: Malformed, RankLost."""
        self.open()
        while (step := self._next_step(update=True)) is not None:
            yield step

    def open(self) -> None:
        """Wait for rank 0's charge and for this rank's shard; iterating does it by itself. Once.

        Raises:
            Malformed: where the ranks disagree, or the model is refused. RankLost.
        """
        # Before a shard comes: as the run of rank 0 does before it has keys.
        leave_no_core()
        agree(self.ranks, terms_of(self.assignment, self.model, self.optimiser, self.options))
        # A signal to all of a run's processes is rank 0's to act upon: this one ends when that one says so.
        self._stack.enter_context(stop_signals())
        trees, about = unpack(self.ranks.receive())
        if about.get("over"):
            self.over = True
            return
        constants = PreparedConstants(constants_of(trees, about["kinds"]))
        at = restore_state(self.ranks.receive(), self.model, self.optimiser, self.options.also)
        self.taken = at.step
        optional = {name: trees.get(name) for name in ("users", "present")}
        held = ShardRecords(Shard(*about["shard"]), trees["inputs"], trees["targets"], **optional)
        plan, loss, options = self.assignment.training, constants.loss(self._loss), self.options
        self._engine = ShardedEngine(
            self.ranks, plan, self.model, loss, held, options.microbatch, **options.engine_options
        )
        self._engine.traced.check_optimiser(self.optimiser)

    def gradients(self) -> int | None:
        """As :meth:`~trainer_adapter.training.model_run.ModelRun.gradients`, once rank 0 takes the step."""
        self.optimiser.zero_grad(set_to_none=True)
        return self._next_step(update=False)

    def release(self) -> str:
        """Rank 0 requests the model's release; nothing here."""
        return ""

    def _next_step(self, *, update: bool) -> int | None:
        if self.over:
            return None
        if self._engine is None:
            raise Malformed("run", "is not open")
        self._engine.traced.check_unchanged()
        self._engine.traced.check_optimiser(self.optimiser)
        order = StepOrder.received(self.ranks)
        if not order.step:
            self._end()
            return None
        if order.update != update:
            raise Malformed("devices", f"rank {self.ranks.rank} runs another loop than rank 0: one steps the optimiser")
        if order.secret:
            self._randomness = CsprngRandomness(order.secret, rank=self.ranks.rank)
            check_weights(self.ranks, self.model, self.taken)
        self._take(order.step, update=update)
        self.taken = order.step
        return order.step

    def _take(self, step: int, *, update: bool) -> None:
        engine, randomness = self._engine, self._randomness
        assert engine is not None
        assert randomness is not None
        try:
            if update:
                engine.step(step, self.optimiser, randomness)
            else:
                engine.set_gradients(step, randomness)
        except RankLost:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model may raise anything, and quote a record
            if is_out_of_memory(error):
                raise Malformed("microbatch", f"{NO_ROOM} at step {step}: take a smaller one") from None
            raise Malformed("step", f"{step} failed ({type(error).__name__}); its message may quote a record") from None

    def _end(self) -> None:
        self.over = True
        check_weights(self.ranks, self.model, self.taken)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave the group; after a loop that ended by itself, once rank 0 has ended it too.

        Raises:
            RankLost: if rank 0 goes on, or broke.
        """
        try:
            if error is None and self._engine is not None and not self.over:
                order = StepOrder.received(self.ranks)
                if order.step:
                    rule = f"rank {self.ranks.rank} has left the loop, and rank 0 goes on with step {order.step}"
                    raise RankLost("devices", rule)
                self._end()
        finally:
            self._stack.close()
            self.ranks.close()
