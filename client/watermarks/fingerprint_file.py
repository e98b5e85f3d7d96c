"""A fingerprint of weights as it is sent: one line of JSON with the shapes, a line feed, and the sums.

    {"shapes":[[256,784],[10,256]],"v":1}

After the line feed come the values of each shape in order, as little-endian float32, in C order. Shapes beyond
:data:`VALUES_MAX` values in all are left out, the smallest first: the others are enough to find a mark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray

from client.watermarks.spread_spectrum import Shape, is_marked
from ledger.wire import canonical_json as c
from ledger.wire.field_types import between, constant
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert

VALUES_MAX: Final = 1 << 24
"""Values of one fingerprint: 64 MiB."""
SHAPES_MAX: Final = 1_024
DIMENSIONS_MAX: Final = 8
HEAD_BYTES_MAX: Final = 1 << 16
FINGERPRINT_BYTES_MAX: Final = 4 * VALUES_MAX + HEAD_BYTES_MAX
_VALUE: Final = np.dtype("<f4")
_ABSOLUTE_MAX: Final = 1e6


class FingerprintHead(Record, frozen=True):
    """The first line: the shapes whose values follow."""

    shapes: tuple[tuple[Annotated[int, between(1, VALUES_MAX)], ...], ...]
    v: Literal[1] = constant(1)


def write_fingerprint(found: Mapping[Shape, NDArray[np.float32]]) -> bytes:
    """The bytes of a fingerprint. Raises: Malformed, if not even its largest shape fits."""
    chosen, count = list[Shape](), 0
    for shape in sorted(found, key=lambda shape: (-math.prod(shape), shape))[:SHAPES_MAX]:
        if count + math.prod(shape) <= VALUES_MAX:
            chosen.append(shape)
            count += math.prod(shape)
    if not chosen:
        raise Malformed("model", f"has no matrix of at most {VALUES_MAX} values")
    head = c.dump({"shapes": [[*shape] for shape in chosen], "v": 1})
    return head + b"\n" + b"".join(found[shape].astype(_VALUE).tobytes() for shape in chosen)


def read_fingerprint(data: bytes) -> dict[Shape, NDArray[np.float32]]:
    """What :func:`write_fingerprint` wrote. Raises: Malformed, naming what is wrong."""
    line, mark, values = data.partition(b"\n")
    if not mark or len(line) > HEAD_BYTES_MAX:
        raise Malformed("fingerprint", "must begin with a line of JSON that says the shapes")
    shapes = convert(FingerprintHead, c.parse(line, HEAD_BYTES_MAX, "fingerprint")).shapes
    if not shapes or len(shapes) > SHAPES_MAX or len(set(shapes)) != len(shapes):
        raise Malformed("shapes", f"must name 1 to {SHAPES_MAX} shapes, each once")
    for shape in shapes:
        if len(shape) > DIMENSIONS_MAX or not is_marked(shape):
            raise Malformed("shapes", f"name {list(shape)}, and no tensor of that shape is marked")
    counts = [math.prod(shape) for shape in shapes]
    if sum(counts) > VALUES_MAX or len(values) != sum(counts) * _VALUE.itemsize:
        raise Malformed("fingerprint", f"must hold {sum(counts)} values of 4 bytes, {VALUES_MAX} at most")
    flat = np.frombuffer(values, _VALUE)
    if not bool((np.abs(flat) <= _ABSOLUTE_MAX).all()):
        raise Malformed("fingerprint", f"holds a value that is not finite, or beyond {_ABSOLUTE_MAX:g}")
    places = np.cumsum([0, *counts])
    return {
        shape: flat[start:end].reshape(shape) for shape, start, end in zip(shapes, places, places[1:], strict=False)
    }
