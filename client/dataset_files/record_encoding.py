"""From a table's chunks to records as they are sealed: numbers in one packed row, by a schema alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from client.dataset_files.column_misfit import CLASSES, EMPTY, VALUES, Misfit, columns_shown, some, together
from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.declared.declaration import Declaration
from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.sealed_records import RecordLayout, Rows
from client.dataset_files.table_chunks import Chunk, Column, Table
from client.dataset_files.tokens.person_tokens import JOIN, PERSON, PersonTokens, join_person
from client.dataset_files.tokens.token_counts import TOKEN_BYTES
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

INTEGER_MAX: Final = 1 << 53
"""The magnitude to which a float64 holds every whole number."""
_TOO_LARGE: Final = "is infinite or too large for a float32"
_EMPTY_TEXT: Final = {
    "classes": "is empty: leave the record out",
    "values": 'is empty: add "" to its values in a schema, or leave the record out',
}
_NONE: Final = frozenset({"na", "n/a", "null", "none"})
"""What programs write into a cell of numbers that is empty, in any case."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records as they are sealed, what each is committed by, and by what its person is.

    Attributes:
        spelled: identity and person of each record in their file's own Unicode form, by which programs of before
            committed; empty where none differs.
    """

    rows: Rows
    identities: list[bytes]
    persons: list[bytes]
    spelled: Sequence[tuple[bytes, bytes]] = ()

    def kept(self, places: Sequence[int]) -> Batch:
        """The records at these places alone."""
        identities, persons = ([known[place] for place in places] for known in (self.identities, self.persons))
        spelled = [self.spelled[place] for place in places] if self.spelled else ()
        return Batch(self.rows[np.array(places, dtype=np.int64)], identities, persons, spelled)


class TableRecords:
    """The records of a table under a schema.

    Attributes:
        layout: arrays ``inputs`` (float32), and where there are any ``targets`` (int64 or float32), ``users`` (int64),
            and tokens of 32 bytes: ``join``, or ``person`` where an identity has one record.
    """

    def __init__(self, table: Table, schema: RecordSchema, join_key: bytes | None = None) -> None:
        """Hold the schema to the table's columns; ``join_key`` is there where it is joined. Raises: Malformed."""
        self._table, self._schema = table, schema
        if (join_key is None) != (not schema.join):
            raise Malformed("join-key", "is needed with the join columns, and only there")
        self._tokens = None if join_key is None else PersonTokens(join_key, schema.join_rows_max)
        self._persons_seen = PersonTokens.of_file() if schema.one_record_each else None
        self._check_columns()
        special = {*schema.target, schema.user, *schema.identity, *schema.person, *schema.leave_out, *schema.join}
        self._inputs = schema.inputs or tuple(name for name in table.columns if name not in special)
        if not self._inputs:
            raise Malformed("inputs", "name no column: all columns are target, user or identity")
        names = tuple(column for name in self._inputs for column in self._encoded(name))
        shape = () if len(schema.target) == 1 else (len(schema.target),)
        kind = "<i8" if schema.target_kind == "integer" else "<f4"
        arrays: list[tuple[str, str, tuple[int, ...]]] = [("inputs", "<f4", (len(names),))]
        arrays += [("targets", kind, shape)] if schema.target else []
        arrays += [("users", "<i8", ())] if schema.user else []
        arrays += [(name, "|u1", (TOKEN_BYTES,)) for name in self._token_arrays()]
        self.layout = RecordLayout(np.dtype(arrays), names, schema.classes, self._declaration())
        self._users: dict[str, int] = {}

    def _check_columns(self) -> None:
        schema, known = self._schema, self._table.columns
        if not schema.target and not schema.join:
            raise Malformed("target", f"is missing: name the column to predict, one of {some(known)}")
        named = {
            "target": schema.target,
            "inputs": schema.inputs,
            "user": (schema.user,) if schema.user else (),
            "identity": schema.identity,
            "person": schema.person,
            "join": schema.join,
            "values": tuple(schema.values),
            "missing": tuple(schema.missing),
            "leave_out": schema.leave_out,
            "bounds or categories": tuple(schema.declared),
        }
        for field, columns in named.items():
            for name in columns:
                if name not in known:
                    where = field if schema.file is None else f"{schema.file}: records.{field}"
                    shown = columns_shown(name, known)
                    raise Malformed(where, f"names the column {name}, which the table lacks: it has {shown}")

    def _declaration(self) -> Declaration | None:
        """What the schema declares of what is sealed. Raises: Malformed, for a column that is not."""
        schema, sealed = self._schema, {*self._inputs, *self._schema.target}
        if spare := [name for name in schema.declared if name not in sealed]:
            raise Malformed("bounds", f"or categories are of the column {spare[0]}, which is no input and no target")
        columns = {name: rule for name, rule in schema.declared.items() if name in self._inputs}
        of_one = schema.join_rows_max if schema.join else 1 if schema.one_record_each else None
        return Declaration(columns, self._target_rule(), schema.records_max, of_one) or None

    def _target_rule(self) -> ColumnRule | None:
        """What is declared of the target, or follows from its classes. Raises: Malformed."""
        schema = self._schema
        if schema.classes:
            return ColumnRule(categories=tuple(str(number) for number in range(len(schema.classes))))
        rules = {schema.declared.get(name) for name in schema.target}
        if len(rules) > 1:
            raise Malformed("bounds", "or categories must be the same for all target columns")
        return rules.pop() if rules else None

    def _token_arrays(self) -> tuple[str, ...]:
        """By what the persons of records are known: one array of tokens is enough."""
        return (JOIN,) if self._schema.join else (PERSON,) if self._schema.one_record_each else ()

    def _encoded(self, name: str) -> tuple[str, ...]:
        values = self._schema.values.get(name)
        return (name,) if values is None else tuple(f"{name}={value}" for value in values)

    def batches(self) -> Iterator[Batch]:
        """All records, in order.

        Raises:
            Malformed: naming the file, and each column that does not fit with its first such record; never a value.
            OSError.
        """
        chunks, most, seen = self._table.chunks(), self._schema.records_max, 0
        for chunk in chunks:
            try:
                batch = self._batch(chunk)
            except Misfit as first:
                raise together(self._misfits(chunk, chunks) or [first], self._schema.file) from None
            seen += len(batch.rows)
            if most is not None and seen > most:
                raise Malformed(chunk.where, f"has more records than records_max declares, which is {most}")
            yield batch
        for tokens in (self._tokens, self._persons_seen):
            if tokens is not None:
                tokens.check()

    def _misfits(self, chunk: Chunk, later: Iterator[Chunk]) -> list[Misfit]:
        """The first of each column in some records and those after them in the same file."""
        schema, where = self._schema, chunk.where
        checks: dict[str, Callable[[Chunk, str], object]] = dict.fromkeys(
            (*schema.identity, *schema.person, *schema.join, *([schema.user] if schema.user else [])), _texts
        )
        checks |= dict.fromkeys(self._inputs, self._input) | dict.fromkeys(schema.target, self._target)
        misfits: dict[str, Misfit] = {}
        with suppress(Malformed, OSError):
            for following in takewhile(lambda other: other.where == where, chain((chunk,), later)):
                for name, check in checks.items():
                    try:
                        _ = misfits.get(name) or check(following, name)
                    except Misfit as misfit:
                        misfits[name] = misfit
        return [misfits[name] for name in self._table.columns if name in misfits]

    def _batch(self, chunk: Chunk) -> Batch:
        schema = self._schema
        count = len(next(iter(chunk.columns.values())))
        rows = np.zeros(count, self.layout.dtype)
        rows["inputs"] = np.column_stack([self._input(chunk, name) for name in self._inputs])
        if schema.target:
            targets = np.column_stack([self._target(chunk, name) for name in schema.target])
            rows["targets"] = targets[:, 0] if len(schema.target) == 1 else targets
        if schema.user:
            users = _names(chunk, schema.user)
            rows["users"] = [self._users.setdefault(user, len(self._users)) for user in users]
        if self._tokens is not None:
            cells = [*zip(*[_names(chunk, name) for name in schema.join], strict=True)]
            rows[JOIN] = self._tokens.of([join_person(cell) for cell in cells], chunk.where, chunk.first)
        identities, persons = self._known_by(chunk, rows, _names)
        named = {*schema.identity, *schema.person, *([schema.user] if schema.user else [])}
        differ = any(_names(chunk, name) != _texts(chunk, name) for name in named)
        spelled = [*zip(*self._known_by(chunk, rows, _texts), strict=True)] if differ else ()
        if self._persons_seen is not None:
            tokens = self._persons_seen.of(identities, chunk.where, chunk.first)
            if PERSON in self._token_arrays():
                rows[PERSON] = tokens
        return Batch(rows, identities, persons, spelled)

    def _input(self, chunk: Chunk, name: str) -> NDArray[np.float32]:
        values = self._schema.values.get(name)
        if values is not None:
            return np.eye(len(values), dtype=np.float32)[_places(chunk, name, values, "values")]
        with np.errstate(over="ignore"):
            numbers = _numbers(chunk, name, self._schema.missing.get(name), VALUES).astype(np.float32)
        _refuse_first(~np.isfinite(numbers), chunk, name, _TOO_LARGE)
        self._refuse_undeclared(numbers, chunk, name)
        return numbers[:, None]

    def _target(self, chunk: Chunk, name: str) -> NDArray[Any]:
        schema = self._schema
        if schema.classes:
            return _places(chunk, name, schema.classes, "classes")
        numbers = _numbers(chunk, name, schema.missing.get(name), CLASSES)
        if schema.target_kind == "number":
            with np.errstate(over="ignore"):
                sealed = numbers.astype(np.float32)
            _refuse_first(~np.isfinite(sealed), chunk, name, _TOO_LARGE)
            self._refuse_undeclared(sealed, chunk, name)
            return sealed
        _refuse_first(
            (numbers != np.rint(numbers)) | (np.abs(numbers) > INTEGER_MAX), chunk, name, "is no whole number"
        )
        self._refuse_undeclared(numbers, chunk, name)
        return numbers.astype(np.int64)

    def _refuse_undeclared(self, numbers: NDArray[Any], chunk: Chunk, name: str) -> None:
        rule = self._schema.declared.get(name)
        if rule is not None:
            _refuse_first(~rule.fits(numbers), chunk, name, rule.text)

    def _known_by(
        self, chunk: Chunk, rows: Rows, read: Callable[[Chunk, str], list[str]]
    ) -> tuple[list[bytes], list[bytes]]:
        """Identity and person of each record; where no column says whose a record is, it is a person's one."""
        schema = self._schema
        if schema.identity:
            columns = [read(chunk, name) for name in schema.identity]
            identities = [b"identity\n" + c.dump([*cells]) for cells in zip(*columns, strict=True)]
        else:
            identities = [b"record\n" + row.tobytes() for row in rows]
        named = schema.person or ((schema.user,) if schema.user else ())
        cells = zip(*[read(chunk, name) for name in named], strict=True)
        return identities, [b"person\n" + c.dump([*cell]) for cell in cells] or identities


def _numbers(chunk: Chunk, name: str, fill: float | None, text_rule: str) -> NDArray[np.float64]:
    """A column as float64; ``text_rule`` is what text breaks. Raises: Misfit."""
    column = chunk.columns[name]
    if isinstance(column, np.ndarray):
        numbers = column.astype(np.float64)
        empty = np.isnan(numbers)
    else:
        texts = np.array([text.strip() for text in column], dtype=np.str_)
        empty = texts == ""
        try:
            numbers = np.where(empty, "nan", texts).astype(np.float64)
        except ValueError:
            empty |= np.array([text.casefold() in _NONE for text in texts])
            wrong = np.array([not _is_number(text) for text in texts]) & ~empty
            _refuse_first(wrong, chunk, name, text_rule)
            numbers = np.where(empty, "nan", texts).astype(np.float64)
        empty = np.isnan(numbers)
    if fill is None:
        _refuse_first(empty, chunk, name, EMPTY)
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
    texts = _texts(chunk, name, allow_empty=True)
    codes = np.array([places.get(text, -1) for text in texts], dtype=np.int64)
    _refuse_first(np.array([not text and "" not in places for text in texts]), chunk, name, _EMPTY_TEXT[field])
    _refuse_first(codes < 0, chunk, name, f"is none of the values that {field} lists")
    return codes


def _texts(chunk: Chunk, name: str, *, allow_empty: bool = False) -> list[str]:
    """A column as text, spelled as it is: one of some values, or a name. Raises: Malformed."""
    column: Column = chunk.columns[name]
    if isinstance(column, np.ndarray):
        # A whole column of whole numbers with a gap comes as floats.
        _refuse_first(np.isnan(column) if column.dtype.kind == "f" else np.zeros(0, bool), chunk, name, "is empty")
        _refuse_first(column != np.rint(column.astype(np.float64)), chunk, name, "is neither text nor a whole number")
        return [str(int(number)) for number in column]
    texts = [text.strip() for text in column]
    if not allow_empty:
        _refuse_first(np.array([not text for text in texts]), chunk, name, "is empty")
    return texts


def _names(chunk: Chunk, name: str) -> list[str]:
    """A column that says whose a record is, in Unicode's form NFC: composed or decomposed, a name is one person's."""
    return [unicodedata.normalize("NFC", text) for text in _texts(chunk, name)]


def _refuse_first(wrong: NDArray[np.bool_], chunk: Chunk, name: str, rule: str) -> None:
    """Raise Misfit for the first record that is wrong."""
    if wrong.any():
        raise Misfit(chunk.where, name, chunk.first + int(np.argmax(wrong)), rule)
