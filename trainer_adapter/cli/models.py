"""The models a run can name; what they do before their first layer is public and looks at one record.

A name with a colon, as ``networks.py:small``, is a function in a file beside the job: see
:mod:`trainer_adapter.cli.user_model`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.cli.user_model import own_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PIXELS: Final = 64
CLASSES: Final = 10
HIDDEN: Final = 32
BACKGROUND: Final = 0.3
"""Public knowledge: near the average ink of a digit. The partition's own mean would cost budget."""


class Centred(nn.Module):
    """Images (records, ...) flattened, less a public constant."""

    def forward(self, images: Tensor) -> Tensor:
        """Shape (records, values)."""
        return images.flatten(1) - BACKGROUND


def make(name: str, folder: Path | None = None, seed: int = 0) -> nn.Module:
    """A fresh model whose first weights are public: the same for the same name and seed.

    Args:
        name: ``digits-linear`` (logistic regression) or ``digits-mlp`` (one layer of 32 tanh units), which take
            images (records, 64) or (records, 8, 8) with values from 0 to 1 and give ten scores; or FILE:FUNCTION.
        folder: where FILE is looked for.
        seed: of the first weights.

    Raises:
        Malformed: for a name that is not known, or a file or a function that gives no model.
    """
    if folder is not None and ":" in name:
        given: Callable[[], nn.Module] = partial(own_model, folder, name)
    elif name in _MODELS:
        given = _MODELS[name]
    else:
        raise Malformed("model", f"must be one of {', '.join(sorted(_MODELS))}, or FILE:FUNCTION")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return given()


def _digits_linear() -> nn.Module:
    head = nn.Linear(PIXELS, CLASSES)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(Centred(), head)


def _digits_mlp() -> nn.Module:
    return nn.Sequential(Centred(), nn.Linear(PIXELS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))


_MODELS: Final[dict[str, Callable[[], nn.Module]]] = {
    "digits-linear": _digits_linear,
    "digits-mlp": _digits_mlp,
}
