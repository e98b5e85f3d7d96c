"""The models a run can name; what they do before their first layer is public and looks at one record.

``linear`` and ``mlp`` fit any table; a folder with ``config.json`` and weights as safetensors is a Transformers model.

A name with a colon, as ``networks.py:small``, is a function without arguments in a Python file beside the job: the
user's own model. Its digest is in the charge and in the clean room's evidence, as the job's pipeline is. No one reads
the code: the mechanism bounds what a model learns by training, not what code does that was written to leak records. A
policy or a provider that minds requires a pipeline.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

import torch
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.job_models.pretrained_folder import Task, pretrained
from trainer_adapter.layers.memory_shortage import NO_ROOM, is_out_of_memory

FILE_BYTES_MAX: Final = 1 << 20
ERROR_TEXT_MAX: Final = 300
PIXELS: Final = 64
CLASSES: Final = 10
HIDDEN: Final = 32
BACKGROUND: Final = 0.3
"""Public knowledge: near the average ink of a digit. The partition's own mean would cost budget."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of one record that a model takes, and those that it gives."""

    inputs: int
    outputs: int


class Centred(nn.Module):
    """Images (records, ...) flattened, less a public constant."""

    def forward(self, images: Tensor) -> Tensor:
        """Shape (records, values)."""
        return images.flatten(1) - BACKGROUND


def make(name: str, folder: Path | None = None, seed: int = 0, *, made_for: Shape | Task | None = None) -> nn.Module:
    """A fresh model whose first weights are public: the same for the same name and seed.

    Args:
        name: ``digits-linear`` (logistic regression) or ``digits-mlp`` (one layer of 32 tanh units), which take
            images (records, 64) or (records, 8, 8) with values from 0 to 1 and give ten scores; ``linear`` or ``mlp``,
            the same for any numbers; FILE:FUNCTION; or a folder of public weights.
        folder: where FILE, or the folder, is looked for.
        seed: of the first weights.
        made_for: what ``linear`` and ``mlp`` take and give, or what a folder's model is taken for.

    Raises:
        Malformed: for a name that is not known, or a file, a function or a folder that gives no model.
    """
    given: Callable[[], nn.Module]
    if folder is not None and ":" in name:
        given = partial(_own_model, folder, name)
    elif name in _MODELS:
        given = _MODELS[name]
    elif name in _SIZED and isinstance(made_for, Shape):
        given = partial(_SIZED[name], made_for)
    elif folder is not None and (folder / name).is_dir():
        given = partial(pretrained, folder / name, made_for if isinstance(made_for, Task) else Task())
    elif name.lower().replace("-", "_") in _TREES:
        raise Malformed("model", _NO_TREES)
    else:
        raise unknown(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return given()


def unknown(name: str) -> Malformed:
    """The error of a name that is none."""
    return Malformed(
        "model", f"must be one of {', '.join(sorted(_MODELS))}, or FILE:FUNCTION; or {_OTHERS}: not {name}"
    )


def is_sized(name: str) -> bool:
    """Whether the model is made for the records' size."""
    return name in _SIZED


def is_folder(name: str, folder: Path) -> bool:
    """Whether the model is a folder's."""
    return ":" not in name and name not in _MODELS and name not in _SIZED and (folder / name).is_dir()


def _linear(shape: Shape) -> nn.Module:
    head = nn.Linear(shape.inputs, shape.outputs)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(nn.Flatten(), head)


def _mlp(shape: Shape) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(shape.inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, shape.outputs))


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
_SIZED: Final[dict[str, Callable[[Shape], nn.Module]]] = {"linear": _linear, "mlp": _mlp}
_TREES: Final = ("gradient_boosted_trees", "lightgbm", "xgboost")
_NO_TREES: Final = (
    "gradient-boosted trees have no private engine here: it would need splits and leaf sums with a proven sensitivity, "
    "feature bounds that are public, and cryptographic noise that is charged for each tree"
)
_OTHERS: Final = "linear, mlp, or a folder of public weights beside the job"


def _own_model(folder: Path, name: str) -> nn.Module:
    """What the function ``FILE:FUNCTION`` gives.

    Raises:
        Malformed: naming ``model``, if there is no such file or function, if it raises, or gives no model.
    """
    file, _, function = name.rpartition(":")
    if not file.endswith(".py") or not function.isidentifier():
        raise Malformed("model", f"must be FILE.py:FUNCTION, which {name} is not")
    made = getattr(_module(folder / file, file), function, None)
    if not callable(made):
        raise Malformed("model", f"{file} has no function {function}")
    try:
        model = made()
    except (Exception, SystemExit) as error:
        raise _raised(name, error) from error
    if not isinstance(model, nn.Module):
        raise Malformed("model", f"{name} gave a {type(model).__name__}, and must give a torch.nn.Module")
    if not any(value.requires_grad for value in model.parameters()):
        raise Malformed("model", f"{name} gave a module with nothing to train")
    return model


def _module(path: Path, file: str) -> ModuleType:
    try:
        with path.open("rb") as opened:
            source = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Malformed("model", f"{file} cannot be read: {error.strerror}") from None
    if len(source) > FILE_BYTES_MAX:
        raise Malformed("model", f"{file} has more than {FILE_BYTES_MAX} bytes")
    module = ModuleType("epsilon_own_model")
    module.__file__ = str(path)
    # Under a name, for classes that look up the module they were made in.
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - what the job names
    except (Exception, SystemExit) as error:
        raise _raised(file, error) from error
    return module


def _raised(what: str, error: BaseException) -> Malformed:
    if is_out_of_memory(error):
        return Malformed("model", f"{what} {NO_ROOM}: take a smaller model, or a machine with more")
    text = " ".join(str(error).split())[:ERROR_TEXT_MAX]
    return Malformed("model", f"{what} raised {type(error).__name__}: {text}")
