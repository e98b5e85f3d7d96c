"""The clipped gradient sum of one microbatch, traced into a graph of plain tensor operations.

The model is run once with every unit alone under ``torch.func.vmap`` (no layer can mix two of them, even if it would),
one backward pass goes to the outputs of its layers and no further, norms are taken of each unit's gradient, and one
weighted product a parameter gives the sum. All of it is traced once, on public dummies, into a graph of fixed shapes:
what the records hold cannot change which operations run on them. The graph runs as it is (*eager*) or compiled.

Not every function has a batching rule for ``vmap``, and none may write a unit's values into a tensor that all share.
Such a model is run once for each unit, in one graph (``unit_maps.looped``): it runs as it does for its author, and the
graph is as many times as long; rules for layers, norms and products stay what they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ledger.wire.malformed import Malformed
from trainer_adapter.gpu_kernels.graph_replay import replayed
from trainer_adapter.gpu_kernels.tensor_core_product import full_sums
from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.index_guard import IndexGuard
from trainer_adapter.layers.memory_shortage import raise_if_short
from trainer_adapter.layers.tensor_trees import TensorTree, map_tensors, select
from trainer_adapter.layers.weight_writes import unwritten
from trainer_adapter.per_sample.autotune import choose, margin_of
from trainer_adapter.per_sample.gradient_factors import DenseGrad, PerExampleGrad, rounded
from trainer_adapter.per_sample.gradient_norms import KERNELS
from trainer_adapter.per_sample.graph_execution import Compiled, drop_probes, execution_of
from trainer_adapter.per_sample.layer_capture import LayerCallCapture, parameters_with_rules
from trainer_adapter.per_sample.layer_rules import Factors
from trainer_adapter.per_sample.model_checks import RefuseRandomness, check_stateless, first_line
from trainer_adapter.per_sample.record_loss import RecordLoss
from trainer_adapter.per_sample.unit_maps import UnitMap, looped, vectorised


class Batch(NamedTuple):
    """The tensors of one microbatch.

    Attributes:
        inputs, targets: tensors or trees of them, (units, records, ...): the records of each unit, in a fixed number
            of places.
        valid: which of those places hold a record, shape (units, records).
        mask: which units were drawn, shape (units,).
        keys: the key of each record's dropout masks, shape (units, records, 2); see ``dropout``.
    """

    inputs: TensorTree
    targets: TensorTree
    valid: Tensor
    mask: Tensor
    keys: Tensor


class ClippedSum(NamedTuple):
    """What a microbatch's graph gives; private.

    Attributes:
        total: the sum of clipped gradients, flat, shape (parameters,), in the work type.
        norms: what each unit's norm was taken for, shape (units,), float64.
    """

    total: Tensor
    norms: Tensor


class MicrobatchGradientSum:
    """The clipped sum over one microbatch, for one record loss and one size.

    Attributes:
        margin: by how much computed norms are above true ones, relative, for orthogonal positions: see ``autotune``.
        kernels: which kernel computes a parameter's norms, by the parameter's name.
        compiled: whether the graph is compiled.
        drops: how many dropout masks a record's forward pass draws.
    """

    kernels: Mapping[str, str]
    margin: float

    def __init__(  # noqa: PLR0913 - one name for each thing that decides the graph
        self,
        record: RecordLoss,
        values: Mapping[str, Tensor],
        dummies: Batch,
        *,
        bound: float,
        compiled: Compiled = False,
        runs: int = 1,
        guarded: bool | None = None,
    ) -> None:
        """Trace the graph on public dummies, which have its final shapes.

        Args:
            compiled, runs: whether the graph is compiled, and how often it will run: see ``graph_execution``.
            guarded: whether the graph itself holds indices to their range (``index_guard``); None: not where it runs as
                it is on a CPU, where one that is outside raises.

        Raises:
            Malformed: if the model does not run record by record, writes into one of ``values``, or cannot be traced or
                compiled.
        """
        self._record, self._precision, self._bound = record, record.precision, bound
        # What is compiled is found again on disk where it is the same graph, so with the same kernels.
        self._on_disk = compiled is not False
        self._names = list(values)
        self._device = dummies.mask.device
        # A kernel that is compiled for a CPU ends the process as well, where several threads run it.
        self._guarded = self._device.type != "cpu" or self._on_disk if guarded is None else guarded
        flat, self._form = tree_flatten(dummies)
        self._layers: list[Factors] = []
        self.drops = 0
        self._map: UnitMap = vectorised
        tensors = [*values.values(), *flat]
        try:
            with _quietly(), unwritten(values, values=True, erase=False):
                self._ruled, outputs = parameters_with_rules(record, values, _first(dummies.inputs), dummies.keys[0, 0])
                self._probes = self._zeros(dummies, outputs)
                graph = self._trace_either_way([*tensors, *self._probes], lambda: self._pass(values, dummies))
        except RuntimeError as error:
            raise_if_short(error)
            raise Malformed("model", f"gives no gradients record by record: {first_line(error)}") from error
        drop_probes(graph, len(self._probes))
        run, self.compiled = execution_of(compiled, graph, [*tensors, *self._probes], runs)
        with self._exactly():
            self._run = replayed(lambda *given: run(*given, *self._probes), tensors, len(values))

    def __call__(self, values: Mapping[str, Tensor], batch: Batch) -> ClippedSum:
        """The sum, and the norms that its units were clipped by.

        Raises:
            Malformed: if PyTorch is set to round products more than the bound on their rounding allows, or if the model
                writes into one of ``values``, which is erased then.
        """
        if torch.get_float32_matmul_precision() != "highest":
            raise Malformed("precision", "needs torch.set_float32_matmul_precision('highest'): products must be exact")
        # On a processor with units of few bits; cuDNN is set for the pass. PyTorch's types lack it.
        on_cpu: Any = torch.backends.mkldnn
        if on_cpu.conv.fp32_precision not in {"none", "ieee"}:
            rule = "needs torch.backends.mkldnn.conv.fp32_precision = 'ieee': convolutions must be exact"
            raise Malformed("precision", rule)
        with self._exactly(), unwritten(values):
            return ClippedSum(*self._run(*(values[name] for name in self._names), *tree_flatten(batch)[0]))

    @contextmanager
    def _exactly(self) -> Iterator[None]:
        """As the graph is run, and recorded where it is replayed."""
        with torch.no_grad(), _full_convolutions(), full_sums(), torch.autocast(self._device.type, enabled=False):
            yield

    def _zeros(self, dummies: Batch, outputs: Sequence[tuple[torch.Size, torch.dtype]]) -> list[Tensor]:
        """The probes, one for each captured output of a record."""
        units, records = dummies.valid.shape
        lead = (units,) if records == 1 else (units, records)
        return [torch.zeros((*lead, *shape), dtype=dtype, device=self._device) for shape, dtype in outputs]

    def _pass(self, values: Mapping[str, Tensor], dummies: Batch) -> None:
        """One record's forward pass, on tensors of its own."""
        parts = (_first(dummies.inputs), _first(dummies.targets), dummies.keys)
        inputs, targets, key = (map_tensors(Tensor.clone, part) for part in parts)
        with torch.no_grad():
            outputs = self._record.outputs(values, inputs, PerExampleDropout(key[0, 0]))
        self._record.loss(outputs, targets)

    def _trace_either_way(self, tensors: Sequence[Tensor], one_pass: Callable[[], None]) -> GraphModule:
        """With all units at once, or else one after the other.

        Some models look at values where they run as they are, and not where they are compiled, as those of Transformers
        at masks. So before units go one after the other, the model is traced as one that is being compiled.
        """
        failed: list[RuntimeError] = []
        for mode, each in ((nullcontext, vectorised), (_compile_session, vectorised), (nullcontext, looped)):
            if each is looped:
                check_stateless(one_pass)
            self._map = each
            try:
                with mode():
                    return self._trace(tensors)
            except RuntimeError as error:
                raise_if_short(error)
                failed.append(error)
        both = f"{first_line(failed[0])} (and in turn: {first_line(failed[-1])})"
        raise Malformed("model", f"gives no gradients record by record: {both}") from failed[0]

    @property
    def in_turn(self) -> bool:
        """Whether the graph holds the model once for each unit, since it cannot run vectorised."""
        return self._map is looped

    def _trace(self, tensors: Sequence[Tensor]) -> GraphModule:
        # What vmap refuses by itself: randomness of no record, and Python that takes a value out of a tensor, for
        # which a trace over tensors without values has none.
        alone = self._map is looped
        with RefuseRandomness(self._device) if alone else nullcontext():
            factors = self._factors(tensors)
        sizes = {name: value.numel() for name, value in zip(self._names, tensors, strict=False)}
        self.kernels = {
            name: choose(own, sizes[name], self._precision, on_disk=self._on_disk) for name, own in factors.items()
        }
        self.margin = max(margin_of(self.kernels[name], own, self._precision) for name, own in factors.items())
        if alone:
            return make_fx(self._sum, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
        # One fake mode for the shapes of all nodes: PyTorch would make one for each, half of the time of a trace.
        with tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True))):
            return make_fx(self._sum)(*tensors)

    def _sum(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        factors = self._factors(tensors)
        parts = [KERNELS[self.kernels[name]](factors[name], self._precision) for name in self._record.trained]
        norms = torch.stack([squares for squares, _ in parts]).sum(dim=0).sqrt()
        # A gradient that is not finite counts for nothing; the mask comes after clipping.
        counts = torch.isfinite(norms) & self._batch(tensors).mask
        weights = self._bound / torch.clamp(norms, min=self._bound)
        # A weight that underflows could be rounded up by a factor; what is so long counts for nothing.
        weights = torch.where(counts & (weights >= self._precision.tiny), weights, 0.0).to(self._precision.work)
        return torch.cat([summed(weights).flatten() for _, summed in parts]), norms

    def _batch(self, tensors: Sequence[Tensor]) -> Batch:
        batch: Batch = tree_unflatten(list(tensors[len(self._names) :][: self._form.num_leaves]), self._form)
        return batch

    def _factors(self, tensors: Sequence[Tensor]) -> dict[str, list[PerExampleGrad]]:
        """Per-record gradients by parameter: one forward pass, one backward pass to the outputs of layers."""
        values, batch = dict(zip(self._names, tensors, strict=False)), self._batch(tensors)
        ruled = {name: values[name] for name in self._ruled}
        alone = {
            name: values[name].detach().expand(len(batch.mask), *values[name].shape).requires_grad_()
            for name in self._record.trained
            if name not in ruled
        }
        probes = [probe.detach().requires_grad_() for probe in tensors[len(self._names) + self._form.num_leaves :]]
        with torch.enable_grad():
            losses, saved = self._map(self._of_unit(values, ruled))(
                alone, probes, batch.inputs, batch.targets, batch.valid, batch.keys
            )
            grads = torch.autograd.grad(losses.sum(), [*probes, *alone.values()], materialize_grads=True)
        factors: dict[str, list[PerExampleGrad]] = {name: [] for name in self._record.trained}
        for uses, kept_input, grad in zip(self._layers, saved, grads[: len(probes)], strict=True):
            kept, wide = self._wide(kept_input.detach()), self._wide(grad)
            for name, gradient_of in uses:
                if name is not None:
                    factors[name].append(rounded(gradient_of(kept, wide), self._precision.product))
        for name, grad in zip(alone, grads[len(probes) :], strict=True):
            factors[name].append(DenseGrad(self._wide(grad)))
        return factors

    def _of_unit(self, values: Mapping[str, Tensor], ruled: Mapping[str, Tensor]) -> Callable[..., Any]:
        def one(alone: dict[str, Tensor], probes: list[Tensor], *record: TensorTree) -> tuple[Tensor, list[Tensor]]:
            inputs, target, key = record
            assert isinstance(key, Tensor)
            capture, dropping = LayerCallCapture(ruled, probes), PerExampleDropout(key)
            guard = IndexGuard() if self._guarded else None
            with capture, guard or nullcontext():
                outputs = self._record.outputs({**values, **alone}, map_tensors(_alone, inputs), dropping)
            self._layers, self.drops = capture.factors, dropping.calls
            if capture.uncovered:
                name = min(capture.uncovered)
                raise Malformed(f"model.{name}", "is not used the same way twice: what a run does must be fixed")
            with guard or nullcontext():
                loss = self._record.loss(outputs, map_tensors(_alone, target))
            factor = None if guard is None else guard.factor()
            return loss if factor is None else loss * factor, capture.saved

        def unit(alone: dict[str, Tensor], probes: list[Tensor], *records: TensorTree) -> tuple[Tensor, list[Tensor]]:
            inputs, targets, valid, keys = records
            assert isinstance(valid, Tensor)
            if len(valid) == 1:
                return one(alone, probes, *(select(part, 0) for part in (inputs, targets, keys)))
            each = self._map(one, in_dims=(None, 0, 0, 0, 0))
            losses, saved = each(alone, probes, inputs, targets, keys)
            return torch.where(valid, losses, 0.0).sum(), saved

        return unit

    def _wide(self, value: Tensor) -> Tensor:
        return value.to(self._precision.work) if value.is_floating_point() else value


def _first(tree: TensorTree) -> Any:  # noqa: ANN401 - a tree
    """The first record of the first unit, (1, ...)."""
    return select(tree, (0, slice(1)))


def _alone(record: Tensor) -> Tensor:
    """One record as a batch of one."""
    return record.unsqueeze(0)


def _compile_session() -> AbstractContextManager[None]:
    """Within it ``torch.compiler.is_compiling()`` is true."""
    return torch.compiler._compile_session_context()  # noqa: SLF001 - a trace has no public way to say that it is one


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
