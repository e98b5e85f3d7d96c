"""The update of one weight by a rule that a step's tail knows, so that noise and update are one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torch import Tensor

MEAN: Final = 0
SGD: Final = 1
ADAM: Final = 2
FACTORS: Final = 9
"""Numbers of one weight's update."""


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """The update of one weight at one step.

    Attributes:
        weight: float32, contiguous.
        first, second: moments of its shape, which the update writes; None where the rule has none.
        factors: of SGD sign, decay, momentum, 1 - dampening, 1 if Nesterov's, 1 if the moment is new, rate, 0, 0; of
            Adam sign, decay, 1 - rate * decoupled decay, 1 - beta1, beta2, 1 - beta2, rate / bias correction 1, the
            root of bias correction 2, epsilon.
    """

    weight: Tensor
    first: Tensor | None
    second: Tensor | None
    factors: tuple[float, ...]
