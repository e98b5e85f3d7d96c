"""Activation checkpointing (gradient checkpointing; Chen et al. 2016, arXiv 1604.06174), left out.

A per-example gradient needs the inputs of every layer until its norm is known, and a trace cannot run a part of the
model again within its backward pass. A function under ``torch.utils.checkpoint.checkpoint`` gives the same outputs and
gradients without it, so it runs as it is, and the run reports it: what bounds memory here is the microbatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils import checkpoint


class LeftOut:
    """Takes the place of both ways of ``torch.utils.checkpoint.checkpoint``.

    Attributes:
        calls: how many calls were run without it.
    """

    def __init__(self) -> None:
        """None yet."""
        self.calls = 0

    def apply(self, function: Callable[..., Any], _preserve: object, *args: Any) -> Any:  # noqa: ANN401 - as the function's
        """As ``CheckpointFunction.apply``, of ``use_reentrant=True``."""
        self.calls += 1
        return function(*args)

    def around(self, *_args: object, **_named: object) -> Iterator[None]:
        """What goes before and after the function, of ``use_reentrant=False``: nothing."""
        self.calls += 1
        yield


@contextmanager
def without_checkpoints() -> Iterator[LeftOut]:
    """Within it checkpointed functions run as they are; nested, as the outermost."""
    if isinstance(checkpoint.CheckpointFunction, LeftOut):
        yield checkpoint.CheckpointFunction
        return
    names: Any = checkpoint  # both ways are names of the module, which every copy of the public function looks up
    before = names.CheckpointFunction, names._checkpoint_without_reentrant_generator  # noqa: SLF001 - as above
    instead = LeftOut()
    try:
        names.CheckpointFunction, names._checkpoint_without_reentrant_generator = instead, instead.around  # noqa: SLF001 - as above
        yield instead
    finally:
        names.CheckpointFunction, names._checkpoint_without_reentrant_generator = before  # noqa: SLF001 - as above
