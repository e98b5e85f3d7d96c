"""Records as a partition's decrypted bytes hold them: a NumPy archive of inputs and targets."""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Tensor

from ledger.malformed import Malformed


def arrays(data: bytes, what: str) -> tuple[Tensor, Tensor]:
    """Inputs (records, ...), float32, or int64 if they are whole numbers, and targets (records,), int64.

    Raises:
        Malformed: for what one record cannot change. The shapes and types of the whole decide, never a record's
            value: that would tell of it.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as held:
            inputs, targets = np.asarray(held["inputs"]), np.asarray(held["targets"])
    except Exception:  # noqa: BLE001 - a damaged archive fails in a dozen ways, and NumPy's words could quote a record
        raise Malformed(what, "is not a NumPy archive of inputs and targets, all of them numbers") from None
    if inputs.dtype.kind not in "fiu" or targets.dtype.kind not in "iu":
        raise Malformed(what, "must hold numbers as inputs and integers as targets")
    if inputs.shape[:1] != targets.shape:
        raise Malformed(what, "must have one target for each row of inputs")
    kind = np.float32 if inputs.dtype.kind == "f" else np.int64
    with np.errstate(over="ignore", invalid="ignore"):
        inputs = inputs.astype(kind)
    return torch.from_numpy(inputs), torch.from_numpy(targets.astype(np.int64))
