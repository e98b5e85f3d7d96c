"""The engine of a plan with correlated noise: its groups of units, and noise that takes back what earlier noise added.

Step t of a run adds w_t, of C w = z (``noise_recursion``). What it takes is kept in float64, in memory alone: a
process that dies takes it with it, and its run is not resumed. The z are drawn as any engine draws its noise, each
from a step's own stream.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.correlated.noise_recursion import NoiseRecursion
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import MICROBATCH, Engine, float_above
from trainer_adapter.dpsgd.poisson_sampler import draw
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.per_sample.record_loss import LossFn


class CorrelatedEngine(Engine):
    """The steps of one plan with correlated noise. One call of :meth:`step` is a round: a step of each group.

    Attributes:
        noise_std: standard deviation of the independent noise z, never below σ |c| C.
    """

    def __init__(  # noqa: PLR0913 - as the engine's, and whose each record is
        self,
        plan: CorrelatedPlan,
        model: nn.Module,
        loss_fn: LossFn,
        data: Records,
        microbatch: int = MICROBATCH,
        *,
        owners: Tensor | None = None,
        **options: Any,  # noqa: ANN401 - as the engine takes them
    ) -> None:
        """As :class:`~trainer_adapter.dpsgd.engine.Engine`.

        Args:
            owners: whose each record is, shape (records,), any integers: those of one owner are in one group. None:
                each is its own.

        Raises:
            Malformed: as there, and for owners that do not fit the records.
        """
        super().__init__(plan.training, model, loss_fn, data, microbatch, **options)
        self.bands: Final = plan.bands
        # In place of that of independent noise.
        self.noise_std = float_above(plan.independent_noise)
        self._noise = NoiseRecursion.of(plan.matrix)
        self._groups: list[NDArray[np.int64]] = []
        if owners is not None and owners.shape != (len(self._units),):
            raise Malformed("owners", f"must be one for each of {len(self._units)} records")
        self._owners = np.arange(len(self._units)) if owners is None else np.unique(owners, return_inverse=True)[1]

    def step(self, step: int, optimiser: torch.optim.Optimizer, randomness: CsprngRandomness) -> None:
        """One round, counted from 1: ``bands`` logical steps, each with its update. Raises: as the engine's."""
        for inner in range(self.bands):
            super().step((step - 1) * self.bands + inner + 1, optimiser, randomness)

    def set_gradients(self, step: int, randomness: CsprngRandomness) -> None:
        """The noisy mean of one logical step, which takes back a part of earlier noise. Raises: as the engine's."""
        total = self.total(step, randomness)
        normals = torch.from_numpy(randomness.stream("noise", step).normals((self.size,)))
        noise = self._noise.following(normals.mul_(self.noise_std))
        mean = (total.to("cpu", torch.float64) + noise) / self._plan.batch_size_expected
        self._assign(mean.to(torch.float32).to(self._device))

    def draw(self, step: int, randomness: CsprngRandomness) -> NDArray[np.int64]:
        """The units of one logical batch, of its step's group alone; private. Raises: NonceReused."""
        stream = randomness.stream("sampler", step)
        if not self._groups:
            # Each owner's group is a coin of its own, thrown once in a run.
            coins = stream.words(int(self._owners.max(initial=-1)) + 1) % np.uint64(self.bands)
            group = coins[self._owners]
            order = np.argsort(group, kind="stable").astype(np.int64)
            ends = np.searchsorted(group[order], np.arange(1, self.bands, dtype=np.uint64))
            self._groups = np.split(order, ends)
        group_units = self._groups[(step - 1) % self.bands]
        return group_units[draw(stream, len(group_units), self._plan.sampling_probability)]
