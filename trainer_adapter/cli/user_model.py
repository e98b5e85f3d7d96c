"""A user's own model: a function without arguments in a Python file beside the job, as ``networks.py:small``.

Its digest is in the charge and in the clean room's evidence, as the job's pipeline does. No one reads the code: the
mechanism bounds what a model learns by training, not what code does that was written to leak records. A policy or a
provider that minds asks which pipeline runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from torch import nn

from ledger.wire.malformed import Malformed

FILE_BYTES_MAX: Final = 1 << 20
SAID_MAX: Final = 300
_MODULE: Final = "epsilon_own_model"


def own_model(folder: Path, name: str) -> nn.Module:
    """What the function ``FILE:FUNCTION`` gives.

    Raises:
        Malformed: naming ``model``, if there is no such file or function, if it raises, or gives no model.
    """
    file, _, function = name.rpartition(":")
    if not file.endswith(".py") or not function.isidentifier():
        raise Malformed("model", f"must be FILE.py:FUNCTION, which {name} is not")
    made = _attribute(_module(folder / file, file), file, function)
    try:
        model = made()
    except (Exception, SystemExit) as fault:
        raise _raised(name, fault) from fault
    if not isinstance(model, nn.Module):
        raise Malformed("model", f"{name} gave a {type(model).__name__}, and must give a torch.nn.Module")
    if not any(value.requires_grad for value in model.parameters()):
        raise Malformed("model", f"{name} gave a module with nothing to train")
    return model


def _attribute(module: ModuleType, file: str, function: str) -> Callable[[], object]:
    found: object = getattr(module, function, None)
    if not callable(found):
        raise Malformed("model", f"{file} has no function {function}")
    return found


def _module(path: Path, file: str) -> ModuleType:
    try:
        with path.open("rb") as opened:
            source = opened.read(FILE_BYTES_MAX + 1)
    except OSError as fault:
        raise Malformed("model", f"{file} cannot be read: {fault.strerror}") from None
    if len(source) > FILE_BYTES_MAX:
        raise Malformed("model", f"{file} has more than {FILE_BYTES_MAX} bytes")
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    # Under a name, for classes that look up the module they were made in.
    sys.modules[_MODULE] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - what the command is asked to run
    except (Exception, SystemExit) as fault:
        raise _raised(file, fault) from fault
    return module


def _raised(what: str, fault: BaseException) -> Malformed:
    said = " ".join(str(fault).split())[:SAID_MAX]
    return Malformed("model", f"{what} raised {type(fault).__name__}: {said}")
