"""Teachers: k models of one form, trained without privacy side by side, each on its own chunk.

All are one computation (``vmap`` over their weights), so that one teacher cannot be late: the same operations run
whatever the records hold, and none mixes two teachers. A batch is drawn from each chunk with replacement, so a chunk's
size changes no other teacher's work. Where that computation raises, each teacher is trained, or asked, by itself, and
those that raise have failed. A teacher that failed, has an empty chunk or weights that are no finite numbers gives NaN.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.chunks import Chunks
from trainer_adapter.layers.functional_call import call, in_modes
from trainer_adapter.layers.tensor_trees import TensorTree, map_tensors, select

Loss = Callable[[Any, Any], Tensor]
MakeOptimiser = Callable[[nn.Module], torch.optim.Optimizer]
SIDE_BY_SIDE: Final = 64
"""Teachers whose outputs are computed at once."""
_BROKEN: Final = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
Values = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Training:
    """How each teacher is trained.

    Attributes:
        steps: of each teacher. batch_size: records of its chunk a step, drawn with replacement.
        seed: of the draws; independent of the records.
    """

    loss: Loss
    optimiser: MakeOptimiser
    steps: int
    batch_size: int
    seed: int


@dataclass(frozen=True, slots=True)
class Teachers:
    """Trained teachers; all of it is secret.

    Attributes:
        model: their form, on its device.
        values: each parameter and buffer, stacked: (teachers, ...).
        alive: which of them did not fail, shape (teachers,), bool.
    """

    model: nn.Module
    values: Values
    alive: Tensor

    def outputs(self, inputs: TensorTree) -> NDArray[np.float64]:
        """Of each teacher for each question, shape (teachers, questions, numbers); NaN of those that failed."""
        found = [self._some(inputs, part) for part in torch.arange(len(self.alive)).split(SIDE_BY_SIDE)]
        return np.concatenate(found)

    def _some(self, inputs: TensorTree, which: Tensor) -> NDArray[np.float64]:
        values = {name: value[which] for name, value in self.values.items()}
        try:
            given = self._at_once(values, inputs)
        except _BROKEN:
            given = self._one_by_one(values, inputs)
        given = given.flatten(2) if given.dim() > 2 else given[..., None]
        found: NDArray[np.float64] = given.detach().cpu().to(torch.float64).numpy()
        found[~self.alive[which].cpu().numpy()] = np.nan
        return found

    def _at_once(self, values: Values, inputs: TensorTree) -> Tensor:
        with torch.no_grad(), in_modes(dict.fromkeys(self.model.modules(), False)):
            given: Tensor = torch.func.vmap(lambda weights: call(self.model, weights, inputs))(values)
        return given

    def _alone(self, values: Values, inputs: TensorTree) -> Tensor:
        """One teacher without ``vmap``, under which a model's Python may look at no value."""
        with torch.no_grad(), in_modes(dict.fromkeys(self.model.modules(), False)):
            given: Tensor = call(self.model, values, inputs)
        return given[None]

    def _one_by_one(self, values: Values, inputs: TensorTree) -> Tensor:
        parts: list[Tensor | None] = []
        for place in range(len(next(iter(values.values())))):
            try:
                parts.append(self._alone({name: value[place] for name, value in values.items()}, inputs))
            except _BROKEN:
                parts.append(None)
        known = next((part for part in parts if part is not None), None)
        if known is None:
            raise Malformed("model", "fails for this question, whichever teacher answers")
        return torch.cat([torch.full_like(known, torch.nan) if part is None else part for part in parts])

    def to_bytes(self) -> bytes:
        """As safetensors, for what is sealed before it is written."""
        tensors = {f"value.{name}": value.detach().cpu().contiguous() for name, value in self.values.items()}
        return save({**tensors, "alive": self.alive.cpu()}, {"ensemble": json.dumps({"v": 1})})

    @classmethod
    def of_bytes(cls, data: bytes, model: nn.Module) -> Self:
        """What :meth:`to_bytes` made, for a model of the same form. Raises: Malformed."""
        try:
            held = load(data)
        except SafetensorError:
            raise Malformed("model.state", "holds no teachers") from None
        device = next(model.parameters()).device
        values = {name.removeprefix("value."): tensor.to(device) for name, tensor in held.items() if name != "alive"}
        own = {name: tensor.shape for name, tensor in _named_tensors(model).items()}
        if {name: value.shape[1:] for name, value in values.items()} != own or "alive" not in held:
            raise Malformed("model.state", "holds teachers of another model")
        return cls(model, values, held["alive"])


def train_teachers(
    model: nn.Module, records: tuple[TensorTree, TensorTree], chunks: Chunks, teachers: int, how: Training
) -> Teachers:
    """Train each teacher on the records of its chunk; none raises for what its records hold.

    Args:
        model: public first weights, on its device.
        records: inputs and targets (records, ...), as the model sees them.
        chunks: the chunk of each record, shape (records,).
    """
    device = next(model.parameters()).device
    rows, sizes = _rows_by_chunk(chunks, teachers)
    stacked = {
        name: tensor.detach().expand(teachers, *tensor.shape).clone() for name, tensor in _named_tensors(model).items()
    }
    alive = sizes > 0
    if bool(alive.any()):
        on_device = tuple(map_tensors(lambda tensor: tensor.to(device), tree) for tree in records)
        draws = _Draws(rows, sizes, how)
        try:
            stacked = _trained(model, stacked, on_device, draws, slice(None), how)
        except _BROKEN:
            stacked, alive = _trained_one_by_one(model, stacked, on_device, draws, alive, how)
    sane = torch.stack([value.isfinite().reshape(len(value), -1).all(dim=1).cpu() for value in stacked.values()]).all(
        dim=0
    )
    return Teachers(model, stacked, alive & sane)


@dataclass(frozen=True, slots=True)
class _Draws:
    """Which records each step takes of each chunk."""

    rows: Tensor
    sizes: Tensor
    how: Training

    def batches(self, which: slice) -> Any:  # noqa: ANN401 - a generator of tensors (teachers, batch)
        """The places of each step's records: drawn alike for each teacher, whichever of them are trained."""
        source = torch.Generator().manual_seed(self.how.seed)
        teachers = len(self.sizes)
        for _ in range(self.how.steps):
            drawn = torch.rand((teachers, self.how.batch_size), generator=source, dtype=torch.float64)
            places = (drawn * self.sizes[:, None]).long().clamp(max=self.rows.shape[1] - 1)
            yield torch.gather(self.rows, 1, places)[which]


def _rows_by_chunk(chunks: Chunks, teachers: int) -> tuple[Tensor, Tensor]:
    """The records of each chunk in their order, shape (teachers, longest), padded with 0; and how many there are."""
    sizes = np.bincount(chunks, minlength=teachers)
    rows = np.zeros((teachers, max(1, int(sizes.max(initial=0)))), dtype=np.int64)
    order = np.argsort(chunks, kind="stable")
    starts = np.concatenate(([0], np.cumsum(sizes)))
    for chunk in range(teachers):
        rows[chunk, : sizes[chunk]] = order[starts[chunk] : starts[chunk + 1]]
    return torch.from_numpy(rows), torch.from_numpy(sizes.astype(np.int64))


def _trained(  # noqa: PLR0913, PLR0917 - what training depends on
    model: nn.Module,
    stacked: Values,
    records: tuple[TensorTree, ...],
    draws: _Draws,
    which: slice,
    how: Training,
) -> Values:
    learned = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    values = {name: value[which].clone().requires_grad_(name in learned) for name, value in stacked.items()}
    holder = nn.ParameterList([nn.Parameter(values[name]) for name in sorted(learned)])
    values |= dict(zip(sorted(learned), holder, strict=True))
    optimiser = how.optimiser(holder)

    def loss_of(weights: Values, inputs: TensorTree, targets: TensorTree) -> Tensor:
        return how.loss(call(model, weights, inputs), targets)

    at_once = torch.func.vmap(loss_of, randomness="different")

    def losses(inputs: TensorTree, targets: TensorTree) -> Tensor:
        if which.stop is None:
            found: Tensor = at_once(values, inputs, targets)
            return found
        # One teacher, without ``vmap``, under which a model's Python may look at no value.
        alone = (select(tree, 0) for tree in (inputs, targets))
        return loss_of({name: value[0] for name, value in values.items()}, *alone)

    for places in draws.batches(which):
        optimiser.zero_grad()
        at = places.to(next(iter(values.values())).device)
        inputs, targets = (select(tree, at) for tree in records)
        # Each teacher's own loss: the gradient of their sum, with respect to one's weights, is that of its own.
        losses(inputs, targets).sum().backward()
        _skip_broken([parameter for parameter in holder if parameter.grad is not None])
        optimiser.step()
    return {name: value.detach() for name, value in values.items()}


def _skip_broken(parameters: list[nn.Parameter]) -> None:
    """A teacher whose gradient is not finite in any place takes no step by it."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    sane = torch.stack([grad.isfinite().reshape(len(grad), -1).all(dim=1) for grad in grads]).all(dim=0)
    for grad in grads:
        grad[~sane] = 0


def _trained_one_by_one(  # noqa: PLR0913, PLR0917 - as above
    model: nn.Module,
    stacked: Values,
    records: tuple[TensorTree, ...],
    draws: _Draws,
    alive: Tensor,
    how: Training,
) -> tuple[Values, Tensor]:
    alive, found = alive.clone(), {name: value.clone() for name, value in stacked.items()}
    for place in range(len(alive)):
        try:
            one = _trained(model, stacked, records, draws, slice(place, place + 1), how)
        except _BROKEN:
            alive[place] = False
            continue
        for name, value in one.items():
            found[name][place] = value[0]
    return found, alive


def _named_tensors(model: nn.Module) -> Mapping[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
