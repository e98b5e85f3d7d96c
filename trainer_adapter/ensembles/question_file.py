"""Questions in a file: the ``inputs`` of a NumPy archive, one row a question; and with their answers as ``targets``.

What learns from such an archive alone is post-processing of what left the room (PATE: Papernot et al. 2017).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor

from ledger.files.atomic_file import create_file
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.training.training_records import tensor_of

INPUTS: Final = "inputs"
PUBLIC: Final = 0o644
"""The mode of a file of answers, which have left."""


def read_questions(path: Path) -> list[Tensor]:
    """Each row as float32, or int64 if they are whole numbers, as records are read. Raises: Malformed, OSError."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            values = np.asarray(archive[INPUTS])
    except (KeyError, ValueError, AttributeError, TypeError, zipfile.BadZipFile):
        raise Malformed("questions", f"must be a NumPy archive with an array '{INPUTS}', one row a question") from None
    if values.ndim < 1 or values.dtype.kind not in "fiu":
        raise Malformed("questions", f"must hold numbers as '{INPUTS}', one row a question")
    return list(tensor_of(values))


def write_labelled(path: Path, rows: Sequence[Tensor], answers: Sequence[c.Object]) -> None:
    """The questions that were answered, with their answers: classes, or numbers. Raises: OSError, Malformed."""
    kept: list[Any] = []
    targets: list[Any] = []
    for row, reply in zip(rows, answers, strict=True):
        answer = c.members(reply["answer"], "answer")
        if "screened" not in answer:
            kept.append(row.numpy())
            targets.append(_target(answer))
    if not kept:
        raise Malformed("labels", "would hold no answer: all questions were screened out")
    file = io.BytesIO()
    np.savez(file, inputs=np.stack(kept), targets=np.array(targets))
    create_file(path, file.getvalue(), mode=PUBLIC)


def _target(answer: dict[str, Any]) -> Any:  # noqa: ANN401 - a class, a number, or several
    if "class" in answer:
        return int(answer["class"])
    if "value" in answer:
        return float(Fraction(answer["value"]))
    return [float(value) for value in answer["values"]]
