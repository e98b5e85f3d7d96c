"""How a microbatch's graph is run: as it was traced, compiled by TorchInductor, or whichever of both is faster here.

To compile takes tens of seconds and may make a graph slower, as that of a convolutional network whose gradients are few
large products. So ``"auto"`` compiles only where a run is long, measures both graphs on public dummies, and keeps the
faster. TorchInductor keeps what it compiled in its own cache on disk (``TORCHINDUCTOR_CACHE_DIR``), where the next run
of the same graph finds it; ``autotune`` keeps the choice of kernels there, so that it is the same graph.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ledger.wire.malformed import Malformed
from trainer_adapter.per_sample.model_checks import first_line

AUTO: Final = "auto"
Compiled: TypeAlias = bool | Literal["auto"]
Run: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
WORTH_S: Final = 600
"""Seconds that all runs of the traced graph must take: a shorter run would gain less than compiling costs."""
_ROUNDS: Final = 5
_ADD: Final = torch.ops.aten.add.Tensor
_DETACH: Final = torch.ops.aten.detach.default


def execution_of(compiled: Compiled, graph: GraphModule, tensors: Sequence[Tensor], runs: int) -> tuple[Run, bool]:
    """What runs the graph, and whether it is compiled.

    Args:
        compiled: whether to compile; ``"auto"`` decides by measurement.
        tensors: public dummies in the shapes of all arguments.
        runs: how often the graph will be run.

    Raises:
        Malformed: for another value, or for a graph that cannot be compiled though it must be.
    """
    if compiled not in (True, False, AUTO):
        raise Malformed("compiled", "must be true, false or 'auto'")
    if compiled is True:
        return _compile(graph, tensors), True
    if not compiled:
        return graph, False
    _call(graph, tensors)
    traced_s = _seconds(graph, tensors)
    if traced_s * runs < WORTH_S:
        return graph, False
    try:
        faster = _compile(graph, tensors)
    except Malformed:
        # Where nothing compiles, the traced graph is what there is.
        return graph, False
    # In turns, so that what else the machine does slows both.
    times = [(_seconds(graph, tensors), _seconds(faster, tensors)) for _ in range(_ROUNDS)]
    gains = min(measured for _, measured in times) < min(measured for measured, _ in times)
    return (faster, True) if gains else (graph, False)


def _compile(graph: GraphModule, tensors: Sequence[Tensor]) -> Run:
    run: Run = torch.compile(graph, fullgraph=True, dynamic=False)
    try:
        with warnings.catch_warnings():
            # PyTorch's own, on names that it uses.
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            _call(run, tensors)
    except Exception as error:
        raise Malformed("compiled", f"the model does not compile: {first_line(error)}") from error
    return run


def _call(run: Run, tensors: Sequence[Tensor]) -> None:
    with torch.no_grad(), torch.autocast(tensors[0].device.type, enabled=False):
        run(*tensors)


def _seconds(run: Run, tensors: Sequence[Tensor]) -> float:
    """By the clock: what people wait for, on as many cores as the run has."""
    on_gpu = tensors[0].is_cuda
    if on_gpu:
        torch.cuda.synchronize()
    start = time.perf_counter()
    _call(run, tensors)
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def drop_probes(graph: GraphModule, count: int) -> None:
    """Remove the last ``count`` inputs, zeros, of a traced graph: it holds their gradients already, and x + 0 is x."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for probe in placeholders[len(placeholders) - count :]:
        for detached in [user for user in probe.users if user.target is _DETACH]:
            for addition in [user for user in detached.users if user.target is _ADD]:
                other = addition.args[0]
                if isinstance(other, Node) and other is not detached and _same_shape(other, addition):
                    addition.replace_all_uses_with(other)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _same_shape(node: Node, other: Node) -> bool:
    return bool(node.meta["val"].shape == other.meta["val"].shape and node.meta["val"].dtype == other.meta["val"].dtype)
