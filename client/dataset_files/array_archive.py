"""NumPy archives (``.npz``): arrays of one length, read record after record, never whole."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from client.dataset_files.record_encoding import Batch
from client.dataset_files.record_parts import INPUTS, PARTS, TARGETS, assembled, names_of
from client.dataset_files.sealed_records import DTYPES, RecordLayout
from ledger.wire.malformed import Malformed

BATCH_BYTES: Final = 1 << 22
SUFFIX: Final = ".npy"


@dataclass(frozen=True, slots=True)
class _Array:
    """One array as the archive's member describes it."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class ArchiveRecords:
    """The records of an archive with ``inputs`` and ``targets``, one array each or several, and perhaps others.

    Attributes:
        layout: the archive's own arrays, as they are; their numbers little-endian.
    """

    def __init__(self, path: Path, identity: tuple[str, ...] = (), person: tuple[str, ...] = ()) -> None:
        """Read what the arrays are. Raises: Malformed, OSError.

        Args:
            identity: the arrays that a record is committed by, which are not sealed unless they train; none: all.
            person: the arrays that identify a person; none: ``users``, or else the identity.
        """
        self._path, self._identity, self._person = path, identity, person
        with path.open("rb"):
            pass
        self._arrays = self._described()
        names = tuple(array.name for array in self._arrays)
        used = {part: names_of(part, names) for part in PARTS}
        for part, arrays in used.items():
            assembled(part, dict.fromkeys(arrays), str(path))
        for name in (*(part for part in PARTS if not used[part]), *identity, *person):
            if name not in names:
                raise self._refused(f"has no array {name}: it has {', '.join(names) or 'none'}")
        self._records = self._arrays[0].shape[0]
        if not self._records:
            raise self._refused("holds no record")
        hidden = {name for name in (*identity, *person) if name not in {*used[INPUTS], *used[TARGETS], "users"}}
        self._sealed = [array for array in self._arrays if array.name not in hidden]
        self.layout = RecordLayout(
            np.dtype([(array.name, _little(array.dtype), array.shape[1:]) for array in self._sealed])
        )

    def batches(self) -> Iterator[Batch]:
        """All records, in order. Raises: Malformed, OSError."""
        size = max(1, BATCH_BYTES // max(1, sum(_record_bytes(array) for array in self._arrays)))
        with ExitStack() as stack, _readable(self._path) as archive:
            files = {array.name: stack.enter_context(self._values(archive, array.name)) for array in self._arrays}
            for start in range(0, self._records, size):
                count = min(size, self._records - start)
                parts = {array.name: self._part(files[array.name], array, count) for array in self._arrays}
                self._check(parts, start)
                rows = np.zeros(count, self.layout.dtype)
                for array in self._sealed:
                    rows[array.name] = parts[array.name]
                identities = self._identities(parts, rows)
                yield Batch(rows, identities, self._persons(parts) or identities)

    def _identities(self, parts: dict[str, NDArray[Any]], rows: NDArray[np.void]) -> list[bytes]:
        if not self._identity:
            return [b"record\n" + row.tobytes() for row in rows]
        named = [np.ascontiguousarray(parts[name]) for name in self._identity]
        return [b"identity\n" + b"".join(part[place].tobytes() for part in named) for place in range(len(rows))]

    def _persons(self, parts: dict[str, NDArray[Any]]) -> list[bytes]:
        """Empty where no array says whose a record is: then each record is a person's one."""
        named = self._person or (("users",) if "users" in parts else ())
        arrays = [np.ascontiguousarray(parts[name]) for name in named]
        rows = range(len(arrays[0]) if arrays else 0)
        return [b"person\n" + b"".join(part[place].tobytes() for part in arrays) for place in rows]

    def _check(self, parts: dict[str, NDArray[Any]], start: int) -> None:
        for name, part in parts.items():
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                place = int(np.argmax(~np.isfinite(part.reshape(len(part), -1)).all(axis=1)))
                raise self._refused(f"array {name} of record {start + place + 1} holds NaN or infinity: leave it out")

    def _described(self) -> list[_Array]:
        arrays = []
        with _readable(self._path) as archive:
            for member in archive.namelist():
                if member.endswith(SUFFIX):
                    with self._member(archive, member) as file:
                        arrays.append(_Array(member.removesuffix(SUFFIX), *self._header(file, member)))
        lengths = {array.shape[:1] for array in arrays}
        if len(lengths) != 1 or lengths == {()}:
            listed = ", ".join(f"{array.name} {array.shape}" for array in arrays)
            raise self._refused(f"must hold arrays with one row for each record: it has {listed or 'none'}")
        return arrays

    def _header(self, file: IO[bytes], member: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise self._refused(f"is damaged in array {member.removesuffix(SUFFIX)}") from None
        except ValueError:
            raise self._refused(f"holds {member}, which is no NumPy array") from None
        if _little(dtype) not in DTYPES:
            raise self._refused(f"array {member.removesuffix(SUFFIX)} has type {dtype}: must hold numbers")
        if fortran and len(shape) > 1:
            raise self._refused(f"array {member.removesuffix(SUFFIX)} lies column by column: save it in C order")
        return dtype, shape

    def _values(self, archive: zipfile.ZipFile, name: str) -> IO[bytes]:
        file = self._member(archive, name + SUFFIX)
        self._header(file, name + SUFFIX)
        return file

    def _member(self, archive: zipfile.ZipFile, member: str) -> IO[bytes]:
        try:
            return archive.open(member)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError):
            raise self._refused(f"holds {member}, which cannot be read") from None

    def _part(self, file: IO[bytes], array: _Array, count: int) -> NDArray[Any]:
        wanted = count * _record_bytes(array)
        try:
            data = file.read(wanted)
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise self._refused(f"is damaged in array {array.name}") from None
        if len(data) != wanted:
            raise self._refused(f"is cut short in array {array.name}")
        return np.frombuffer(data, array.dtype).reshape(count, *array.shape[1:])

    def _refused(self, rule: str) -> Malformed:
        return Malformed(str(self._path), rule)


def _readable(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise Malformed(str(path), "is no NumPy archive, as numpy.savez writes it") from None


def _little(dtype: np.dtype[Any]) -> str:
    return dtype.newbyteorder("<").str


def _record_bytes(array: _Array) -> int:
    count = 1
    for size in array.shape[1:]:
        count *= size
    return count * array.dtype.itemsize
