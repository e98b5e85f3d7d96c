"""Teachers: k models of one form, trained without privacy side by side, each on its own chunk.

All are one computation (``vmap`` over their weights), so that one teacher cannot be late: the same operations run
whatever the records hold, and none mixes two teachers. A batch is drawn from each chunk with replacement, so a chunk's
size changes no other teacher's work.

Which path the teachers take, that one or each by itself, is decided on zeros before a record is seen, since the two
round differently and draw other dropout. Where the one computation raises for what some chunks hold, those that raise
beside zeros in all other places are found, and their teachers see zeros from then on: shapes, kernels and draws stay,
so each other teacher has the bits that it would have if they had held zeros. A teacher that raised, has an empty chunk
or weights that are no finite numbers has failed: it gives NaN.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.chunks import Chunks
from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.functional_call import call, in_modes
from trainer_adapter.layers.random_draws import generators, own_draws
from trainer_adapter.layers.tensor_trees import TensorTree, map_tensors, select, tensors
from trainer_adapter.layers.vmap_isolation import runs_apart, without_broken
from trainer_adapter.per_sample.model_checks import RefuseRandomness
from trainer_adapter.training.named_losses import elementwise

Loss = Callable[[Any, Any], Tensor]
MakeOptimiser = Callable[[nn.Module], torch.optim.Optimizer]
SIDE_BY_SIDE: Final = 64
"""Teachers whose outputs are computed at once."""
Values = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Training:
    """How each teacher is trained.

    Attributes:
        steps: of each teacher. batch_size: records of its chunk a step, drawn with replacement.
        seed: of the draws, of records and of dropout; independent of the records.
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
        model: their form with its public first weights, on its device.
        values: each parameter and buffer, stacked: (teachers, ...).
        alive: which of them did not fail, shape (teachers,), bool.
    """

    model: nn.Module
    values: Values
    alive: Tensor

    def outputs(self, inputs: TensorTree) -> NDArray[np.float64]:
        """Of each teacher for each question, shape (teachers, questions, numbers); NaN of those that failed.

        Raises:
            Malformed: if the model fails for these questions with its public first weights.
        """
        first = _first(self.model)
        parts = torch.arange(len(self.alive)).split(SIDE_BY_SIDE)
        try:
            known = self._alone(first, inputs)
        except Exception:  # noqa: BLE001 - a model may raise anything
            raise Malformed("model", "fails for this question, whichever teacher answers") from None
        nobody = torch.zeros(len(parts[0]), dtype=torch.bool)
        at_once = runs_apart(partial(self._at_once, inputs, parts[0], nobody))
        given = [self._some(inputs, part, known, at_once=at_once) for part in parts]
        return np.concatenate(given)

    def _some(self, inputs: TensorTree, which: Tensor, known: Tensor, *, at_once: bool) -> NDArray[np.float64]:
        alive = self.alive[which].cpu()
        if at_once:
            given, alive = without_broken(partial(self._at_once, inputs, which), alive)
        else:
            given = torch.stack([self._alone_or_nan(place, inputs, known) for place in which.tolist()])
        given = given.flatten(2) if given.dim() > 2 else given[..., None]
        found: NDArray[np.float64] = given.detach().cpu().to(torch.float64).numpy()
        found[~alive.numpy()] = np.nan
        return found

    def _at_once(self, inputs: TensorTree, which: Tensor, shown: Tensor) -> Tensor:
        """Of these teachers those that are shown, beside the public first weights in all other places."""
        values = {name: value[which] for name, value in self.values.items()}
        for name, value in _first(self.model).items():
            values[name][~shown] = value
        with torch.no_grad(), in_modes(dict.fromkeys(self.model.modules(), False)):
            given: Tensor = torch.func.vmap(lambda weights: call(self.model, weights, inputs))(values)
        return given

    def _alone(self, values: Values, inputs: TensorTree) -> Tensor:
        """One teacher without ``vmap``, under which a model's Python may look at no value."""
        # What a pass writes into a buffer ends with it, and what it draws is no other teacher's.
        own = {name: value.clone() for name, value in values.items()}
        evaluated = in_modes(dict.fromkeys(self.model.modules(), False))
        with torch.no_grad(), evaluated, own_draws(self.model, 0):
            given: Tensor = call(self.model, own, inputs)
        return given

    def _alone_or_nan(self, place: int, inputs: TensorTree, known: Tensor) -> Tensor:
        """A teacher's outputs, as many as those of the first weights are, or NaN."""
        nothing = torch.full_like(known, torch.nan)
        try:
            given = self._alone({name: value[place] for name, value in self.values.items()}, inputs)
            return given.to(known.dtype) if given.shape == known.shape else nothing
        except Exception:  # noqa: BLE001 - whatever it is, it would show this teacher's chunk
            return nothing

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
        own = {name: tensor.shape for name, tensor in _first(model).items()}
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
    first, alive = _first(model), sizes > 0
    stacked = {name: value.expand(teachers, *value.shape).clone() for name, value in first.items()}
    if bool(alive.any()):
        on_device = tuple(map_tensors(lambda tensor: tensor.to(device), tree) for tree in records)
        draws = _Draws(rows, sizes, how)
        course = _Course(model, on_device, stacked, how, at_once=True)
        train = partial(_side_by_side, course) if course.can_run() else partial(_one_by_one, course)
        stacked, alive = train(draws, alive)
    for value in stacked.values():
        alive = alive & value.isfinite().reshape(teachers, -1).all(dim=1).cpu()
    # What a failed teacher learned from its records is never looked at again, not even beside others.
    for name, value in first.items():
        stacked[name][~alive] = value
    return Teachers(model, stacked, alive)


@dataclass(frozen=True, slots=True)
class _Draws:
    """Which records each step takes of each chunk."""

    rows: Tensor
    sizes: Tensor
    how: Training

    def batches(self) -> Iterator[Tensor]:
        """The places of each step's records, shape (teachers, batch): the same however teachers are trained."""
        source = torch.Generator().manual_seed(self.how.seed)
        teachers = len(self.sizes)
        for _ in range(self.how.steps):
            drawn = torch.rand((teachers, self.how.batch_size), generator=source, dtype=torch.float64)
            places = (drawn * self.sizes[:, None]).long().clamp(max=self.rows.shape[1] - 1)
            yield torch.gather(self.rows, 1, places)


def _rows_by_chunk(chunks: Chunks, teachers: int) -> tuple[Tensor, Tensor]:
    """The records of each chunk in their order, shape (teachers, longest), padded with 0; and how many there are."""
    sizes = np.bincount(chunks, minlength=teachers)
    rows = np.zeros((teachers, max(1, int(sizes.max(initial=0)))), dtype=np.int64)
    order = np.argsort(chunks, kind="stable")
    starts = np.concatenate(([0], np.cumsum(sizes)))
    for chunk in range(teachers):
        rows[chunk, : sizes[chunk]] = order[starts[chunk] : starts[chunk + 1]]
    return torch.from_numpy(rows), torch.from_numpy(sizes.astype(np.int64))


class _Course:
    """The training of some teachers in one computation, step by step."""

    def __init__(
        self, model: nn.Module, records: tuple[TensorTree, ...], stacked: Values, how: Training, *, at_once: bool
    ) -> None:
        """From these values, stacked.

        Args:
            at_once: whether ``vmap`` runs over the teachers; if not there is one, whose Python may look at values.
        """
        self.model, self.records, self.how, self._at_once = model, records, how, at_once
        learned = sorted(name for name, parameter in model.named_parameters() if parameter.requires_grad)
        self._holder = nn.ParameterList([nn.Parameter(stacked[name].clone()) for name in learned])
        others = {name: value.clone() for name, value in stacked.items() if name not in learned}
        self._values = {**others, **dict(zip(learned, self._holder, strict=True))}
        self._buffers = [self._values[name] for name, _ in model.named_buffers()]
        self._optimiser = elementwise(how.optimiser(self._holder))

    def can_run(self) -> bool:
        """Whether a step runs on zeros, mixes no teachers and draws nothing but dropout: as much for any record."""
        teachers, device = len(next(iter(self._values.values()))), next(self.model.parameters()).device
        places = torch.zeros((teachers, self.how.batch_size), dtype=torch.int64)
        with own_draws(self.model, self.how.seed):
            state = self.state()
            step = partial(self.gradients, places, torch.zeros(teachers, dtype=torch.bool), state)
            with RefuseRandomness(device), PerExampleDropout(None):
                runs = runs_apart(step)
            runs = runs and runs_apart(step)
            self._restore(state)
        return runs

    def state(self) -> tuple[Tensor, ...]:
        """What the gradients of a step may change: the buffers, and the generators' states."""
        drawn = (generator.get_state() for generator in generators(self.model))
        return (*(value.clone() for value in self._buffers), *drawn)

    def _restore(self, state: tuple[Tensor, ...]) -> None:
        for value, before in zip(self._buffers, state, strict=False):
            value.copy_(before)
        for generator, before in zip(generators(self.model), state[len(self._buffers) :], strict=True):
            generator.set_state(before)

    def gradients(self, places: Tensor, shown: Tensor, state: tuple[Tensor, ...]) -> None:
        """Compute those of one step from this state, of zeros in place of a chunk that is not shown.

        Args:
            places: of each teacher's records, shape (teachers, batch). shown: shape (teachers,), bool.
        """
        self._restore(state)
        self._optimiser.zero_grad()
        inputs, targets = (select(tree, places.to(tensors(tree)[0].device)) for tree in self.records)
        if not bool(shown.all()):
            for leaf in (*tensors(inputs), *tensors(targets)):
                leaf[~shown] = 0
        # Each teacher's own loss: the gradient of their sum, with respect to one's weights, is that of its own.
        self._losses(inputs, targets).sum().backward()

    def _losses(self, inputs: TensorTree, targets: TensorTree) -> Tensor:
        if self._at_once:
            found: Tensor = torch.func.vmap(self._loss, randomness="different")(self._values, inputs, targets)
            return found
        alone = (select(tree, 0) for tree in (inputs, targets))
        return self._loss({name: value[0] for name, value in self._values.items()}, *alone)

    def _loss(self, weights: Values, inputs: TensorTree, targets: TensorTree) -> Tensor:
        return self.how.loss(call(self.model, weights, inputs), targets)

    def step(self) -> None:
        """Update by the gradients. A teacher whose gradient is not finite in any place takes no step by it."""
        grads = [parameter.grad for parameter in self._holder if parameter.grad is not None]
        sane = torch.stack([grad.isfinite().reshape(len(grad), -1).all(dim=1) for grad in grads]).all(dim=0)
        for grad in grads:
            grad[~sane] = 0
        self._optimiser.step()

    def values(self) -> Values:
        """Those learned so far, stacked."""
        return {name: value.detach() for name, value in self._values.items()}


def _side_by_side(course: _Course, draws: _Draws, alive: Tensor) -> tuple[Values, Tensor]:
    with own_draws(course.model, course.how.seed + 1):
        for places in draws.batches():
            _, alive = without_broken(partial(course.gradients, places, state=course.state()), alive)
            course.step()
    return course.values(), alive


def _one_by_one(course: _Course, draws: _Draws, alive: Tensor) -> tuple[Values, Tensor]:
    """Each from the values of the course, with draws of its own, so that where one ends changes no other's."""
    found, alive = course.values(), alive.clone()
    for place in torch.nonzero(alive).flatten().tolist():
        one = {name: value[place : place + 1] for name, value in found.items()}
        try:
            alone = _Course(course.model, course.records, one, course.how, at_once=False)
            with own_draws(course.model, course.how.seed + 1 + place):
                for places in draws.batches():
                    alone.gradients(places[place : place + 1], torch.ones(1, dtype=torch.bool), alone.state())
                    alone.step()
        except Exception:  # noqa: BLE001 - whatever it is, it would show this chunk
            alive[place] = False
            continue
        for name, value in alone.values().items():
            found[name][place] = value[0]
    return found, alive


def _first(model: nn.Module) -> Values:
    """The model's own parameters and buffers, without gradients."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach() for name, tensor in named.items()}
