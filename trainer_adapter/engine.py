"""DP-SGD (Abadi et al. 2016, arXiv 1607.00133, Algorithm 1): clipped per-record gradients in a noisy sum.

One step releases ((sum of clip(g_i) over one Poisson draw) + N(0, (σC)²)) / E and nothing else:
σ, C and E come from the plan, E is public. Per-record gradients come from ``torch.func``,
each record alone in a batch of one, so that no layer could mix two of them even if it would.

Why removing a record (or putting zero in its place) moves the sum by at most C, in floating point too. Let u
= 2^-53, P parameters, n records drawn, b places in a physical batch. Gradients are float32 and become float64
unchanged. Their norm is off by a factor within 1 ± (P + 2)u, their weight min(1, bound / norm) by 1 ± 2u;
with P <= 2^32 a weighted gradient is at most bound · (1 + 2^-20). Products and additions are off by at most
(b + n/b + 1) · u · n · bound in norm in each of the two neighbours' sums (Higham 2002, section 4.2). With
bound = C(1 - 2^-16) and (b + n/b + 1) · n <= 2^34, which is refused otherwise, all of it stays below C. What
it leaves out: batched kernels may round a record's own gradient differently by its place in the batch.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ledger.malformed import Malformed
from trainer_adapter.admissible import check_modules, check_on_dummies, trainable
from trainer_adapter.sampler import draw, physical_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledger.plan import Plan
    from trainer_adapter.randomness import Randomness
    from trainer_adapter.sampler import PhysicalBatch

MARGIN: Final = Fraction(1, 1 << 16)
ROUNDINGS_MAX: Final = 1 << 34
PARAMETERS_MAX: Final = 1 << 32
PHYSICAL_BATCH: Final = 64


def float_above(number: Fraction) -> float:
    """The least float64 that is at least ``number``."""
    near = float(number)
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)


def float_below(number: Fraction) -> float:
    """The greatest float64 that is at most ``number``."""
    near = float(number)
    return near if Fraction(near) <= number else math.nextafter(near, -math.inf)


class Engine:
    """The steps of one plan on one model and one partition's records.

    Attributes:
        bound: what each record's gradient is clipped to, in L2; a little below the plan's clipping norm.
        noise_std: standard deviation of the noise on each coordinate of the sum, never below σC.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss_fn: Callable[[Tensor, Tensor], Tensor],
        data: tuple[Tensor, Tensor],
        physical_batch: int = PHYSICAL_BATCH,
    ) -> None:
        """Check everything that can be checked before the first record is looked at.

        Args:
            plan: sampler, clipping, noise; the same value that was charged. model: put into training mode;
            its parameters are float32 and on one device. loss_fn: from outputs (1, ...) and targets (1, ...)
            of one record to one number. data: inputs (records, ...) and targets (records, ...); moved to the
            model's device batch by batch. physical_batch: records that pass through the model at once.

        Raises:
            Malformed: for a model this engine cannot keep its promise on, or data that does not fit together.
        """
        inputs, targets = data
        if len(inputs) != len(targets):
            raise Malformed("data", f"has {len(inputs)} inputs but {len(targets)} targets")
        if physical_batch < 1:
            raise Malformed("physical_batch", "must be at least 1")
        if (physical_batch + len(inputs) // physical_batch + 2) * len(inputs) > ROUNDINGS_MAX:
            raise Malformed("physical_batch", f"is too small for {len(inputs)} records: sums would round too often")
        self._plan, self._model, self._loss_fn, self._data = plan, model, loss_fn, data
        self._physical_batch = physical_batch
        self._parameters = trainable(model)
        self.size: Final = sum(value.numel() for value in self._parameters.values())
        if self.size > PARAMETERS_MAX:
            raise Malformed("model", "has too many parameters for the norm's margin")
        self._device = next(iter(self._parameters.values())).device
        self.bound: Final = float_below(plan.clipping_norm * (1 - MARGIN))
        self.noise_std: Final = float_above(plan.noise_multiplier * plan.clipping_norm)
        model.train()
        check_modules(model)
        check_on_dummies(model, loss_fn, data)
        self._per_record = vmap(grad(self._loss_of_one), in_dims=(None, None, 0, 0), randomness="error")
        self._check_vmap()

    def check_optimiser(self, optimiser: torch.optim.Optimizer) -> None:
        """Refuse an optimiser over tensors that get no noisy gradient. Raises: Malformed."""
        ours = {id(value) for value in self._parameters.values()}
        theirs = [value for group in optimiser.param_groups for value in group["params"]]
        if any(id(value) not in ours for value in theirs):
            raise Malformed("optimiser", "updates a tensor that is no trainable parameter of the model")
        if len(theirs) != len(ours):
            raise Malformed("optimiser", "leaves out a trainable parameter of the model: freeze it instead")

    def step(self, step: int, optimiser: torch.optim.Optimizer, randomness: Randomness) -> None:
        """One logical step: draw, sum, noise, update. Counted from 1; an empty draw is a step like any other.

        Raises:
            Reused: if this step's randomness was used before.
        """
        drawn = draw(randomness.stream("sampler", step), len(self._data[0]), self._plan.sampling_probability)
        total = self.clipped_sum(physical_batches(drawn, self._physical_batch))
        noise = randomness.stream("noise", step).normals((self.size,))
        noisy = total + self.noise_std * torch.from_numpy(noise).to(self._device)
        self._assign((noisy / self._plan.batch_size_expected).to(torch.float32))
        try:
            optimiser.step()
        finally:
            optimiser.zero_grad(set_to_none=True)

    def per_record_gradients(self, batch: PhysicalBatch) -> Tensor:
        """Gradients of a physical batch before clipping, shape (places, parameters), float64.

        Places the mask excludes hold the gradient of a public dummy (zeros), never of a record.
        """
        mask = torch.from_numpy(batch.mask)
        places = torch.from_numpy(batch.indices[batch.mask])
        inputs, targets = (self._gather(part, places, mask) for part in self._data)
        state = {name: value.detach() for name, value in self._parameters.items()}
        gradients: dict[str, Tensor] = self._per_record(state, self._rest(), inputs, targets)
        flat = [gradients[name].reshape(len(mask), -1) for name in self._parameters]
        return torch.cat(flat, dim=1).to(torch.float64)

    def clipped_sum(self, batches: Iterable[PhysicalBatch]) -> Tensor:
        """Sum of the clipped gradients of the records drawn, shape (parameters,), float64; private.

        A record whose gradient has a value that is not finite gives zero: one bad record neither leaks by
        turning the model into NaN nor stops the run.
        """
        total = torch.zeros(self.size, dtype=torch.float64, device=self._device)
        for batch in batches:
            gradients = self.per_record_gradients(batch)
            norms = torch.linalg.vector_norm(gradients, dim=1)
            finite = torch.isfinite(norms)
            gradients = torch.where(finite[:, None], gradients, 0.0)
            weights = self.bound / torch.clamp(torch.where(finite, norms, self.bound), min=self.bound)
            # The mask comes after clipping: what fills a batch up never counts, whatever its gradient.
            weights = torch.where(torch.from_numpy(batch.mask).to(self._device), weights, 0.0)
            total += weights @ gradients
        return total

    def _gather(self, part: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        filled = torch.zeros((len(mask), *part.shape[1:]), dtype=part.dtype, device=part.device)
        filled[mask.to(part.device)] = part[places.to(part.device)]
        return filled.to(self._device)

    def _rest(self) -> dict[str, Tensor]:
        frozen = {name: value for name, value in self._model.named_parameters() if name not in self._parameters}
        return {**frozen, **dict(self._model.named_buffers())}

    def _loss_of_one(self, state: dict[str, Tensor], rest: dict[str, Tensor], *record: Tensor) -> Tensor:
        inputs, target = (part.unsqueeze(0) for part in record)
        outputs: Any = functional_call(self._model, {**rest, **state}, (inputs,))
        return self._loss_fn(outputs, target).sum()

    def _check_vmap(self) -> None:
        state = {name: value.detach() for name, value in self._parameters.items()}
        dummies = (part.new_zeros((2, *part.shape[1:])).to(self._device) for part in self._data)
        try:
            self._per_record(state, self._rest(), *dummies)
        except RuntimeError as fault:
            reason = (str(fault).splitlines() or ["no reason given"])[0][:200]
            raise Malformed("model", f"gives no gradients record by record: {reason}") from fault

    def _assign(self, flat: Tensor) -> None:
        start = 0
        for value in self._parameters.values():
            value.grad = flat[start : start + value.numel()].view_as(value).clone()
            start += value.numel()
