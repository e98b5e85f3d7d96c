"""From a table's chunks to records as they are sealed: numbers in one packed row, by a schema alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.sealed_records import RecordLayout, Rows
from client.dataset_files.table_chunks import Chunk, Column, Table
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

INTEGER_MAX: Final = 1 << 53
"""The magnitude to which a float64 holds every whole number."""
_CLASSES: Final = "name its values in order, as --classes A,B"
_VALUES: Final = "name its values, as --values {}=A,B, or leave it out of the inputs"


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records as they are sealed, what each is committed by, and by what its person is."""

    rows: Rows
    identities: list[bytes]
    persons: list[bytes]


class TableRecords:
    """The records of a table under a schema.

    Attributes:
        layout: arrays ``inputs`` (float32), ``targets`` (int64 or float32), and ``users`` (int64) where there are any.
    """

    def __init__(self, table: Table, schema: RecordSchema) -> None:
        """Hold the schema to the table's columns. Raises: Malformed."""
        self._table, self._schema = table, schema
        self._check_columns()
        special = {*schema.target, schema.user, *schema.identity, *schema.person}
        self._inputs = schema.inputs or tuple(name for name in table.columns if name not in special)
        if not self._inputs:
            raise Malformed("inputs", "name no column: all columns are target, user or identity")
        names = tuple(one for name in self._inputs for one in self._encoded(name))
        shape = () if len(schema.target) == 1 else (len(schema.target),)
        kind = "<i8" if schema.target_kind == "integer" else "<f4"
        arrays: list[tuple[str, str, tuple[int, ...]]] = [("inputs", "<f4", (len(names),)), ("targets", kind, shape)]
        arrays += [("users", "<i8", ())] if schema.user else []
        self.layout = RecordLayout(np.dtype(arrays), names, schema.classes)
        self._users: dict[str, int] = {}

    def _check_columns(self) -> None:
        schema, known = self._schema, self._table.columns
        if not schema.target:
            raise Malformed("target", f"is missing: name the column to predict, one of {_some(known)}")
        named = {
            "target": schema.target,
            "inputs": schema.inputs,
            "user": (schema.user,) if schema.user else (),
            "identity": schema.identity,
            "person": schema.person,
            "values": tuple(schema.values),
            "missing": tuple(schema.missing),
        }
        for field, columns in named.items():
            for name in columns:
                if name not in known:
                    raise Malformed(field, f"names the column {name}, which the table lacks: it has {_some(known)}")

    def _encoded(self, name: str) -> tuple[str, ...]:
        values = self._schema.values.get(name)
        return (name,) if values is None else tuple(f"{name}={value}" for value in values)

    def batches(self) -> Iterator[Batch]:
        """All records, in order. Raises: Malformed, naming file, column and record and never a value; OSError."""
        for chunk in self._table.chunks():
            yield self._batch(chunk)

    def _batch(self, chunk: Chunk) -> Batch:
        schema = self._schema
        count = len(next(iter(chunk.columns.values())))
        rows = np.zeros(count, self.layout.dtype)
        with np.errstate(over="ignore"):
            rows["inputs"] = np.column_stack([self._input(chunk, name) for name in self._inputs])
        _require_finite(rows["inputs"], self.layout.columns, chunk)
        targets = np.column_stack([self._target(chunk, name) for name in schema.target])
        rows["targets"] = targets[:, 0] if len(schema.target) == 1 else targets
        if schema.user:
            users = _texts(chunk, schema.user)
            rows["users"] = [self._users.setdefault(one, len(self._users)) for one in users]
        identities = self._identities(chunk, rows)
        return Batch(rows, identities, self._persons(chunk) or identities)

    def _input(self, chunk: Chunk, name: str) -> NDArray[np.float64]:
        values = self._schema.values.get(name)
        if values is None:
            return _numbers(chunk, name, self._schema.missing.get(name), _VALUES.format(name))[:, None]
        return np.eye(len(values))[_places(chunk, name, values, "values")]

    def _target(self, chunk: Chunk, name: str) -> NDArray[Any]:
        schema = self._schema
        if schema.classes:
            return _places(chunk, name, schema.classes, "classes")
        numbers = _numbers(chunk, name, schema.missing.get(name), _CLASSES)
        if schema.target_kind == "number":
            return numbers
        _refuse_first(
            (numbers != np.rint(numbers)) | (np.abs(numbers) > INTEGER_MAX), chunk, name, "is no whole number"
        )
        return numbers.astype(np.int64)

    def _identities(self, chunk: Chunk, rows: Rows) -> list[bytes]:
        if not self._schema.identity:
            return [b"record\n" + one.tobytes() for one in rows]
        columns = [_texts(chunk, name) for name in self._schema.identity]
        return [b"identity\n" + c.dump([*cells]) for cells in zip(*columns, strict=True)]

    def _persons(self, chunk: Chunk) -> list[bytes]:
        """Empty where no column says whose a record is: then each record is a person's one."""
        named = self._schema.person or ((self._schema.user,) if self._schema.user else ())
        cells = zip(*[_texts(chunk, name) for name in named], strict=True)
        return [b"person\n" + c.dump([*one]) for one in cells]


def _numbers(chunk: Chunk, name: str, fill: float | None, advice: str) -> NDArray[np.float64]:
    """A column as float64; ``advice`` is for text. Raises: Malformed."""
    column = chunk.columns[name]
    if isinstance(column, np.ndarray):
        numbers = column.astype(np.float64)
        empty = np.isnan(numbers)
    else:
        texts = np.array([one.strip() for one in column], dtype=np.str_)
        empty = texts == ""
        try:
            numbers = np.where(empty, "nan", texts).astype(np.float64)
        except ValueError:
            wrong = np.array([not _is_number(one) for one in texts]) & ~empty
            _refuse_first(wrong, chunk, name, f"is no number: {advice}")
            raise
        empty = np.isnan(numbers)
    if fill is None:
        rule = f"is empty or NaN: say what replaces it, as --missing {name}=0, or leave the record out"
        _refuse_first(empty, chunk, name, rule)
        return numbers
    return np.where(empty, fill, numbers)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _places(chunk: Chunk, name: str, values: Sequence[str], field: str) -> NDArray[np.int64]:
    """For each record the place of its value. Raises: Malformed."""
    places = {value: place for place, value in enumerate(values)}
    found = np.array([places.get(one, -1) for one in _texts(chunk, name, allow_empty=True)], dtype=np.int64)
    _refuse_first(found < 0, chunk, name, f"is none of the values that {field} lists")
    return found


def _texts(chunk: Chunk, name: str, *, allow_empty: bool = False) -> list[str]:
    """A column as text: an identity, a user, or one of some values. Raises: Malformed."""
    column: Column = chunk.columns[name]
    if isinstance(column, np.ndarray):
        # A whole column of whole numbers with a gap comes as floats.
        _refuse_first(np.isnan(column) if column.dtype.kind == "f" else np.zeros(0, bool), chunk, name, "is empty")
        _refuse_first(column != np.rint(column.astype(np.float64)), chunk, name, "is neither text nor a whole number")
        return [str(int(one)) for one in column]
    texts = [one.strip() for one in column]
    if not allow_empty:
        _refuse_first(np.array([not one for one in texts]), chunk, name, "is empty")
    return texts


def _require_finite(inputs: NDArray[np.float32], names: Sequence[str], chunk: Chunk) -> None:
    wrong = ~np.isfinite(inputs)
    if wrong.any():
        record, column = np.argwhere(wrong)[0]
        rule = "is infinite or too large for a float32"
        _refuse_first(np.arange(len(inputs)) == record, chunk, names[column], rule)


def _refuse_first(wrong: NDArray[np.bool_], chunk: Chunk, name: str, rule: str) -> None:
    """Raise Malformed for the first record that is wrong; its value is not quoted, since screens are logged."""
    if wrong.any():
        raise Malformed(chunk.where, f"column {name} of record {chunk.first + int(np.argmax(wrong))} {rule}")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
