"""The engine on neighbouring partitions: what each unit adds, and what one unit more or less can change.

``contributions`` takes apart what the engine adds up. ``replay`` runs the same step, on the same randomness,
over two partitions that differ in one unit, and shows what differs: one contribution, and a sum moved by at
most the clipping norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainer_adapter.dpsgd.csprng import CsprngRandomness
    from trainer_adapter.dpsgd.engine import Engine
    from trainer_adapter.layers.dropout import Keys


def contributions(engine: Engine, drawn: NDArray[np.int64], keys: Keys | None = None) -> Tensor:
    """What each unit drawn adds to the sum, each in the microbatch it is really in; ``keys`` as the engine's.

    Returns:
        Shape (units drawn, parameters), float64; private.
    """
    parts = []
    for batch in engine.microbatches(drawn):
        for place in batch.mask.nonzero()[0]:
            only = batch.only(int(place))
            parts.append(engine.clipped_sum([only], keys))
    return torch.stack(parts) if parts else torch.zeros((0, engine.size), dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one step did on two neighbouring partitions with the same randomness.

    Attributes:
        drawn: the units drawn, the same for both.
        differ: those whose contribution is not the same bit by bit.
        moved: L2 distance of the two sums.
    """

    drawn: tuple[int, ...]
    differ: tuple[int, ...]
    moved: float


def replay(engine: Engine, neighbour: Engine, step: int, one: CsprngRandomness, other: CsprngRandomness) -> Replayed:
    """Draw one step's units for both from equal randomness, and compare contribution by contribution.

    Args:
        engine, neighbour: of one plan and equal models, over partitions of equal size that differ in one unit.
        one, other: two generators with the same secret (only tests make such).
    """
    drawn, again = engine.draw(step, one), neighbour.draw(step, other)
    assert drawn.tolist() == again.tolist(), "a draw looks at sizes only"
    keys = [each.keys(step, its) for each, its in ((engine, one), (neighbour, other))]
    ours, theirs = contributions(engine, drawn, keys[0]), contributions(neighbour, drawn, keys[1])
    same = (ours == theirs).all(dim=1)
    engines = zip((engine, neighbour), keys, strict=True)
    sums = [each.clipped_sum(each.microbatches(drawn), its) for each, its in engines]
    return Replayed(
        tuple(drawn.tolist()),
        tuple(drawn[~same.cpu().numpy()].tolist()),
        float((sums[0] - sums[1]).norm()),
    )
