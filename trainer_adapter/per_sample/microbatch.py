"""The clipped gradient sum of one microbatch, traced into a graph of plain tensor operations.

The model is run once with every unit alone under ``torch.func.vmap`` (no layer can mix two of them, even if it would),
one backward pass goes to the outputs of its layers and no further, norms are taken of each unit's gradient, and one
weighted product a parameter gives the sum. All of it is traced once, on public dummies, into a graph of fixed shapes:
what the records hold cannot change which operations run on them. The graph runs as it is (*eager*) or compiled.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from ledger.wire.malformed import Malformed
from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.functional_call import call
from trainer_adapter.per_sample.autotune import choose
from trainer_adapter.per_sample.gradient_factors import DenseGrad, PerExampleGrad
from trainer_adapter.per_sample.gradient_norms import KERNELS
from trainer_adapter.per_sample.layer_capture import LayerCallCapture, parameters_with_rules
from trainer_adapter.per_sample.layer_rules import Layer
from trainer_adapter.per_sample.model_checks import RefuseRandomness, check_stateless
from trainer_adapter.per_sample.rounding_margins import Precision
from trainer_adapter.per_sample.sequential import Each, sequential_vmap, vectorised

LossFn: TypeAlias = Callable[[Tensor, Tensor], Tensor]
_ADD: Final = torch.ops.aten.add.Tensor
_DETACH: Final = torch.ops.aten.detach.default
_PARTS: Final = 5


@dataclass(frozen=True, slots=True)
class Batch:
    """The tensors of one microbatch.

    Attributes:
        inputs, targets: shape (units, records, ...): the records of each unit, in a fixed number of places.
        valid: which of those places hold a record, shape (units, records).
        mask: which units were drawn, shape (units,).
        keys: the key of each record's dropout masks, shape (units, records, 2); see ``dropout``.
    """

    inputs: Tensor
    targets: Tensor
    valid: Tensor
    mask: Tensor
    keys: Tensor


class MicrobatchGradientSum:
    """The clipped sum over one microbatch, for one model, loss, size and precision.

    Attributes:
        kernels: which kernel computes a parameter's norms, by the parameter's name.
        drops: how many dropout masks a record's forward pass draws.
    """

    kernels: Mapping[str, str]

    def __init__(  # noqa: PLR0913 - one name for each thing the graph depends on
        self,
        model: nn.Module,
        loss_fn: LossFn,
        trained: Mapping[str, Tensor],
        rest: Mapping[str, Tensor],
        dummies: Batch,
        *,
        bound: float,
        precision: Precision,
        compiled: bool,
    ) -> None:
        """Trace the graph on public dummies, which have its final shapes.

        Raises:
            Malformed: if the model does not run record by record, or cannot be traced or compiled.
        """
        self._model, self._loss_fn, self._bound, self._precision = model, loss_fn, bound, precision
        self._names, self._rest_names = list(trained), list(rest)
        self._shapes = {name: value.shape for name, value in trained.items()}
        self._device = dummies.inputs.device
        self._layers: list[Layer] = []
        self.drops = 0
        self._each: Each = vectorised
        trained = {name: value.detach() for name, value in trained.items()}
        tensors = [*trained.values(), *rest.values(), *_parts(dummies)]
        try:
            with _quietly():
                self._ruled = self._find_ruled(trained, rest, dummies)
                self._probes = self._make_probes(trained, rest, dummies)
                graph = self._trace_either_way([*tensors, *self._probes], lambda: self._pass(trained, rest, dummies))
        except RuntimeError as fault:
            raise Malformed("model", f"gives no gradients record by record: {_first_line(fault)}") from fault
        _drop_probes(graph, len(self._probes))
        self._run: Callable[..., Tensor] = graph
        if compiled:
            self._run = self._compile(graph, tensors)

    def __call__(self, trained: Mapping[str, Tensor], rest: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The sum, flat, shape (parameters,), in the work type; private.

        Raises:
            Malformed: if PyTorch is set to round products more than the bound on their rounding allows.
        """
        if torch.get_float32_matmul_precision() != "highest":
            raise Malformed("precision", "needs torch.set_float32_matmul_precision('highest'): products must be exact")
        with torch.no_grad(), _full_convolutions(), torch.autocast(self._device.type, enabled=False):
            return self._run(*trained.values(), *rest.values(), *_parts(batch), *self._probes)

    def _find_ruled(self, trained: Mapping[str, Tensor], rest: Mapping[str, Tensor], dummies: Batch) -> list[str]:
        with self._autocast():
            return parameters_with_rules(self._model, trained, rest, dummies.inputs[0, :1], dummies.keys[0, 0])

    def _pass(self, trained: Mapping[str, Tensor], rest: Mapping[str, Tensor], dummies: Batch) -> None:
        """One record's forward pass, on tensors of its own."""
        inputs, target, key = (part.clone() for part in (dummies.inputs[0, :1], dummies.targets[0, :1], dummies.keys))
        with torch.no_grad(), PerExampleDropout(key[0, 0]), self._autocast():
            outputs: Any = call(self._model, {**rest, **trained}, inputs)
        self._loss_fn(outputs.to(torch.float32), target)

    def _trace_either_way(self, tensors: Sequence[Tensor], one_pass: Callable[[], None]) -> GraphModule:
        """With all units at once, or else one after the other."""
        try:
            return self._traced(tensors)
        except RuntimeError as fault:
            check_stateless(one_pass)
            self._each = sequential_vmap
            try:
                return self._traced(tensors)
            except RuntimeError as again:
                both = f"{_first_line(fault)} (and in turn: {_first_line(again)})"
                raise Malformed("model", f"gives no gradients record by record: {both}") from fault

    def _traced(self, tensors: Sequence[Tensor]) -> GraphModule:
        # What vmap refuses by itself: randomness of no record, and Python that takes a value out of a tensor, for
        # which a trace over tensors without values has none.
        alone = self._each is sequential_vmap
        with RefuseRandomness(self._device) if alone else nullcontext():
            found = self._factors(tensors)
        self.kernels = {name: choose(its, self._shapes[name].numel(), self._precision) for name, its in found.items()}
        if alone:
            return make_fx(self._sum, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
        # One fake mode for the shapes of all nodes: PyTorch would make one for each, half of the time of a trace.
        with tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True))):
            return make_fx(self._sum)(*tensors)

    def _compile(self, graph: GraphModule, tensors: Sequence[Tensor]) -> Callable[..., Tensor]:
        run: Callable[..., Tensor] = torch.compile(graph, fullgraph=True, dynamic=False)
        try:
            with torch.no_grad(), _quietly(), torch.autocast(self._device.type, enabled=False):
                run(*tensors, *self._probes)
        except Exception as fault:
            raise Malformed("compiled", f"the model does not compile: {_first_line(fault)}") from fault
        return run

    def _sum(self, *tensors: Tensor) -> Tensor:
        mask = tensors[len(self._names) + len(self._rest_names) + 3]
        factors = self._factors(tensors)
        parts = [KERNELS[self.kernels[name]](factors[name], self._precision) for name in self._names]
        norms = torch.stack([squares for squares, _ in parts]).sum(dim=0).sqrt()
        # A gradient that is not finite counts for nothing; the mask comes after clipping.
        counts = torch.isfinite(norms) & mask
        weights = self._bound / torch.clamp(norms, min=self._bound)
        # A weight that underflows could be rounded up by a factor; what is so long counts for nothing.
        weights = torch.where(counts & (weights >= self._precision.tiny), weights, 0.0).to(self._precision.work)
        return torch.cat([summed(weights).flatten() for _, summed in parts])

    def _factors(self, tensors: Sequence[Tensor]) -> dict[str, list[PerExampleGrad]]:
        """Per-record gradients by parameter: one forward pass, one backward pass to the outputs of layers."""
        at = len(self._names) + len(self._rest_names)
        values = dict(zip(self._names, tensors, strict=False))
        rest = dict(zip(self._rest_names, tensors[len(self._names) : at], strict=True))
        batch = Batch(*tensors[at : at + _PARTS])
        units = len(batch.mask)
        ruled = {name: values[name] for name in self._ruled}
        alone = {
            name: values[name].detach().expand(units, *values[name].shape).requires_grad_()
            for name in self._names
            if name not in ruled
        }
        probes = [probe.detach().requires_grad_() for probe in tensors[at + _PARTS :]]
        with torch.enable_grad():
            losses, saved = self._each(self._of_unit(ruled, rest))(
                alone, probes, batch.inputs, batch.targets, batch.valid, batch.keys
            )
            found = torch.autograd.grad(losses.sum(), [*probes, *alone.values()], materialize_grads=True)
        factors: dict[str, list[PerExampleGrad]] = {name: [] for name in self._names}
        for layer, one, grad in zip(self._layers, saved, found[: len(probes)], strict=True):
            held = one.detach()
            for name, factor in layer.factors(self._wide(held), self._wide(grad)):
                factors[name].append(factor)
        for name, grad in zip(alone, found[len(probes) :], strict=True):
            factors[name].append(DenseGrad(self._wide(grad)))
        return factors

    def _of_unit(self, ruled: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> Callable[..., Any]:
        def one(alone: dict[str, Tensor], probes: list[Tensor], *record: Tensor) -> tuple[Tensor, list[Tensor]]:
            inputs, target, key = record
            inputs, target = inputs.unsqueeze(0), target.unsqueeze(0)
            capture, dropping = LayerCallCapture(ruled, probes), PerExampleDropout(key)
            with capture, dropping, self._autocast():
                outputs: Any = call(self._model, {**rest, **ruled, **alone}, inputs)
            self._layers, self.drops = capture.layers, dropping.calls
            if capture.uncovered:
                name = min(capture.uncovered)
                raise Malformed(f"model.{name}", "is not used the same way twice: what a run does must be fixed")
            return self._loss_fn(outputs.to(torch.float32), target).sum(), capture.saved

        def unit(alone: dict[str, Tensor], probes: list[Tensor], *records: Tensor) -> tuple[Tensor, list[Tensor]]:
            inputs, targets, valid, keys = records
            if len(inputs) == 1:
                return one(alone, probes, inputs[0], targets[0], keys[0])
            each = self._each(one, in_dims=(None, 0, 0, 0, 0))
            losses, saved = each(alone, probes, inputs, targets, keys)
            return torch.where(valid, losses, 0.0).sum(), saved

        return unit

    def _make_probes(self, trained: Mapping[str, Tensor], rest: Mapping[str, Tensor], dummies: Batch) -> list[Tensor]:
        capture = LayerCallCapture({name: trained[name] for name in self._ruled}, None)
        with torch.no_grad(), capture, PerExampleDropout(dummies.keys[0, 0]), self._autocast():
            call(self._model, {**rest, **trained}, dummies.inputs[0, :1])
        units, records = dummies.valid.shape
        lead = (units,) if records == 1 else (units, records)
        return [torch.zeros((*lead, *shape), dtype=dtype, device=self._device) for shape, dtype in capture.outputs]

    def _autocast(self) -> torch.autocast:
        dtype = self._precision.autocast
        return torch.autocast(self._device.type, dtype=dtype, enabled=dtype is not None)

    def _wide(self, value: Tensor) -> Tensor:
        return value.to(self._precision.work) if value.is_floating_point() else value


@contextmanager
def _quietly() -> Iterator[None]:
    """Without PyTorch's own warnings: deprecated names it uses, functions it runs record by record."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


def _full_convolutions() -> AbstractContextManager[object]:
    """Convolutions in all of float32's bits on a GPU too, where PyTorch would leave ten of them by default."""
    cudnn = torch.backends.cudnn
    settings: AbstractContextManager[object] = cudnn.flags(
        enabled=cudnn.enabled, benchmark=cudnn.benchmark, deterministic=cudnn.deterministic, allow_tf32=False
    )
    return settings


def _parts(batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return batch.inputs, batch.targets, batch.valid, batch.mask, batch.keys


def _drop_probes(graph: GraphModule, count: int) -> None:
    """Take the zeros out again: their gradients are in the graph already, and x + 0 is x."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for probe in placeholders[len(placeholders) - count :]:
        for detached in [user for user in probe.users if user.target is _DETACH]:
            for addition in [user for user in detached.users if user.target is _ADD]:
                other = addition.args[0]
                if isinstance(other, Node) and other is not detached and _same_shape(other, addition):
                    addition.replace_all_uses_with(other)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _same_shape(one: Node, other: Node) -> bool:
    return bool(one.meta["val"].shape == other.meta["val"].shape and one.meta["val"].dtype == other.meta["val"].dtype)


def _first_line(fault: BaseException) -> str:
    return (str(fault).splitlines() or [type(fault).__name__])[0][:200]
