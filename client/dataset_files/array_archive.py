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

from client.dataset_files.declared.declaration import Declaration
from client.dataset_files.record_encoding import Batch
from client.dataset_files.record_parts import INPUTS, PARTS, TARGETS, assembled, names_of
from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.sealed_records import DTYPES, RecordLayout, record_dtype
from client.dataset_files.tokens.person_tokens import PERSON, PersonTokens
from client.dataset_files.tokens.token_counts import TOKEN_BYTES
from ledger.wire.malformed import Malformed

BATCH_BYTES: Final = 1 << 22
SUFFIX: Final = ".npy"
USERS: Final = "users"
_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)


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

    def __init__(self, path: Path, schema: RecordSchema) -> None:
        """Read what the arrays are. Raises: Malformed, OSError.

        Args:
            schema: of it are used ``identity``, the arrays that a record is committed by, which are not sealed unless
                they train (none: all); ``person``, those that identify a person (none: ``users``, or else the
                identity); and what is declared, by array, with ``targets`` for the target.
        """
        self._path, self._schema, identity, person = path, schema, schema.identity, schema.person
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
        hidden = {name for name in (*identity, *person) if name not in {*used[INPUTS], *used[TARGETS], USERS}}
        self._sealed = [array for array in self._arrays if array.name not in hidden]
        kinds = [(array.name, _little(array.dtype), array.shape[1:]) for array in self._sealed]
        self._persons = PersonTokens.of_file() if schema.one_record_each and USERS not in names else None
        if self._persons is not None:
            if PERSON in {array.name for array in self._sealed}:
                raise self._refused(f"has an array {PERSON}, which is the name of its persons' tokens: rename it")
            kinds.append((PERSON, "|u1", (TOKEN_BYTES,)))
        self.layout = RecordLayout(record_dtype(kinds), declared=self._declaration(used[INPUTS]))

    def _declaration(self, inputs: tuple[str, ...]) -> Declaration | None:
        """What is declared of what is sealed. Raises: Malformed."""
        schema = self._schema
        rules = {name: rule for name, rule in schema.declared.items() if name != TARGETS}
        if spare := [name for name in rules if name not in inputs]:
            shown = ", ".join(inputs)
            raise Malformed(
                "bounds", f"or categories are of {spare[0]}: of an archive they are of {shown} or {TARGETS}"
            )
        if schema.records_max is not None and self._records > schema.records_max:
            raise self._refused(f"has more records than records_max declares, which is {schema.records_max}")
        of_one = None if self._persons is None else 1
        return Declaration(rules, schema.declared.get(TARGETS), schema.records_max, of_one) or None

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
                if self._persons is not None:
                    rows[PERSON] = self._persons.of(identities, str(self._path), start + 1)
                yield Batch(rows, identities, self._person_keys(parts) or identities)
        if self._persons is not None:
            self._persons.check()

    def _identities(self, parts: dict[str, NDArray[Any]], rows: NDArray[np.void]) -> list[bytes]:
        if not self._schema.identity:
            return [b"record\n" + row.tobytes() for row in rows]
        named = [np.ascontiguousarray(parts[name]) for name in self._schema.identity]
        return [b"identity\n" + b"".join(part[place].tobytes() for part in named) for place in range(len(rows))]

    def _person_keys(self, parts: dict[str, NDArray[Any]]) -> list[bytes]:
        """Empty where no array says whose a record is: then each record is a person's one."""
        named = self._schema.person or ((USERS,) if USERS in parts else ())
        arrays = [np.ascontiguousarray(parts[name]) for name in named]
        rows = range(len(arrays[0]) if arrays else 0)
        return [b"person\n" + b"".join(part[place].tobytes() for part in arrays) for place in rows]

    def _check(self, parts: dict[str, NDArray[Any]], start: int) -> None:
        for name, part in parts.items():
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                place = int(np.argmax(~np.isfinite(part.reshape(len(part), -1)).all(axis=1)))
                raise self._refused(f"array {name} of record {start + place + 1} holds NaN or infinity: leave it out")
            self._check_column(name, part, start)

    def _check_column(self, name: str, part: NDArray[Any], start: int) -> None:
        """Hold what trains to 32 bits, and an array to what is declared of it. Raises: Malformed."""
        numbers, text = part.reshape(len(part), -1), ""
        kept: NDArray[np.bool_] = np.ones(len(part), np.bool_)
        rule = self._schema.declared.get(TARGETS if name.partition(".")[0] == TARGETS else name)
        if part.dtype.kind == "f" and name.partition(".")[0] in PARTS:
            kept, text = (np.abs(numbers) <= _FLOAT32_MAX).all(axis=1), "is too large for a float32"
        if rule is not None and kept.all():
            kept, text = np.all(rule.fits(numbers), axis=1), rule.text
        if not kept.all():
            raise self._refused(f"array {name} of record {start + int(np.argmin(kept)) + 1} {text}")

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
        name = member.removesuffix(SUFFIX)
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except OSError:
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError):
            raise self._refused(f"is damaged in array {name}") from None
        except Exception:  # noqa: BLE001 - a damaged header fails in a dozen ways
            raise self._refused(f"holds {member}, which is no NumPy array") from None
        if min(shape, default=0) < 0:
            raise self._refused(f"holds {member}, which is no NumPy array")
        if _little(dtype) not in DTYPES:
            raise self._refused(f"array {name} has type {dtype}: must hold numbers")
        if dtype.kind == "b" and name.partition(".")[0] in PARTS:
            raise self._refused(
                f"array {name} has type bool: save it as whole numbers, as astype(numpy.int8) makes them"
            )
        if fortran and len(shape) > 1:
            raise self._refused(f"array {name} lies column by column: save it in C order")
        return dtype, shape

    def _values(self, archive: zipfile.ZipFile, name: str) -> IO[bytes]:
        file = self._member(archive, name + SUFFIX)
        self._header(file, name + SUFFIX)
        return file

    def _member(self, archive: zipfile.ZipFile, member: str) -> IO[bytes]:
        try:
            return archive.open(member)
        # zipfile raises NotImplementedError for a compression it cannot read, RuntimeError for an encrypted member.
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
