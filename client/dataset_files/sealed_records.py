r"""Sealed records: a partition's data at rest in frames, so that one record is read without the others.

    b"epsilon-records/1\n"  32 bytes of salt  frame 0 ... frame k-1  description  4 bytes: the description's length

Each frame is AES-256-GCM over ``frame_records`` records, row after row without gaps, numbers little-endian; the last
one is filled up with zeros, so that the file's length shows the number of records only to a frame. The description is
one object of RFC 8785 JSON, sealed the same way:

    {"arrays":[{"dtype":"<f4","name":"inputs","shape":[30]},{"dtype":"<i8","name":"targets","shape":[]}],
     "columns":["age","weight"],"frame_records":511,"kind":"sealed_records","records":569,"v":1}

The key of a file is HKDF-SHA-256 (RFC 5869) of the data key, with the file's salt and ``epsilon-records/1``, a space
and the partition's reference as info. A frame's nonce is its number in 12 bytes, big-endian; the description's is
twelve bytes 0xff. So a frame opens in its own place of its own file only, and a file that was cut does not open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from client.dataset_files.declared.declaration import RECORDS_MAX, Declaration
from client.keys.hpke_envelope import DATA_KEY_BYTES
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

MAGIC: Final = b"epsilon-records/1\n"
SALT_BYTES: Final = 32
FRAME_BYTES: Final = 1 << 16
"""Of the records in one frame, unless a single record is larger."""
RECORD_BYTES_MAX: Final = 1 << 26
DESCRIPTION_BYTES_MAX: Final = 1 << 22
ARRAYS_MAX: Final = 32
COLUMNS_MAX: Final = 65_536
DTYPES: Final = ("<f2", "<f4", "<f8", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "|b1", "|i1", "|u1")
_TAG_BYTES: Final = 16
_LENGTH_BYTES: Final = 4
_HEAD: Final = len(MAGIC) + SALT_BYTES
_DESCRIPTION_NONCE: Final = b"\xff" * 12

Rows = NDArray[np.void]
"""Records as a structured array, one field an array of the file, without gaps."""


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """What each record holds.

    Attributes:
        dtype: structured, packed, one field for each array.
        columns: the names of a table's columns that ``inputs`` holds, in order; empty where it comes of no table.
        classes: the names of the classes that ``targets`` counts, in order; empty where they have none.
        declared: what the provider declares of the records; None where it declares nothing.
    """

    dtype: np.dtype[np.void]
    columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    declared: Declaration | None = None

    def __post_init__(self) -> None:
        """Hold it to the format's bounds. Raises: Malformed."""
        names = self.dtype.names or ()
        if not 0 < len(names) <= ARRAYS_MAX:
            raise Malformed("arrays", f"must be 1 to {ARRAYS_MAX}")
        for name in names:
            c.name(name, "arrays")
            base, _ = _parts(self.dtype, name)
            if base.str not in DTYPES:
                raise Malformed(name, f"has values of type {base}: must be whole or floating-point numbers")
        if not 0 < self.dtype.itemsize <= RECORD_BYTES_MAX:
            raise Malformed("arrays", f"make a record of {self.dtype.itemsize} bytes: must be 1 to {RECORD_BYTES_MAX}")

    @property
    def frame_records(self) -> int:
        """How many records a new file puts into a frame."""
        return max(1, FRAME_BYTES // self.dtype.itemsize)

    def to_json(self, records: int, frame_records: int) -> c.Object:
        """The description of a file."""
        names = self.dtype.names or ()
        parts = ((name, *_parts(self.dtype, name)) for name in names)
        arrays: list[c.Json] = [{"dtype": base.str, "name": name, "shape": [*shape]} for name, base, shape in parts]
        described: c.Object = {
            "arrays": arrays,
            "frame_records": frame_records,
            "kind": "sealed_records",
            "records": records,
            "v": 1,
        }
        named = {"classes": self.classes, "columns": self.columns}
        declared: c.Object = {"declared": self.declared.to_json()} if self.declared else {}
        return {**described, **declared, **{name: list[c.Json](value) for name, value in named.items() if value}}


def record_dtype(arrays: Sequence[tuple[str, str, tuple[int, ...]]]) -> np.dtype[np.void]:
    """One packed field for each array: its name, its type, and the shape of one record. Raises: Malformed."""
    try:
        return np.dtype([*arrays])
    except ValueError:
        rule = f"make no record: give each a name of its own, few dimensions, and at most {RECORD_BYTES_MAX} bytes"
        raise Malformed("arrays", rule) from None


def _parts(dtype: np.dtype[np.void], name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The type of an array's values, and the shape of one record of it."""
    field = dtype[name]
    return field.base, field.shape


def write_sealed(file: BinaryIO, data_key: bytes, ref: str, layout: RecordLayout, batches: Iterable[Rows]) -> int:
    """Seal records as they come; how many there were. Raises: Malformed, OSError; anything that ``batches`` raises."""
    salt = os.urandom(SALT_BYTES)
    cipher, frame_records = _cipher(data_key, ref, salt), layout.frame_records
    file.write(MAGIC + salt)
    records = number = 0
    for number, frame in enumerate(_frames(batches, layout.dtype, frame_records), start=1):
        records += len(frame)
        filled = frame.tobytes().ljust(frame_records * layout.dtype.itemsize, b"\0")
        file.write(cipher.encrypt(_nonce(number - 1), filled, None))
    described = c.dump(layout.to_json(records, frame_records))
    if len(described) > DESCRIPTION_BYTES_MAX:
        raise Malformed("columns", "have names that are too long together")
    sealed = cipher.encrypt(_DESCRIPTION_NONCE, described, None)
    file.write(sealed + len(sealed).to_bytes(_LENGTH_BYTES, "big"))
    return records


def _frames(batches: Iterable[Rows], dtype: np.dtype[np.void], size: int) -> Iterator[Rows]:
    kept = np.empty(0, dtype)
    for batch in batches:
        rows = np.concatenate((kept, batch)) if len(kept) else batch
        whole = len(rows) // size * size
        for start in range(0, whole, size):
            yield rows[start : start + size]
        kept = rows[whole:].copy()
    if len(kept):
        yield kept


class Source(Protocol):
    """Bytes that are read anywhere."""

    @property
    def size(self) -> int:
        """How many there are."""

    def read(self, at: int, count: int) -> bytes:
        """At most so many bytes from there. Raises: OSError."""


class SealedRecords:
    """The records of one sealed file, each frame decrypted when it is read and never written.

    Attributes:
        layout: what each record holds.
    """

    def __init__(self, source: Source, data_key: bytes, ref: str) -> None:
        """Read the description. A source that is changed meanwhile does not open.

        Raises:
            Malformed: if the key, the partition or a byte is another. OSError.
        """
        self._source, self._ref, size = source, ref, source.size
        head = source.read(0, _HEAD)
        if not head.startswith(MAGIC) or size < _HEAD + _LENGTH_BYTES:
            raise self._closed()
        self._cipher = _cipher(data_key, ref, head[len(MAGIC) :])
        length = int.from_bytes(self._source.read(size - _LENGTH_BYTES, _LENGTH_BYTES), "big")
        start = size - _LENGTH_BYTES - length
        if start < _HEAD or length > DESCRIPTION_BYTES_MAX + _TAG_BYTES:
            raise self._closed()
        described = self._open(_DESCRIPTION_NONCE, self._source.read(start, length))
        self.layout, self._records, self._frame_records = _read_description(described)
        self._frame_bytes = self._frame_records * self.layout.dtype.itemsize
        frames = -(-self._records // self._frame_records)
        if start != _HEAD + frames * (self._frame_bytes + _TAG_BYTES):
            raise self._closed()

    def __len__(self) -> int:
        """How many records there are."""
        return self._records

    def rows(self, indices: NDArray[np.int64]) -> Rows:
        """The records at these places, in that order; each frame that holds one is decrypted once.

        Raises:
            Malformed: if a byte was changed. IndexError, for a place that is none. OSError.
        """
        if len(indices) and not 0 <= indices.min() <= indices.max() < self._records:
            raise IndexError("a place outside the records")
        records = np.empty(len(indices), self.layout.dtype)
        frame_of = indices // self._frame_records
        for number in np.unique(frame_of):
            here = frame_of == number
            records[here] = self._frame(int(number))[indices[here] - number * self._frame_records]
        return records

    def arrays(self, wanted: Iterable[str] | None = None) -> Mapping[str, NDArray[Any]]:
        """All records, by array, each of shape (records, ...); those wanted only. Raises: Malformed, OSError."""
        own = self.layout.dtype.names or ()
        names = own if wanted is None else tuple(name for name in wanted if name in own)
        parts = {name: _parts(self.layout.dtype, name) for name in names}
        records = {name: np.empty((self._records, *shape), base) for name, (base, shape) in parts.items()}
        for start in range(0, self._records, self._frame_records):
            rows = self._frame(start // self._frame_records)[: self._records - start]
            for name in names:
                records[name][start : start + len(rows)] = rows[name]
        return records

    @property
    def nbytes(self) -> int:
        """How many bytes all records have."""
        return self._records * self.layout.dtype.itemsize

    def chosen(self, places: NDArray[np.int64]) -> SealedRecords:
        """The records at these places, in that order, as records of their own."""
        return _ChosenRecords(self, places)

    def verify(self) -> None:
        """Open every frame. Raises: Malformed, if a byte was changed; OSError."""
        for number in range(-(-self._records // self._frame_records)):
            self._frame(number)

    def _frame(self, number: int) -> Rows:
        sealed_bytes = self._frame_bytes + _TAG_BYTES
        opened = self._open(_nonce(number), self._source.read(_HEAD + number * sealed_bytes, sealed_bytes))
        return np.frombuffer(opened, self.layout.dtype)

    def _open(self, nonce: bytes, sealed: bytes) -> bytes:
        try:
            return self._cipher.decrypt(nonce, sealed, None)
        except (InvalidTag, ValueError):
            raise self._closed() from None

    def _closed(self) -> Malformed:
        return Malformed("data", f"does not open with the data key of {self._ref}")


class _ChosenRecords(SealedRecords):
    """Some records of a file."""

    def __init__(self, of: SealedRecords, places: NDArray[np.int64]) -> None:
        self._of, self._places, self.layout, self._records = of, places, of.layout, len(places)

    def rows(self, indices: NDArray[np.int64]) -> Rows:
        return self._of.rows(self._places[indices])

    def arrays(self, wanted: Iterable[str] | None = None) -> Mapping[str, NDArray[Any]]:
        own = self.layout.dtype.names or ()
        rows = self._of.rows(self._places)
        return {name: np.array(rows[name], order="C") for name in own if wanted is None or name in wanted}

    def verify(self) -> None:
        self._of.rows(self._places)


def _read_description(data: bytes) -> tuple[RecordLayout, int, int]:
    """Layout, records, and records of one frame. Raises: Malformed."""
    needed = ("arrays", "frame_records", "kind", "records", "v")
    members = c.fields(c.parse(data, DESCRIPTION_BYTES_MAX, "data"), "data", needed, ("classes", "columns", "declared"))
    c.one_of(members["kind"], "data.kind", ("sealed_records",))
    c.integer(members["v"], "data.v", 1, 1)
    if not isinstance(members["arrays"], list):
        raise Malformed("data.arrays", "must be a list")
    layout = RecordLayout(
        record_dtype([_array(array) for array in members["arrays"]]),
        c.strings(members.get("columns", []), "data.columns", COLUMNS_MAX) if "columns" in members else (),
        c.strings(members.get("classes", []), "data.classes", COLUMNS_MAX) if "classes" in members else (),
        Declaration.parse(members["declared"], "data.declared") if "declared" in members else None,
    )
    frame_records = c.integer(members["frame_records"], "data.frame_records", 1, RECORD_BYTES_MAX)
    return layout, c.integer(members["records"], "data.records", 0, RECORDS_MAX), frame_records


def _array(value: object) -> tuple[str, str, tuple[int, ...]]:
    members = c.fields(value, "data.arrays", ("dtype", "name", "shape"))
    shape = members["shape"] if isinstance(members["shape"], list) else [None]
    sizes = tuple(c.integer(length, "data.arrays.shape", 0, RECORD_BYTES_MAX) for length in shape)
    dtype = c.one_of(members["dtype"], "data.arrays.dtype", DTYPES)
    return c.name(members["name"], "data.arrays.name"), dtype, sizes


def _cipher(data_key: bytes, ref: str, salt: bytes) -> AESGCM:
    if len(data_key) != DATA_KEY_BYTES:
        raise Malformed("data_key", f"must have {DATA_KEY_BYTES} bytes")
    info = MAGIC.strip() + b" " + ref.encode()
    return AESGCM(HKDF(SHA256(), DATA_KEY_BYTES, salt, info).derive(data_key))


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")
