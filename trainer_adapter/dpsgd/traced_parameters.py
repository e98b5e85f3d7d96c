"""The parameters that an engine traced: what a run trains until it ends, by identity."""

from __future__ import annotations

import torch
from torch import nn

from ledger.wire.malformed import Malformed


class TracedParameters:
    """All parameters of a model as they were when it was traced: which tensors, and which of them train."""

    def __init__(self, model: nn.Module) -> None:
        """Note them."""
        self._model = model
        self._known = {name: (value, value.requires_grad) for name, value in model.named_parameters()}

    def check_optimiser(self, optimiser: torch.optim.Optimizer) -> None:
        """Refuse an optimiser over tensors that get no noisy gradient. Raises: Malformed."""
        ours = {id(value) for value, trains in self._known.values() if trains}
        theirs = [value for group in optimiser.param_groups for value in group["params"]]
        if any(id(value) not in ours for value in theirs):
            raise Malformed("optimiser", "updates a tensor that is no trainable parameter of the model")
        if len(theirs) != len(ours):
            raise Malformed("optimiser", "leaves out a trainable parameter of the model: freeze it instead")
        if isinstance(optimiser, torch.optim.SparseAdam):
            raise Malformed("optimiser", "takes sparse gradients alone: noise makes each of them dense")

    def check_unchanged(self) -> None:
        """Refuse a model whose parameters are no longer these.

        Raises:
            Malformed: naming what was replaced, frozen, unfrozen, added or removed.
        """
        now = {name: (value, value.requires_grad) for name, value in self._model.named_parameters()}
        for name in sorted(now.keys() | self._known.keys()):
            if name not in now or name not in self._known or now[name][0] is not self._known[name][0]:
                raise Malformed(f"model.{name}", "was added, removed or replaced in the loop: a run trains one model")
            if now[name][1] != self._known[name][1]:
                rule = "trains" if now[name][1] else "is frozen"
                raise Malformed(f"model.{name}", f"{rule} since the run began: freeze before it, or begin another run")
