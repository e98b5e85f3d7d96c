"""What the records of a local run are known by, in this run and the next: identities, or their numbers.

Numbers are written as 64-bit floats, whatever type they come in, so the same records in another type are the same. A
number that needs more bits than that has the name of its neighbour, which shares a budget and never makes a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ledger.mechanisms.mechanism import GROUP_MAX
from ledger.wire.malformed import Malformed
from trainer_adapter.layers.tensor_trees import TensorTree, tensors

BY_IDENTITIES = "i"
BY_NUMBERS = "n"


class RecordNames(NamedTuple):
    """What each record is known by.

    Attributes:
        scheme: :data:`BY_IDENTITIES` or :data:`BY_NUMBERS`.
        names: one for each record, in order.
        earlier: what a book of before this form may know each by.
        most: how many records the most frequent name has.
    """

    scheme: str
    names: list[bytes]
    earlier: list[bytes]
    most: int

    @classmethod
    def of_identities(cls, identities: Sequence[str], count: int) -> Self:
        """By one text a record. Raises: Malformed, unless there are ``count``, all different."""
        if len(identities) != count:
            raise Malformed("identities", f"must be {count}, one for each record")
        if len(set(identities)) != count:
            # Clipping bounds a record: a person with several would lose several times what the run is charged.
            raise Malformed(
                "identities", "name one identity twice: take one record of each, for ε is that of one record"
            )
        names = [b"identity\n" + identity.encode() for identity in identities]
        return cls(BY_IDENTITIES, names, names, 1)

    @classmethod
    def of_numbers(cls, data: tuple[TensorTree, TensorTree], count: int) -> Self:
        """By all numbers of each of ``count`` records. Raises: Malformed, for one that is there too often."""
        parts = [part.detach().cpu().reshape(count, -1) for part in tensors(data)]
        names = _rows([part.to(torch.float64) + 0.0 for part in parts], count)
        most = max(Counter(names).values())
        if most > GROUP_MAX:
            rule = (
                f"has one record {most} times, and at most {GROUP_MAX} are permitted: take it once, or name identities"
            )
            raise Malformed("data", f"{rule} if they are different people")
        return cls(BY_NUMBERS, names, _rows(parts, count), most)


def _rows(parts: list[Tensor], count: int) -> list[bytes]:
    arrays = [np.ascontiguousarray(part.numpy()) for part in parts]
    return [b"record\n" + b"".join(array[place].tobytes() for array in arrays) for place in range(count)]
