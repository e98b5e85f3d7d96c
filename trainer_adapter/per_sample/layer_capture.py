"""Capture of the layer calls in which a model uses its parameters, whatever module makes them.

Every call of a PyTorch function that is given a parameter goes through :class:`LayerCallCapture`. Where a rule applies
to it, an *activation probe*, a zero, is added to its output: the gradient with respect to the probe is that of the
output, and from it and what was saved of the call comes every per-example gradient. A module may have made the call or
``torch.nn.functional``, and a parameter may be used several times: its uses are added up. A parameter with a use that
no rule covers is listed by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._pytree import tree_leaves

from trainer_adapter.layers.attention import AttentionCall, attention
from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.functional_call import FunctionMode, body_of
from trainer_adapter.layers.rnn import unrolled
from trainer_adapter.layers.tensor_trees import TensorTree
from trainer_adapter.per_sample.layer_rules import CapturedCall, Factors, take
from trainer_adapter.per_sample.record_loss import RecordLoss


class LayerCallCapture(FunctionMode):
    """The uses of some parameters in a forward pass.

    Attributes:
        factors: of the calls that rules cover, in order. saved: what was saved of each.
        uncovered: the parameters that some call used without a rule.
        outputs: shape and type of each output, as one record has it.
    """

    def __init__(self, parameters: Mapping[str, Tensor], probes: Sequence[Tensor] | None) -> None:
        """Capture calls with these very tensors; without probes outputs stay as they are."""
        super().__init__()
        self._names = {id(value): name for name, value in parameters.items()}
        self._probes = probes
        self.factors: list[Factors] = []
        self.saved: list[Tensor] = []
        self.uncovered: set[str] = set()
        self.outputs: list[tuple[torch.Size, torch.dtype]] = []

    def replace(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any function of PyTorch's
        """Run the call, by its rule if it has one; what uses a parameter without a rule is noted."""
        named = {self._names[id(value)] for value in tree_leaves((args, dict(kwargs))) if id(value) in self._names}
        if function is scaled_dot_product_attention:
            return attention(AttentionCall(*args, **kwargs))
        recurrent = unrolled(function, args, kwargs)
        if recurrent is not None:
            with self:
                return recurrent(*args, **kwargs)
        if not named:
            # Models call it for the arguments of a checkpoint; vmap forbids it, and gradients are taken at probes here.
            return args[0] if function is Tensor.requires_grad_ else function(*args, **kwargs)
        taken = take(function, args, kwargs, lambda value: self._names.get(id(value)))
        if taken is not None:
            return self._probed(taken)
        if isinstance(function, FunctionType) and function.__module__ == "torch.nn.functional":
            # Made of functions that may have rules: its body runs under our eyes.
            with self:
                return body_of(function)(*args, **kwargs)
        output = function(*args, **kwargs)
        # Reading a shape or a type is no use of the values.
        if any(isinstance(value, Tensor) for value in tree_leaves(output)):
            self.uncovered |= named
        return output

    def _probed(self, taken: CapturedCall) -> Tensor:
        self.factors.append(taken.factors)
        self.saved.append(taken.saved)
        self.outputs.append((taken.output.shape, taken.output.dtype))
        return taken.output if self._probes is None else taken.output + self._probes[len(self.factors) - 1]


def parameters_with_rules(
    record: RecordLoss, values: Mapping[str, Tensor], inputs: TensorTree, key: Tensor
) -> tuple[list[str], list[tuple[torch.Size, torch.dtype]]]:
    """Names of the parameters all of whose uses have rules; shape and type of each captured output of one record.

    ``inputs`` (1, ...) are one public dummy, ``key`` its key. Found in two ways: by watching calls, and, for what
    reaches a parameter behind PyTorch's functions, by requesting a gradient: where every use went through a rule, none
    arrives.
    """
    known = {name: values[name].detach().requires_grad_() for name in record.trained}
    watched = set(known)
    while True:
        capture = LayerCallCapture({name: known[name] for name in watched}, None)
        with torch.enable_grad(), capture:
            outputs = record.outputs({**values, **known}, inputs, PerExampleDropout(key))
        leaked: set[str] = set(capture.uncovered)
        reached = [leaf.sum() for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if reached and watched:
            order = sorted(watched)
            grads = torch.autograd.grad(reached, [known[name] for name in order], allow_unused=True)
            leaked |= {name for name, value in zip(order, grads, strict=True) if value is not None}
        if not leaked:
            return [name for name in record.trained if name in watched], capture.outputs
        watched -= leaked
