"""Running a model while its parameters' uses are caught: no layer needs to be known, only the functions they call.

Every call of a PyTorch function that is given a parameter goes through :class:`LayerCallCapture`. A rule takes it, and
then a *probe*, a zero, is added to its output: the gradient with respect to the probe is that of the output, and
from it and from what was kept of the call comes every record's gradient. It does not matter whether a module
made the call or ``torch.nn.functional`` did, nor how often a parameter is used: uses are added up by parameter.
What no rule takes is told by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from trainer_adapter.layers.attention import attention
from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.functional_call import body_of, call
from trainer_adapter.layers.rnn import unrolled
from trainer_adapter.per_sample.layer_rules import CapturedCall, Layer, take


class LayerCallCapture(TorchFunctionMode):
    """What a forward pass does with some parameters.

    Attributes:
        layers: the calls that rules took, in order. kept: what was kept of each.
        left: the parameters that some call used without a rule.
        shapes: shape and type of each output, as one record sees it.
    """

    def __init__(self, parameters: Mapping[str, Tensor], probes: Sequence[Tensor] | None) -> None:
        """Watch these parameters, known by being the very same tensors; without probes outputs stay as they are."""
        super().__init__()
        self._names = {id(value): name for name, value in parameters.items()}
        self._probes = probes
        self.layers: list[Layer] = []
        self.kept: list[Tensor] = []
        self.left: set[str] = set()
        self.outputs: list[tuple[torch.Size, torch.dtype]] = []

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - any function of PyTorch's
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever it gives
        """Called by PyTorch in the place of ``func``."""
        del types
        given: Mapping[str, Any] = kwargs or {}
        named = {self._names[id(value)] for value in tree_leaves((args, dict(given))) if id(value) in self._names}
        if func is scaled_dot_product_attention:
            return attention(*args, **given)
        recurrent = unrolled(func, args, given)
        if recurrent is not None:
            with self:
                return recurrent(*args, **given)
        if not named:
            return func(*args, **given)
        taken = take(func, args, given, self._name)
        if taken is not None:
            return self._probed(taken)
        if isinstance(func, FunctionType) and func.__module__ == "torch.nn.functional":
            # Made of functions that may have rules: its body runs under our eyes.
            with self:
                return body_of(func)(*args, **given)
        output = func(*args, **given)
        # Asking for a shape or a type is no use of the values.
        if any(isinstance(value, Tensor) for value in tree_leaves(output)):
            self.left |= named
        return output

    def _name(self, value: object) -> str | None:
        return self._names.get(id(value))

    def _probed(self, taken: CapturedCall) -> Tensor:
        self.layers.append(taken.layer)
        self.kept.append(taken.kept)
        self.outputs.append((taken.output.shape, taken.output.dtype))
        return taken.output if self._probes is None else taken.output + self._probes[len(self.layers) - 1]


def parameters_with_rules(
    model: nn.Module, parameters: Mapping[str, Tensor], rest: Mapping[str, Tensor], inputs: Tensor, key: Tensor
) -> list[str]:
    """Names of the parameters all of whose uses have rules; ``inputs`` (1, ...) are one public dummy, ``key`` its own.

    Found in two ways: by watching calls, and, for what reaches a parameter behind PyTorch's functions, by asking
    for a gradient: where every use went through a rule, none arrives.
    """
    known = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    watched = set(known)
    while True:
        capture = LayerCallCapture({name: known[name] for name in watched}, None)
        with torch.enable_grad(), capture, PerExampleDropout(key):
            output = call(model, {**rest, **known}, inputs)
        leaked: set[str] = set(capture.left)
        if output.requires_grad and watched:
            order = sorted(watched)
            found = torch.autograd.grad(output.sum(), [known[name] for name in order], allow_unused=True)
            leaked |= {name for name, value in zip(order, found, strict=True) if value is not None}
        if not leaked:
            return [name for name in parameters if name in watched]
        watched -= leaked
