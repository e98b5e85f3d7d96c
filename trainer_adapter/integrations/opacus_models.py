"""A model that Opacus trains, held to the terms of our own engine: a record's output does not depend on the others.

Opacus clips what it takes for one record's gradient. If a layer mixes records, that is a function of the whole batch,
and one record moves the sum by more than the clipping norm. Its own validator refuses layers that have buffers and
weights, so a batch normalisation without either passes it, and so does a module that computes with a batch's mean.

What a loop of another library passes to its model is not known before it does. So each pass that trains is looked at,
before it runs, once for each form of its inputs and each state of the model's modes: on public dummies of their shape,
and only if the model does not run on those, on the batch itself with a copy of its second record in the place of its
first. Nothing is trained by that, and Opacus' hooks record nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from ledger.wire.malformed import Malformed
from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.functional_call import call_with
from trainer_adapter.layers.memory_shortage import raise_if_short
from trainer_adapter.layers.tensor_trees import tensors
from trainer_adapter.layers.weight_writes import WriteWatch, own_tensors
from trainer_adapter.per_sample.model_checks import (
    agree,
    change_first,
    check_modules,
    dummies,
    public_parameters,
    refuse_writes,
)

Inputs: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""What a model is called with: by position and by keyword."""
RECORDS: Final = 7
"""Dummy records in a pass: a number that few other dimensions of a model have."""
_PLAIN: Final = (Tensor, bool, int, float, str, type(None), torch.dtype, torch.device)
_NOT_RUN: Final = (RuntimeError, ValueError, IndexError, TypeError, KeyError, AttributeError, AssertionError)


class PassWatch:
    """Looks at a model's passes, each kind of pass once.

    Attributes:
        place: which dimension of an input counts the records.
        looking: whether the model's passes are those of a look.
    """

    def __init__(self, *, batch_first: bool) -> None:
        """No pass was looked at yet."""
        self.place = 0 if batch_first else 1
        self._known: set[Hashable] = set()
        self.looking = False

    def look(self, model: nn.Module, inputs: Inputs) -> None:
        """Look at a pass that is to come. Raises: Malformed, naming the module that mixes records."""
        leaves = tree_leaves(inputs)
        forms = tuple((leaf.dim(), leaf.dtype) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves)
        kind = (forms, tuple(inputs[1]), tuple((id(module), module.training) for module in model.modules()))
        if kind in self._known:
            return
        check_modules(model)
        self.looking = True
        try:
            if check_independence(model, inputs, self.place):
                self._known.add(kind)
        finally:
            self.looking = False

    def try_record(self, model: nn.Module, record: object) -> None:
        """Look at a model before its first pass, if it takes the first part of a record: of that only the shape counts.

        Raises:
            Malformed: as :meth:`look`; nothing if the model takes something else.
        """
        check_modules(model)
        part = record[0] if isinstance(record, list | tuple) and record else None
        if not isinstance(part, Tensor) or part.dim() < self.place:
            return
        inputs: Inputs = ((part.unsqueeze(self.place),), {})
        try:
            outputs = _outputs(model, _dummy_inputs(model, inputs, self.place, 1))
        except Malformed:
            raise
        except _NOT_RUN as error:
            raise_if_short(error)
            return
        _require_records(outputs, RECORDS, self.place)
        check_independence(model, inputs, self.place)


def check_independence(model: nn.Module, inputs: Inputs, place: int) -> bool:
    """Whether it is known that no record changes another's output, for inputs of this form.

    It is not where the model runs on no dummies, and the batch has no two records that differ.

    Raises:
        Malformed: if one does, if a parameter or a buffer is written, or if it cannot be known which part of the inputs
            or outputs is a record's.
    """
    records = _count(inputs, place)
    try:
        shown = _dummy_inputs(model, inputs, place, records)
        _compare(model, (shown, _change(shown, place, RECORDS, change_first)), place, RECORDS)
    except Malformed:
        raise
    except _NOT_RUN as error:
        raise_if_short(error)
        return _check_on_records(model, inputs, place, records)
    return True


def _check_on_records(model: nn.Module, inputs: Inputs, place: int, records: int) -> bool:
    if records < 2:
        return False
    changed = _change(inputs, place, records, _second_as_first)
    pairs = zip(tree_leaves(inputs), tree_leaves(changed), strict=True)
    if all(torch.equal(one, other) for one, other in pairs if isinstance(one, Tensor)):
        return False
    try:
        _compare(model, (inputs, changed), place, records)
    except Malformed:
        raise
    except _NOT_RUN as error:
        raise_if_short(error)
        # What PyTorch says of an error may quote a record.
        raise Malformed("model", "runs neither on public dummy records nor on a batch with one record twice") from None
    return True


def _count(inputs: Inputs, place: int) -> int:
    """How many records a pass has. Raises: Malformed."""
    # A packed sequence is a tuple of tensors, none of which has a dimension of records.
    leaves = tree_leaves(inputs, is_leaf=lambda value: isinstance(value, PackedSequence))
    for leaf in leaves:
        if not isinstance(leaf, _PLAIN):
            rule = "must take tensors, in dictionaries, lists and tuples, since of it no part is known to be a record's"
            raise Malformed("model", f"takes a {type(leaf).__name__}: {rule}")
    sizes = [leaf.shape[place] for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() > place]
    if not sizes:
        raise Malformed("model", "takes no tensor of which a dimension counts the records")
    return int(sizes[0])


def _change(inputs: Inputs, place: int, records: int, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The inputs with what ``change`` gives, records first, for those that have as many records."""

    def changed(leaf: object) -> object:
        if not isinstance(leaf, Tensor) or leaf.dim() <= place or leaf.shape[place] != records:
            return leaf
        return change(leaf.movedim(place, 0)).movedim(0, place)

    made: Inputs = tree_map(changed, inputs)
    return made


def _dummy_inputs(model: nn.Module, inputs: Inputs, place: int, records: int) -> Inputs:
    device = next(model.parameters()).device
    return _change(inputs, place, records, lambda leaf: tensors(dummies((leaf, ()), (RECORDS,), device)[0])[0])


def _second_as_first(leaf: Tensor) -> Tensor:
    changed = leaf.clone()
    changed[0] = leaf[1]
    return changed


def _outputs(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """What a pass gives, with public parameters, without dropout, and with the same randomness each time.

    Raises:
        Malformed: if the pass writes into a parameter or a buffer.
    """
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    state = {**public_parameters(model), **buffers}
    watch = WriteWatch(state, values=True)
    device = next(model.parameters()).device
    # Without gradients Opacus' hooks keep nothing of a pass that is not the loop's.
    replaced = list[str]()
    after = model.register_forward_hook(lambda own, *_: replaced.extend(watch.replaced(own_tensors(own))))
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []), PerExampleDropout(None):
        try:
            outputs = call_with(model, state, *inputs)
        finally:
            after.remove()
    refuse_writes([*watch.written(), *replaced], buffers)
    for leaf in _leaves(outputs):
        if not isinstance(leaf, _PLAIN):
            rule = (
                "must give tensors, in dictionaries, lists, tuples and dataclasses, since of it nothing can be compared"
            )
            raise Malformed("model", f"gives a {type(leaf).__name__}: {rule}")
    return _tensors(outputs)


def _compare(model: nn.Module, both: tuple[Inputs, Inputs], place: int, records: int) -> None:
    """Hold what the model gives for the first of two inputs to what it gives for the second: one record differs."""
    before = _outputs(model, both[0])
    _require_records(before, records, place)
    if not _differ(before, _outputs(model, both[1]), records, place):
        return
    where = _first_mixing(model, both, place, records)
    raise Malformed(f"model.{where}" if where else "model", "lets one record change the output of another")


def _require_records(outputs: list[Tensor], records: int, place: int) -> None:
    """Raises: Malformed, if no output is known to be of each record."""
    if all(_by_record(value, records, place) is None for value in outputs):
        raise Malformed("model", "gives no tensor of which a dimension counts the records")


def _first_mixing(model: nn.Module, both: tuple[Inputs, Inputs], place: int, records: int) -> str:
    """The first module that is given records apart and gives them mixed, inner modules before outer ones."""
    calls, found = list[_Call](), list[str]()
    with _noted(model, calls.append):
        _outputs(model, both[0])
    earlier = iter(calls)

    def compare(after: _Call) -> None:
        before = next(earlier, None)
        if before is None or before.name != after.name:
            return
        apart = not _differ(before.given, after.given, records, place)
        if apart and _differ(before.outputs, after.outputs, records, place):
            found.append(after.name)

    with _noted(model, compare):
        _outputs(model, both[1])
    return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class _Call:
    """What a module of this name was given, and what it gave."""

    name: str
    given: list[Tensor]
    outputs: list[Tensor]


@contextmanager
def _noted(model: nn.Module, note: Callable[[_Call], None]) -> Iterator[None]:
    """Within it ``note`` is given the call of each module when it ends."""

    def hook(name: str, _: nn.Module, args: object, kwargs: object, outputs: object) -> None:
        note(_Call(name, _tensors((args, kwargs)), _tensors(outputs)))

    modules = model.named_modules()
    hooks = [module.register_forward_hook(partial(hook, name), with_kwargs=True) for name, module in modules]
    try:
        yield
    finally:
        for one in hooks:
            one.remove()


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in _leaves(tree) if isinstance(leaf, Tensor)]


def _leaves(tree: object) -> Iterator[object]:
    """What is in a tree of dictionaries, lists and tuples, and in mappings and dataclasses of any class."""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Mapping):
            yield from _leaves([*leaf.values()])
        elif is_dataclass(leaf):
            yield from _leaves([getattr(leaf, one.name) for one in fields(leaf)])
        else:
            yield leaf


def _differ(before: list[Tensor], after: list[Tensor], records: int, place: int) -> bool:
    """Whether the outputs of any record but the first differ."""
    if len(before) != len(after):
        return True
    for value, other in zip(before, after, strict=True):
        one, two = _by_record(value, records, place), _by_record(other, records, place)
        if one is None and two is None:
            continue
        if one is None or two is None or one.shape != two.shape or not agree(one[1:], two[1:]):
            return True
    return False


def _by_record(value: Tensor, records: int, place: int) -> Tensor | None:
    """The tensor with its records first; None if no dimension counts them."""
    for at in (place, 0, 1):
        if value.dim() > at and value.shape[at] == records:
            return value.movedim(at, 0)
    if not value.dim() or not len(value) or len(value) % records:
        return None
    # What is of each position of each record, one after the other.
    positions: Tensor = value.unflatten(0, (-1, records) if place else (records, -1))
    return positions.movedim(place, 0)
