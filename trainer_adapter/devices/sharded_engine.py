"""The DP-SGD engine of one rank: its own shard's draw and clipped sum, the sum of all ranks, and one noise for all.

A step releases what one process would: each unit enters on its own with the plan's probability, in the shard that holds
it, and the sum over shards is the sum over units. A unit is in one shard, so zero in its place moves one rank's sum by
at most C, and so the total. Each rank draws from keys of its own for batches and dropout, and regenerates the same
noise from a key that all share (``CsprngRandomness`` with a rank): the total and the noise have the same bits on each
rank, so that this is one release and not several.

Roundings, in ``float64`` (the bound is in ``engine``): a rank's sum is off by (b + m + 3) · u · n_r · bound, and adding
R of them rounds R - 1 times more; together at most (b + m + R + 2) · u · n · bound, which is held to the same limit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ledger.mechanisms.plan import Plan
from trainer_adapter.devices.rank_group import RankGroup
from trainer_adapter.devices.shards import Shard, ShardRecords, check_shards
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import MICROBATCH, Engine
from trainer_adapter.dpsgd.microbatch_total import is_compensated
from trainer_adapter.per_sample.record_loss import LossFn


class ShardedEngine(Engine):
    """The engine of one rank. Made on all ranks at once, and each step is taken by all at once."""

    def __init__(  # noqa: PLR0913, PLR0917 - as the engine, and the ranks
        self,
        ranks: RankGroup,
        plan: Plan,
        model: nn.Module,
        loss_fn: LossFn,
        held: ShardRecords,
        microbatch: int = MICROBATCH,
        **options: Any,  # noqa: ANN401 - as the engine takes them
    ) -> None:
        """As :class:`~trainer_adapter.dpsgd.engine.Engine`, on the records of one shard.

        Raises:
            Malformed: as there; for shards that are not each other's complement. RankLost.
        """
        self._ranks = ranks
        given = {**options, "users": held.users, "present": held.present}
        super().__init__(plan, model, loss_fn, (held.inputs, held.targets), microbatch, **given)
        check_shards([Shard.of_bytes(data) for data in ranks.gather(held.shard.to_bytes())])
        self._compensated = is_compensated(held.shard.units, microbatch, ranks.size)

    def total(self, step: int, randomness: CsprngRandomness) -> Tensor:
        """The clipped sum over the draws of all ranks, float64; private. Raises: as the engine's; RankLost."""
        broken: BaseException | None = None
        try:
            part = super().total(step, randomness).to("cpu", torch.float64)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - all ranks wait, whatever it is
            broken = error
        # Outside the handler, so that what every rank then raises does not carry this one's error, which may be of a
        # record, as its context: a traceback would show it.
        self._ranks.all_well(step, "" if broken is None else type(broken).__name__)
        if broken is not None:
            raise broken
        return self._ranks.total(part).to(self._device)
