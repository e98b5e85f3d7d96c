"""The run of rank 0: the charge, the data, the leases, the step log, the post and the model are its alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.devices.packed_trees import pack
from trainer_adapter.devices.rank_group import RankGroup
from trainer_adapter.devices.rank_terms import agree, terms_of
from trainer_adapter.devices.sharded_engine import ShardedEngine
from trainer_adapter.devices.shards import ShardRecords, split
from trainer_adapter.devices.step_orders import StepOrder, check_weights
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.run.checkpointing import state_bytes
from trainer_adapter.session.hardware_secret import hardware_secret
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.run_options import Loss, Options


class LeadingRun(ModelRun):
    """A charged run whose steps all ranks take together; made by ``attach_ranks``.

    Attributes:
        ranks: this rank and the others.
    """

    leads = True

    def __init__(  # noqa: PLR0913, PLR0917 - as a run of one process, and its ranks
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        loss: Loss,
        assignment: Assignment,
        options: Options,
        ranks: RankGroup,
    ) -> None:
        """Use :func:`~trainer_adapter.devices.attach_ranks.attach_ranks`."""
        self._secret, self.ranks, self._together = b"", ranks, False
        super().__init__(model, optimiser, loss, assignment, options)

    def open(self) -> None:
        """As :class:`ModelRun` does, with all ranks; of a run that was over already they learn so."""
        super().open()
        if self.over:
            for rank in range(1, self.ranks.size):
                self.ranks.send(rank, pack({}, {"over": True}))

    def check_before_charge(self) -> None:
        """See that all ranks run the same job. Raises: Malformed, RankLost."""
        agree(self.ranks, terms_of(self.assignment, self.model, self.optimiser, self.options))

    def new_randomness(self) -> CsprngRandomness:
        """Of a secret that all ranks get with the next step; batches and dropout are this rank's own."""
        self._secret = hardware_secret()
        return CsprngRandomness(self._secret, rank=0)

    def new_engine(self, loss: Loss, records: Records, users: Tensor | None, present: Tensor | None) -> Engine:
        """Give each rank its shard, and the state that training begins at; the engine of this rank's own."""
        own: ShardRecords | None = None
        start = state_bytes(self._at, self.model, self.optimiser, self.options.also)
        for rank, held in enumerate(split(records, users, present, self.ranks.size)):
            if not rank:
                own = held
                continue
            self.ranks.send(rank, self._packed(held))
            self.ranks.send(rank, start)
        assert own is not None
        engine = ShardedEngine(
            self.ranks, self.training, self.model, loss, own, self.options.microbatch, **self.options.engine_options
        )
        engine.traced.check_optimiser(self.optimiser)
        self._together = True
        return engine

    def _packed(self, held: ShardRecords) -> bytes:
        trees: dict[str, Any] = {"inputs": held.inputs, "targets": held.targets}
        trees |= {name: one for name in ("users", "present") if (one := getattr(held, name)) is not None}
        # Of the preprocessing, records have theirs by now, and the loss is weighed where it is computed.
        trees |= {f"constants.{place}": members for place, (_, members) in enumerate(self.constants.items)}
        kinds = [kind for kind, _ in self.constants.items]
        return pack(trees, {"kinds": kinds, "shard": [held.shard.first, held.shard.end, held.shard.units]})

    def _take(self, step: int, *, update: bool) -> None:
        try:
            self.renew_randomness()
            if self._secret:
                StepOrder(step, update, self._secret).sent(self.ranks)
                self._secret = b""
                check_weights(self.ranks, self.model, step - 1)
            else:
                StepOrder(step, update).sent(self.ranks)
            super()._take(step, update=update)
        except Malformed:
            if self.ranks.lost is not None:
                raise self.ranks.lost from None
            raise

    def _save_last(self) -> None:
        self._end_together()
        super()._save_last()

    def _end_together(self) -> None:
        """Tell the other ranks that the run is over, and hold their weights to this one's. Raises: RankLost."""
        if self._together:
            self._together = False
            StepOrder(0).sent(self.ranks)
            check_weights(self.ranks, self.model, self._at.step)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Post what ran, as :class:`ModelRun` does, and leave the group: without this rank no other goes on."""
        try:
            super().__exit__(kind, error, at)
        finally:
            self.ranks.close()


def constants_of(trees: Mapping[str, Any], kinds: list[str]) -> tuple[tuple[str, dict[str, Tensor]], ...]:
    """The constants that rank 0 sent."""
    return tuple((kind, trees[f"constants.{place}"]) for place, kind in enumerate(kinds))
