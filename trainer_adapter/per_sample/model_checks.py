"""Checks of a model on public dummies: the engine takes only those whose records do not influence each other.

Nothing here sees a governed record: shapes and types are public, values come from a fixed generator.
Parameters are replaced by public random ones too, since a layer that starts at zero would hide what comes
before it.

Under ``torch.func.vmap`` all records pass at once and none can leave anything for another. A model that runs record by
record could: a tensor that it keeps and writes to is invisible to every comparison of outputs until some record makes a
difference. So such a model is watched, not compared (:func:`check_stateless`): a pass writes only into tensors that it
made itself, and reads nothing that another pass made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ledger.wire.malformed import Malformed
from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.functional_call import FunctionMode, call
from trainer_adapter.layers.memory_shortage import raise_if_short
from trainer_adapter.layers.tensor_trees import TensorTree, map_tensors
from trainer_adapter.layers.weight_writes import RULE, WeightsWritten, WriteWatch

DUMMIES: Final = 4
PARAMETERS_MAX: Final = 1 << 32
TOLERANCE: Final = 1e-4
"""Relative; far above the rounding of one layer, far below what a mean over a batch of four does."""


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that train, by name, each once.

    Raises:
        Malformed: for none, too many, one that is not float32, or parameters on several devices.
    """
    known = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not known:
        raise Malformed("model", "has no parameter that trains")
    for name, value in known.items():
        if value.dtype != torch.float32:
            raise Malformed(f"model.{name}", f"must be float32, not {value.dtype}: the norm's margin is proven for it")
    if len({value.device for value in model.parameters()}) > 1:
        raise Malformed("model", "lies on several devices")
    if sum(value.numel() for value in known.values()) > PARAMETERS_MAX:
        raise Malformed("model", "has too many parameters for the norm's margin")
    return known


def check_modules(model: nn.Module) -> None:
    """Refuse layers that mix records, carry state of them or write into their weights. Raises: Malformed.

    In evaluation mode a normalisation takes its statistics from its buffers, which are as public as its weights.
    """
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise Malformed(f"model.{name}", "is state that is no tensor, which a model's file cannot hold")
    for name, module in model.named_modules():
        where = f"model.{name}" if name else "model"
        if hasattr(module, "_orig_mod"):
            raise Malformed(where, "is the compiled form of a module: pass the module, and the option compiled")
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            rule = "by which a forward pass writes into its weights, outside the noisy sum: leave it out"
            raise Malformed(where, f"has max_norm, {rule}")
        statistics = getattr(module, "running_mean", None) is not None
        if statistics and not module.training:
            continue
        if isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - the one class all of them share
            rule = "use GroupNorm or LayerNorm, or put it into evaluation mode while the model is in training mode"
            raise Malformed(where, f"is a batch normalisation, which mixes records: {rule}")
        if statistics or getattr(module, "track_running_stats", False):
            raise Malformed(where, "keeps running statistics of records outside the noisy sum")


def check_on_dummies(
    model: nn.Module, loss_fn: Callable[[Any, Any], Tensor], data: tuple[TensorTree, TensorTree]
) -> None:
    """Run the model in its training mode on dummies shaped like ``data`` and hold it to the engine's terms.

    Nothing drops here, so that no mask hides what one record does to another.

    Raises:
        Malformed: if it cannot run on a batch, draws other randomness than dropout's, writes into a parameter or a
            buffer, lets one record touch another's output, or has a trainable parameter that the loss does not reach.
    """
    device = next(model.parameters()).device
    inputs, targets = dummies(data, (DUMMIES,), device)
    parameters = public_parameters(model)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    state = {**parameters, **buffers}
    watch = WriteWatch(state, values=True)
    try:
        with RefuseRandomness(device), PerExampleDropout(None):
            before = call(model, state, inputs)
        outputs = _output_tensors(before)
        refuse_writes(watch.written(), buffers)
        with PerExampleDropout(None):
            after = _output_tensors(call(model, state, map_tensors(change_first, inputs)))
        refuse_writes(watch.written(), buffers)
        loss = loss_fn(*(tree_map_only(Tensor, lambda value: value[:1], part) for part in (before, targets)))
        if loss.numel() != 1:
            raise Malformed("loss_fn", "must give one number for one record")
        _check_reached(model, parameters, loss)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if isinstance(error, Malformed):
            raise
        raise_if_short(error)
        raise Malformed("model", f"does not run on a batch of public dummy records: {first_line(error)}") from error
    if len(outputs) != len(after):
        raise Malformed("model", "gives more tensors for some records than for others")
    if not all(agree(before[1:], other[1:]) for before, other in zip(outputs, after, strict=True)):
        raise Malformed("model", "lets one record change the output of another")


def refuse_writes(written: Sequence[str], buffers: Collection[str]) -> None:
    """Refuse a model whose pass on dummies wrote into tensors of its own, by their names. Raises: Malformed."""
    for name in written:
        if name in buffers:
            raise Malformed(f"model.{name}", "is a buffer that training changes outside the noisy sum")
    if written:
        raise WeightsWritten(f"model.{written[0]}", RULE)


def _output_tensors(outputs: object) -> list[Tensor]:
    """The tensors of what a model gives: one, or several in a tuple, a dictionary or Transformers' ``ModelOutput``."""
    tensors = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
    if not tensors or any(value.dim() < 1 or value.shape[0] != DUMMIES for value in tensors):
        raise Malformed("model", "must give tensors whose first dimension counts the records")
    return tensors


def agree(before: Tensor, other: Tensor) -> bool:
    """Whether two outputs are the same but for rounding; NaN in both is."""
    return torch.allclose(before.double(), other.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


class RefuseRandomness(FunctionMode):
    """Refuses draws from PyTorch's own generators, by the name of the function that drew."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._before = self._states()

    def _states(self) -> list[Tensor]:
        gpu = [torch.cuda.get_rng_state(self._device)] if self._device.type == "cuda" else []
        return [torch.get_rng_state(), *gpu]

    def replace(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any function of PyTorch's
        """Run the call. Raises: Malformed, if it drew."""
        output = function(*args, **kwargs)
        if kwargs.get("generator") is not None or not all(map(torch.equal, self._before, self._states())):
            self._before = self._states()  # reported once, and not again for what runs on the way out
            name = resolve_name(function) or getattr(function, "__name__", "a function")
            raise Malformed("model", f"draws randomness by {name}: only dropout is drawn for each record by itself")
        return output


def dummies(
    data: tuple[TensorTree, TensorTree], lead: tuple[int, ...], device: torch.device
) -> tuple[TensorTree, TensorTree]:
    """Public inputs and targets shaped like the data's, with other leading dimensions.

    Numbers are random, integers of inputs 0 and 1 by turns, those of targets 0.
    """

    def made(part: Tensor, *, turns: bool) -> Tensor:
        shape = torch.Size((*lead, *part.shape[1:]))
        if part.is_floating_point():
            public = torch.Generator().manual_seed(1)
            value = torch.rand(shape, generator=public, dtype=torch.float64)
        else:
            value = (torch.arange(shape.numel()) % 2).reshape(shape) if turns else torch.zeros(shape)
        return value.to(device, part.dtype)

    inputs, targets = data
    return map_tensors(partial(made, turns=True), inputs), map_tensors(partial(made, turns=False), targets)


def change_first(inputs: Tensor) -> Tensor:
    """The same dummies with another first record."""
    changed = inputs.clone()
    changed[0] = 1 - inputs[0].to(torch.int64) if not inputs.is_floating_point() else inputs[0] * -3 + 7
    return changed


def public_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Random parameters from a fixed generator, of the size that layers usually start with."""
    public = torch.Generator().manual_seed(2)
    made = {}
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=public, dtype=torch.float32)
        # At least one sign for a scale or bias, so that no layer is switched off by chance.
        noise = noise * 0.3 + 0.1 if value.dim() < 2 else noise * (len(value) / value.numel()) ** 0.5
        made[name] = noise.to(value.device, value.dtype).requires_grad_(value.requires_grad)
    return made


def _check_reached(model: nn.Module, parameters: dict[str, Tensor], loss: Tensor) -> None:
    reached: dict[str, Tensor | None] = dict.fromkeys(trainable(model))
    if loss.requires_grad:
        tensors = [parameters[name] for name in reached]
        reached = dict(zip(reached, torch.autograd.grad(loss.sum(), tensors, allow_unused=True), strict=True))
    for name, gradient in reached.items():
        if gradient is None:
            raise Malformed(f"model.{name}", "gets no gradient from a record's loss: freeze it or use it")


def first_line(error: Exception) -> str:
    """What people read of an error of PyTorch's, which may run to pages."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class _Pass(TorchDispatchMode):
    """One pass; ``made`` are the tensors whose memory it made, by where that lies."""

    def __init__(self, others: Mapping[int, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no type for it
        self.made: dict[int, Tensor] = {}
        self.met = False
        self._others = others

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operator; torch has no type for it
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        del types
        named = dict(kwargs or {})
        read = dict(_tensors((args, named)))
        specs = func._schema.arguments  # noqa: SLF001 - where an operator says what it writes
        given = {spec.name: value for spec, value in zip(specs, args, strict=False)} | named
        written = dict(
            _tensors([given.get(spec.name) for spec in specs if spec.alias_info and spec.alias_info.is_write])
        )
        self.met |= bool(read.keys() & self._others.keys() or written.keys() - self.made.keys())
        result: object = func(*args, **named)
        # Held, so that no other memory comes to lie in the same place.
        self.made |= {place: leaf for place, leaf in _tensors(result) if place not in read}
        return result


def _tensors(value: object) -> Iterator[tuple[int, Tensor]]:
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor) and (place := leaf.untyped_storage().data_ptr()):
            yield place, leaf


def check_stateless(run: Callable[[], object]) -> None:
    """Pass a record twice, after once for what is made once and for all.

    Args:
        run: one pass, the record's own tensors made in it.

    Raises:
        Malformed: if a pass writes into what was there before it, or reads what the one before it made.
    """
    run()
    first: dict[int, Tensor] = {}
    for _ in range(2):
        with torch.random.fork_rng(), _Pass(first) as seen:
            run()
        if seen.met:
            raise Malformed("model", "keeps a tensor from one record for the next")
        first = seen.made
