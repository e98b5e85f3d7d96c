"""Calls of a model with other values in place of its parameters and buffers, and of PyTorch's own function bodies.

:func:`call` does as ``torch.func.functional_call``, which, where one module occurs in a model twice, leaves the values
it was given in the model (PyTorch 2.13). Here a tensor is known by identity: wherever it occurs, and however often, the
new value takes its place, and afterwards the old one is back. :func:`in_modes` sets training and evaluation mode module
by module; :class:`FunctionMode` takes the place of every function of PyTorch's; :func:`body_of` gives the body of one
that is made of others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from types import FunctionType
from typing import Any, Final
from weakref import ref

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from trainer_adapter.layers.activation_checkpointing import without_checkpoints
from trainer_adapter.layers.tensor_trees import TensorTree, arguments

_GUARDS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def call(model: nn.Module, values: Mapping[str, Tensor], inputs: TensorTree) -> Any:  # noqa: ANN401 - any output of a model
    """The model's output with these values, by name as in ``named_parameters`` and ``named_buffers``."""
    return call_with(model, values, *arguments(inputs))


def call_with(model: nn.Module, values: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any output of a model
    """The same, called with these arguments."""
    named = chain(model.named_parameters(), model.named_buffers())
    new = {id(tensor): values[name] for name, tensor in named if name in values}
    places: list[tuple[dict[str, Any], str, Tensor]] = [
        (own, key, tensor)
        for module in model.modules()
        for own in (module._parameters, module._buffers)  # noqa: SLF001 - where a module keeps them
        for key, tensor in own.items()
        if tensor is not None and id(tensor) in new
    ]
    try:
        for own, key, tensor in places:
            own[key] = new[id(tensor)]
        with _flat_weights(model), without_checkpoints():
            return model(*args, **kwargs)
    finally:
        for own, key, tensor in places:
            own[key] = tensor


@contextmanager
def _flat_weights(model: nn.Module) -> Iterator[None]:
    """With the list of weights that each recurrent layer keeps beside its parameters in step with them.

    A layer that finds other weights than before would lay them out anew, in place on a GPU, and keep them.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    kept = [(module._flat_weights, module._flat_weight_refs) for module in layers]  # noqa: SLF001 - where it keeps them
    try:
        for module in layers:
            weights = [getattr(module, name, None) for name in module._flat_weights_names]  # noqa: SLF001 - as above
            module._flat_weights = weights  # noqa: SLF001 - as above
            module._flat_weight_refs = [None if weight is None else ref(weight) for weight in weights]  # noqa: SLF001 - as above
        yield
    finally:
        for module, (weights, refs) in zip(layers, kept, strict=True):
            module._flat_weights, module._flat_weight_refs = weights, refs  # noqa: SLF001 - as above


@contextmanager
def in_modes(wanted: Mapping[nn.Module, bool]) -> Iterator[None]:
    """With each module in training mode or not; afterwards as it was."""
    before = {module: module.training for module in wanted}
    try:
        for module, training in wanted.items():
            module.training = training
        yield
    finally:
        for module, training in before.items():
            module.training = training


class FunctionMode(TorchFunctionMode):
    """Within its block every call of a PyTorch function goes through :meth:`replace`."""

    @abstractmethod
    def replace(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any function of PyTorch's
        """The result of the call."""

    def __torch_function__(
        self, func: object, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        """Called by PyTorch in the place of ``func``."""
        del types
        return self.replace(func, args, kwargs or {})


def body_of(function: FunctionType) -> FunctionType:
    """The same body without its own dispatch to ``__torch_function__``."""
    names = {**function.__globals__, **dict.fromkeys(_GUARDS, lambda *_: False)}
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
