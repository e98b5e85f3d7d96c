"""What one record's pass leaves for the next: run one after the other, records must not meet in the model's memory.

Under ``torch.func.vmap`` all records pass at once and none can leave anything. In turn they could: a tensor that is
kept and written to, or put in the place of another, is invisible to every comparison of outputs until some record
makes a difference. So the model is watched, not compared: a pass writes only into tensors that it made itself, and
reads nothing that another pass made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ledger.wire.malformed import Malformed


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
        read = dict(_held((args, named)))
        specs = func._schema.arguments  # noqa: SLF001 - where an operator says what it writes
        given = {spec.name: value for spec, value in zip(specs, args, strict=False)} | named
        written = dict(_held([given.get(one.name) for one in specs if one.alias_info and one.alias_info.is_write]))
        self.met |= bool(read.keys() & self._others.keys() or written.keys() - self.made.keys())
        found: object = func(*args, **named)
        # Held, so that no other memory comes to lie in the same place.
        self.made |= {place: leaf for place, leaf in _held(found) if place not in read}
        return found


def _held(value: object) -> Iterator[tuple[int, Tensor]]:
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor) and (place := leaf.untyped_storage().data_ptr()):
            yield place, leaf


def check_carries_nothing(run: Callable[[], object]) -> None:
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
