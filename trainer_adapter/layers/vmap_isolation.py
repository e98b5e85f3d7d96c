"""What keeps teachers that are computed together apart: who raises by itself, and which functions would mix them.

``vmap`` isolates teachers with a few exceptions: of some functions it makes one table of all teachers' tables, in which
an index beyond a teacher's own part is no error and reaches the part of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ledger.wire.malformed import Malformed

Given = TypeVar("Given")
_ONE_TABLE: Final = frozenset({"embedding", "embedding_renorm_", "_embedding_bag", "index_fill", "index_fill_"})
"""PyTorch's operators that ``vmap`` computes in one table (2.13: each was tried with an index out of range)."""


class _RefuseOneTable(TorchDispatchMode):
    """Refuses operators by which ``vmap`` would let one teacher's index reach another's numbers. Raises: Malformed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no type for it

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operator; torch has no type for it
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Called by PyTorch in the place of ``func``, below ``vmap``."""
        del types
        if func._schema.name.removeprefix("aten::") in _ONE_TABLE:  # noqa: SLF001 - where an operator has its name
            raise Malformed("model", "looks into one table for all teachers")
        result: object = func(*args, **(kwargs or {}))
        return result


def runs_apart(run: Callable[[], object]) -> bool:
    """Whether one computation of all teachers raises nothing and mixes none of them, asked with public values."""
    with _RefuseOneTable():
        return not _raises(run)


def without_broken(run: Callable[[Tensor], Given], shown: Tensor) -> tuple[Given, Tensor]:
    """What ``run`` gives for those of the shown teachers that do not raise by themselves; and which these are.

    Args:
        run: the one computation of all teachers, with public values in the places that it is not shown.
        shown: shape (teachers,), bool.

    Raises:
        Exception: what ``run`` raises when it is shown none of them, which no record is the reason of.
    """
    try:
        return run(shown), shown
    except Exception:  # noqa: BLE001 - whatever it is, it would show a chunk
        run(torch.zeros_like(shown))
    sound = shown & ~_broken(run, shown)
    return run(sound), sound


def _broken(run: Callable[[Tensor], object], shown: Tensor) -> Tensor:
    """Which of some teachers, for whom ``run`` raises, raise by themselves: in a half that runs none does."""
    places, found = torch.nonzero(shown).flatten(), torch.zeros_like(shown)
    if len(places) <= 1:
        return shown
    for half in places.tensor_split(2):
        part = torch.zeros_like(shown)
        part[half] = True
        if _raises(partial(run, part)):
            found |= _broken(run, part)
    return found


def _raises(run: Callable[[], object]) -> bool:
    try:
        run()
    except Exception:  # noqa: BLE001 - a model may raise anything
        return True
    return False
