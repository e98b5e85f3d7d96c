"""The engine of a plan with correlated noise: its groups of units, and noise that takes back what earlier noise added.

Step t of a run adds w_t with C w = z, so w_t = z_t - Σ c_i w_(t - i) over the ``bands`` - 1 steps before it
(``ledger.mechanisms.correlated`` has C, and why the plan's price holds). Those w are kept in float64, in memory alone:
a process that dies takes them with it, and its run is not resumed. The z are drawn as any engine draws its noise, each
from a step's own stream. Rounding the recursion to float64 changes w by parts in 10^15 of it, as the sum's does.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ledger.mechanisms.correlated import CorrelatedPlan, coefficients, column_norm
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import MICROBATCH, Engine, float_above
from trainer_adapter.dpsgd.poisson_sampler import draw
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.per_sample.record_loss import LossFn


class CorrelatedNoise:
    """The noise of one run, step after step, from independent normals."""

    def __init__(self, bands: int) -> None:
        """Of a run's beginning."""
        self._factors = [float(one) for one in coefficients(bands)[1:]]
        self._past: deque[Tensor] = deque(maxlen=bands - 1)

    def following(self, independent: Tensor) -> Tensor:
        """The next w, from this step's z, float64, shape (n,); z is used up."""
        for factor, past in zip(self._factors, reversed(self._past), strict=False):
            independent.sub_(past, alpha=factor)
        self._past.append(independent)
        return independent


class CorrelatedEngine(Engine):
    """The steps of one plan with correlated noise. One call of :meth:`step` is a round: a step of each group.

    Attributes:
        noise_std: standard deviation of the independent noise z, never below σ |c| C.
    """

    def __init__(
        self,
        plan: CorrelatedPlan,
        model: nn.Module,
        loss_fn: LossFn,
        data: Records,
        microbatch: int = MICROBATCH,
        **options: Any,  # noqa: ANN401 - as the engine takes them
    ) -> None:
        """As :class:`~trainer_adapter.dpsgd.engine.Engine`. Raises: Malformed."""
        super().__init__(plan.training, model, loss_fn, data, microbatch, **options)
        self.bands: Final = plan.bands
        # In place of that of independent noise.
        self.noise_std = float_above(plan.noise_multiplier * plan.clipping_norm * column_norm(plan.bands))
        self._noise = CorrelatedNoise(plan.bands)
        self._groups: list[NDArray[np.int64]] = []

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
            # Each unit's group is a coin of its own, thrown once in a run.
            group = stream.words(len(self._units)) % np.uint64(self.bands)
            self._groups = [np.flatnonzero(group == np.uint64(one)).astype(np.int64) for one in range(self.bands)]
        group_units = self._groups[(step - 1) % self.bands]
        return group_units[draw(stream, len(group_units), self._plan.sampling_probability)]
