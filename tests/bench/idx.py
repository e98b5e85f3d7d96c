"""IDX, the format of MNIST's files: two zeros, a type, the number of dimensions, their sizes, then the values.

00 00 08 03  00 00 00 02  00 00 00 1c  00 00 00 1c  ... two images of 28 by 28 bytes
"""

from __future__ import annotations

import gzip
import math
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Final

import numpy as np

from ledger.wire.malformed import Malformed
from tests.bench import datasets

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNSIGNED_BYTE: Final = 8
DIMENSIONS_MAX: Final = 4
VALUES_MAX: Final = 1 << 28
SIDE: Final = 28
CLASSES: Final = 10


def parse(data: bytes, name: str = "idx") -> NDArray[np.uint8]:
    """The array of unsigned bytes that a file holds, no byte more or less. Raises: Malformed, naming the file."""
    if len(data) < 4 or data[:2] != b"\0\0":
        raise Malformed(name, "must begin with two zero bytes, a type and a number of dimensions")
    if data[2] != UNSIGNED_BYTE:
        raise Malformed(name, f"has type {data[2]}, not unsigned bytes (8)")
    dimensions = data[3]
    if not 1 <= dimensions <= DIMENSIONS_MAX or len(data) < 4 + 4 * dimensions:
        raise Malformed(name, f"must have one to {DIMENSIONS_MAX} dimensions, and a size for each")
    sizes = tuple(int.from_bytes(data[4 + 4 * at : 8 + 4 * at], "big") for at in range(dimensions))
    values = data[4 + 4 * dimensions :]
    if len(values) != math.prod(sizes):
        raise Malformed(name, f"must have {math.prod(sizes)} values, not {len(values)}")
    return np.frombuffer(values, dtype=np.uint8).reshape(sizes)


def images(package: datasets.Package, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures (records, 28, 28) and labels (records,) of ``train`` or ``t10k``. Raises: Malformed; OSError."""
    names = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    packed = package is datasets.FASHION
    raw = datasets.members(package, *(f"{name}.gz" if packed else name for name in names))
    pictures, labels = (
        parse(unpacked(data, name) if packed else data, name) for data, name in zip(raw, names, strict=True)
    )
    if pictures.shape != (len(labels), SIDE, SIDE):
        raise Malformed(names[0], f"must hold {len(labels)} pictures of {SIDE} by {SIDE}, as there are labels")
    if labels.size and labels.max() >= CLASSES:
        raise Malformed(names[1], f"must hold labels below {CLASSES}")
    return pictures, labels


def unpacked(data: bytes, name: str) -> bytes:
    """What was packed by gzip, whole. Raises: Malformed."""
    try:
        with gzip.GzipFile(fileobj=BytesIO(data)) as file:
            values = file.read(VALUES_MAX + 1)
    except (OSError, EOFError, zlib.error) as fault:
        raise Malformed(name, f"is not gzip: {fault}") from None
    if len(values) > VALUES_MAX:
        raise Malformed(name, f"has more than {VALUES_MAX} values")
    return values
