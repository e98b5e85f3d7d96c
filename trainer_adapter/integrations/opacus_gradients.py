"""The gradients of an optimiser of Opacus: clipped and added up in full precision, and none without noise.

Opacus clips and adds noise to what needs gradients at that moment, in the type of each gradient, while the optimiser
beneath it changes the weights by every gradient that it finds. So a layer that is frozen between the backward pass and
the step would be updated by the gradient of the records themselves; and in bfloat16, which has 8 bits, norms and sums
are rounded so far that one record moves the sum by several times the clipping norm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import torch
from opacus.optimizers import DPOptimizer
from torch import nn

from trainer_adapter.integrations.opacus_refusal import Refusal

PRECISE: Final = frozenset({torch.float32, torch.float64})
"""The types that weights and the sum of clipped gradients may have."""


class FixedTerms:
    """What an optimiser has from its first step to its last: its clipping norms, and weights of full precision."""

    def __init__(self, optimiser: DPOptimizer) -> None:
        """As it is now. Raises: Refusal, for weights of fewer bits."""
        self._optimiser, self._norms = optimiser, _clipping_norms(optimiser)
        self.check()

    def check(self) -> None:
        """Raises: Refusal, for other norms, or weights in which a sum would be rounded too far."""
        # Parts that are clipped to another norm than the noise is scaled by would have less than was charged.
        if _clipping_norms(self._optimiser) != self._norms:
            raise Refusal("the clipping norm is the plan's from the first step to the last: it was changed")
        for param in self._optimiser.params:
            if param.dtype not in PRECISE:
                kind = str(param.dtype).removeprefix("torch.")
                rounded = f"weights in {kind} would round the sum by more than a record adds"
                raise Refusal(f"{rounded}: keep them in float32, and run the model's passes under torch.autocast")


def _clipping_norms(optimiser: DPOptimizer) -> tuple[float, ...]:
    """What records are clipped to: as a whole, and by an optimiser that clips by layers of each; no tensors."""
    return tuple(float(norm) for norm in (optimiser.max_grad_norm, *getattr(optimiser, "max_grad_norms", ())))


def widen(optimiser: DPOptimizer) -> None:
    """Give each record's gradients the type of the weights, and no record whose gradients are not finite any.

    Under autocast they are of fewer bits, and Opacus would compute norms in these; one record that is not finite would
    make every weight NaN.
    """
    params = optimiser.params
    samples = [sample.to(param.dtype) for sample, param in zip(optimiser.grad_samples, params, strict=True)]
    finite = torch.stack([sample.flatten(1).isfinite().all(dim=1) for sample in samples]).all(dim=0)
    for param, sample in zip(params, samples, strict=True):
        if not finite.all():
            sample[~finite] = 0
        param.grad_sample = sample


@contextmanager
def exact_products(optimiser: DPOptimizer) -> Iterator[None]:
    """Within it products and sums have all bits of their type, whatever the loop's own passes run in."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(optimiser.params[0].device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def drop_gradients(optimiser: DPOptimizer, kept: Collection[nn.Parameter] = ()) -> None:
    """Throw away the gradients of all that the optimiser may change, frozen or not, but for what is ``kept``."""
    names = {id(param) for param in kept}
    for group in optimiser.param_groups:
        for param in group["params"]:
            if id(param) not in names:
                param.grad = param.grad_sample = param.summed_grad = None
