"""Tables in chunks of records: CSV, Parquet, or a folder of either; none of them is ever held whole."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.wire.malformed import Malformed

CHUNK_RECORDS: Final = 4_096
CELL_CHARACTERS_MAX: Final = 1 << 20
FILES_MAX: Final = 100_000
Column = Sequence[str] | NDArray[Any]
"""Cells as text, empty where none is there; or numbers, NaN where none is there."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records.

    Attributes:
        columns: by name, all of one length. first: the number of the first of them in its file, from 1.
        where: the file, for errors.
    """

    columns: dict[str, Column]
    first: int
    where: str


class Table(Protocol):
    """A table that is read from its beginning to its end."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""

    def chunks(self) -> Iterator[Chunk]:
        """All records, in order. Raises: Malformed, OSError."""


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV file (RFC 4180) in UTF-8 whose first line names the columns."""

    path: Path
    columns: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> CsvTable:
        """Read the first line. Raises: Malformed, OSError."""
        for names in _csv_lines(path):
            return cls(path, _named(path, names))
        raise Malformed(str(path), "is empty: its first line must name the columns")

    def chunks(self) -> Iterator[Chunk]:
        """All records, in order. Raises: Malformed, OSError."""
        lines, where, first = _csv_lines(self.path), str(self.path), 1
        next(lines, None)
        kept: list[list[str]] = []
        for cells in lines:
            # A line of nothing, as editors leave one at the end.
            if not cells:
                continue
            if len(cells) != len(self.columns):
                number = first + len(kept)
                rule = f"record {number} has {len(cells)} cells where the first line names {len(self.columns)} columns"
                raise Malformed(where, rule)
            kept.append(cells)
            if len(kept) == CHUNK_RECORDS:
                yield Chunk(dict(zip(self.columns, zip(*kept, strict=True), strict=True)), first, where)
                first, kept = first + len(kept), []
        if kept:
            yield Chunk(dict(zip(self.columns, zip(*kept, strict=True), strict=True)), first, where)


def _csv_lines(path: Path) -> Iterator[list[str]]:
    csv.field_size_limit(CELL_CHARACTERS_MAX)
    # A byte order mark, as spreadsheets write it, is no part of the first name.
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(_without_null(file, path), strict=True)
        try:
            yield from reader
        except csv.Error as error:
            raise Malformed(str(path), f"is no CSV at line {reader.line_num}: {error}") from None
        except UnicodeDecodeError:
            raise Malformed(str(path), f"is not UTF-8 in line {_undecodable(path)}: save it as UTF-8") from None


def _undecodable(path: Path) -> int:
    """The number of the first line that is not UTF-8: a decoder reads ahead of the line that a reader is at."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    raise Malformed(str(path), "changed while it was read")


def _without_null(file: Iterable[str], path: Path) -> Iterator[str]:
    # Read as a number, a text that ends with one would lose it.
    for number, line in enumerate(file, start=1):
        if "\0" in line:
            raise Malformed(str(path), f"is no CSV at line {number}: it holds a null character")
        yield line


def _named(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    stripped = tuple(name.strip() for name in names)
    for place, name in enumerate(stripped):
        if not name:
            raise Malformed(str(path), f"has no name for column {place + 1} in its first line")
        if name in stripped[:place]:
            raise Malformed(str(path), f"names the column {name} twice in its first line")
    return stripped


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """A Parquet file, read by pyarrow, which the extra ``parquet`` brings."""

    path: Path
    columns: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> ParquetTable:
        """Read the names of the columns. Raises: Malformed, OSError."""
        with path.open("rb"):
            pass
        return cls(path, _named(path, _parquet(path).schema_arrow.names))

    def chunks(self) -> Iterator[Chunk]:
        """All records, in order. Raises: Malformed, OSError."""
        first, where = 1, str(self.path)
        for batch in _batches(self.path):
            columns = {name: self._column(name, part) for name, part in zip(self.columns, batch.columns, strict=True)}
            yield Chunk(columns, first, where)
            first += batch.num_rows

    def _column(self, name: str, part: Any) -> Column:  # noqa: ANN401 - pyarrow has no types
        import pyarrow.types as kinds

        if kinds.is_string(part.type) or kinds.is_large_string(part.type):
            try:
                return ["" if value is None else value for value in part.to_pylist()]
            except UnicodeDecodeError:
                raise Malformed(
                    str(self.path), f"has the column {name} of text that is not UTF-8: save it as UTF-8"
                ) from None
        numeric = (kinds.is_integer, kinds.is_floating, kinds.is_boolean)
        if not any(is_kind(part.type) for is_kind in numeric):
            raise Malformed(str(self.path), f"has the column {name} of type {part.type}: must be text or numbers")
        numbers: NDArray[Any] = part.to_numpy(zero_copy_only=False)
        return (
            numbers
            if numbers.dtype != object
            else np.array([np.nan if number is None else number for number in numbers])
        )


def _parquet(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        rule = "is Parquet, which needs pyarrow: pip install 'epsilon-ledger[parquet]', or save it as CSV"
        raise Malformed(str(path), rule) from None
    try:
        return parquet.ParquetFile(path)
    except pa.ArrowException as error:
        raise Malformed(str(path), f"is no Parquet: {str(error).splitlines()[0][:200]}") from None


def _batches(path: Path) -> Iterator[Any]:
    import pyarrow as pa

    file = _parquet(path)
    try:
        yield from file.iter_batches(batch_size=CHUNK_RECORDS)
    except (pa.ArrowException, OSError) as error:
        # An error of the disk has a number; of bytes that are no Parquet, pyarrow raises the same without one.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Malformed(str(path), "is damaged: copy or write the file anew") from None


@dataclass(frozen=True, slots=True)
class FolderTable:
    """Files of one kind with the same columns, one after the other by name."""

    parts: tuple[Table, ...]

    @classmethod
    def open(cls, folder: Path) -> FolderTable:
        """Look at each file. Raises: Malformed, OSError."""
        paths = sorted(file for file in folder.iterdir() if file.suffix.lower() in _OPENERS)[: FILES_MAX + 1]
        if not paths:
            raise Malformed(str(folder), "holds no CSV or Parquet file")
        if len(paths) > FILES_MAX:
            raise Malformed(str(folder), f"holds more than {FILES_MAX} files")
        parts = tuple(open_table(file) for file in paths)
        for path, part in zip(paths, parts, strict=True):
            if part.columns != parts[0].columns:
                raise Malformed(str(path), f"has other columns than {paths[0].name}, or in another order")
        return cls(parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of each file."""
        return self.parts[0].columns

    def chunks(self) -> Iterator[Chunk]:
        """All records, file after file. Raises: Malformed, OSError."""
        for part in self.parts:
            yield from part.chunks()


_OPENERS: Final[dict[str, Callable[[Path], Table]]] = {
    ".csv": CsvTable.open,
    ".parquet": ParquetTable.open,
    ".pq": ParquetTable.open,
}


def open_table(path: Path) -> Table:
    """The table in a file, by its ending, or in a folder. Raises: Malformed, OSError."""
    if path.is_dir():
        return FolderTable.open(path)
    opener = _OPENERS.get(path.suffix.lower())
    if opener is None:
        raise Malformed(str(path), "must end in .csv, .parquet or .npz, or be a folder of such files")
    return opener(path)
