"""What the records of a local run are known by, in this run and the next: identities, or their numbers.

Numbers are written as 64-bit floats that 32 bits hold, whatever type they come in, so the same records in another type
are the same: a 64-bit number has the name of the 32-bit float it is narrowed to. Every NaN is written alike, whatever
its sign and payload, for no comparison tells one from another and a negation or 0/0 changes them; so is every zero,
and what is nearer to 0 than the least normal 32-bit float, which some devices take for 0. Of a complex number the real
part is written. Infinities of either sign are different. Integers are narrowed too, for their copy in 32-bit floats is
the same record. Records that share a name share a budget and never get a new one; a set of a book states how many
names it has. Identities are written in Unicode's form NFC.

Books of before know records by other bytes, by which they are looked for too: 64-bit floats with the NaN they came
with, the bytes of their own type, identities as they were spelled. The NaN of such a book are looked for as they come
and with every sign reversed, with any signs where they are at most :data:`SIGNED_MAX`, and else with one sign.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ledger.mechanisms.mechanism import GROUP_MAX
from ledger.wire.malformed import Malformed
from trainer_adapter.layers.tensor_trees import TensorTree, tensors

BY_IDENTITIES = "i"
BY_NUMBERS = "n"
SIGNED_MAX: Final = 4
"""NaN of one record whose signs in a book of before are tried in all combinations: sixteen names."""
_ROWS: Final = 4_096
"""Records that are written at once."""
_HEAD: Final = b"record\n"
_SIGNS: Final = np.array([0x7FF8 << 48, 0xFFF8 << 48], np.uint64)
"""The quiet NaN without payload, of either sign."""


class RecordNames(NamedTuple):
    """What each record is known by.

    Attributes:
        scheme: :data:`BY_IDENTITIES` or :data:`BY_NUMBERS`.
        names: one for each record, in order.
        given: each as it came: the 64-bit floats, or the text.
        earlier: what a book of before these forms may know each by.
        most: how many records have the numbers of the most frequent one.
    """

    scheme: str
    names: list[bytes]
    given: list[bytes]
    earlier: list[bytes]
    most: int

    @classmethod
    def of_identities(cls, identities: Sequence[str], count: int) -> Self:
        """By one text a record. Raises: Malformed, unless there are ``count``, all different."""
        if len(identities) != count:
            raise Malformed("identities", f"must be {count}, one for each record")
        names, given, earlier = (
            [b"identity\n" + text.encode() for text in texts]
            for texts in (
                [unicodedata.normalize("NFC", identity) for identity in identities],
                identities,
                [unicodedata.normalize("NFD", identity) for identity in identities],
            )
        )
        if len(set(names)) != count:
            # Clipping bounds a record: a person with several would lose several times what the run is charged.
            raise Malformed(
                "identities", "name one identity twice: take one record of each, for ε is that of one record"
            )
        return cls(BY_IDENTITIES, names, given, earlier, 1)

    @classmethod
    def of_numbers(cls, data: tuple[TensorTree, TensorTree], count: int) -> Self:
        """By all numbers of each of ``count`` records. Raises: Malformed, for one that is there too often."""
        parts = [part.detach().cpu().reshape(count, -1) for part in tensors(data)]
        names, given, earlier, often = list[bytes](), list[bytes](), list[bytes](), Counter[bytes]()
        for start in range(0, count, _ROWS):
            for name, exact, came, own in _forms([part[start : start + _ROWS] for part in parts]):
                often[hashlib.sha256(exact).digest()] += 1
                # Where they are the same bytes, they are kept once.
                names.append(name)
                given.append(name if came == name else came)
                earlier.append(name if own == name else own)
        most = max(often.values())
        if most > GROUP_MAX:
            rule = (
                f"has one record {most} times, and at most {GROUP_MAX} are permitted: take it once, or name identities"
            )
            raise Malformed("data", f"{rule} if they are different people")
        return cls(BY_NUMBERS, names, given, earlier, most)

    def known_as(self, place: int) -> set[bytes]:
        """All by which a book may know the record at this place."""
        known = {self.names[place], self.given[place], self.earlier[place]}
        return known | set(_signed(self.given[place])) if self.scheme == BY_NUMBERS else known


def _forms(parts: list[Tensor]) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """Of each record its name, its numbers before they are narrowed, these as they came, and the bytes of its types."""
    # Of two complex numbers with one real part the name is one.
    given = [(part.real if part.is_complex() else part).to(torch.float64) + 0.0 for part in parts]
    exact = [_alike(part) for part in given]
    narrowed = [_alike(part.to(torch.float32).to(torch.float64)) for part in exact]
    own = [part.resolve_conj().resolve_neg().contiguous().view(torch.uint8) for part in parts]
    return zip(_rows(narrowed), _rows(exact), _rows(given), _rows(own), strict=True)


def _alike(part: Tensor) -> Tensor:
    """The same numbers, with one NaN and one zero."""
    part = torch.where(part.abs() < torch.finfo(torch.float32).tiny, 0.0, part)
    return torch.where(part.isnan(), float("nan"), part)


def _rows(parts: list[Tensor]) -> Iterator[bytes]:
    arrays = [np.ascontiguousarray(part.numpy()) for part in parts]
    return (_HEAD + b"".join(array[place].tobytes() for array in arrays) for place in range(len(arrays[0])))


def _signed(given: bytes) -> Iterator[bytes]:
    """The same 64-bit floats with other signs of their NaN, as a book of before may have them."""
    bits = np.frombuffer(given, np.uint64, offset=len(_HEAD))
    missing = np.flatnonzero(np.isnan(bits.view(np.float64)))
    if not len(missing):
        return
    # As they come and reversed by a negation; all of one sign; any signs, while these are few.
    signs = [bits[missing] ^ np.uint64(1 << 63), *(np.full(len(missing), sign) for sign in _SIGNS)]
    if len(missing) <= SIGNED_MAX:
        signs += map(np.array, product(_SIGNS, repeat=len(missing)))
    for chosen in signs:
        other = bits.copy()
        other[missing] = chosen
        yield _HEAD + other.tobytes()
