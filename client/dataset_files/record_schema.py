"""A table's schema: which columns are inputs, targets, users and identities, and how text becomes numbers.

    v = 1

    [records]
    target = "diagnosis"
    classes = ["B", "M"]
    inputs = ["age", "sex", "weight"]
    user = "patient"
    identity = ["patient"]

    [records.values]
    sex = ["f", "m"]

    [records.missing]
    weight = "0"

    [records.bounds]
    age = ["0", "120"]

``inputs`` are all other columns where it is absent, but those that ``leave_out`` names. ``classes`` names the values of
``target``, which then counts them from 0; without it the target holds whole numbers, or with ``target_kind = "number"``
any numbers. ``target`` may be a list of columns. A column under ``values`` is one number for each value, 1 where the
record has it and 0 elsewhere; an empty cell there is the value ``""``, where it is listed. In a column of numbers an
empty cell, or one with a word as ``NA``, is refused unless ``missing`` says which number replaces it. ``join`` names
the columns by which a clean room joins the table with those of other providers; such a table needs no target.
``join_rows_max`` of its records may be one person's, 1 if absent. ``bounds`` and ``categories`` declare which numbers a
column of numbers holds, ``records_max`` how many records the table has at most: a record that breaks it is refused, and
what is declared is sealed with the records (:mod:`client.dataset_files.declared`). Two records with one ``identity``
are one person's, and are refused unless ``user`` is named: then the unit is the user.

Nothing of this is taken from the records: a list of values that was collected from them would reveal which ones occur.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from client.dataset_files.declared.column_rule import ColumnRule, read_bounds, read_categories, signed_number
from client.dataset_files.declared.declaration import PERSON_RECORDS_MAX, RECORDS_MAX
from client.profile.profile import read_table
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

COLUMNS_MAX: Final = 65_536
VALUES_MAX: Final = 4_096
KINDS: Final = ("integer", "number")
_LISTS: Final = ("identity", "inputs", "leave_out", "person")
SCHEMA_FILE: Final = "schema.toml"
_OPTIONAL: Final = (
    "bounds",
    "categories",
    "classes",
    "identity",
    "inputs",
    "join",
    "join_rows_max",
    "leave_out",
    "missing",
    "person",
    "records_max",
    "target",
    "target_kind",
    "user",
    "values",
)


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """How records are read from a table.

    Attributes:
        target: one column, or several. target_kind: ``integer``, or ``number`` for a regression.
        classes: the target's values as text, in order; empty where it holds numbers.
        inputs: columns in order; empty: all that are nothing else.
        leave_out: columns that are no inputs, where ``inputs`` names none.
        user: whose each record is; empty where the unit is the record.
        identity: what a record is committed by; empty: the whole record as it is sealed.
        person: whose a record is, among all slices of a stream; empty: the user, or else the record's identity.
        values: by column, the values that text may have.
        missing: by column, the number that replaces an empty cell.
        join: by what a clean room joins a record with those of other providers; empty: by nothing.
        join_rows_max: how many records one person may have in a table that is joined.
        declared: by column of numbers, an input or a target, the bounds or the categories that it keeps; of an
            archive by array.
        records_max: how many records there are at most, as the provider declares; None: any number.
        file: what it was read from, for errors; None where it was made of options.
    """

    target: tuple[str, ...] = ()
    target_kind: str = "integer"
    classes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    user: str = ""
    identity: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)
    person: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    join: tuple[str, ...] = ()
    join_rows_max: int = 1
    declared: Mapping[str, ColumnRule] = field(default_factory=dict)
    records_max: int | None = None
    file: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Hold it to itself. Raises: Malformed."""
        c.one_of(self.target_kind, "target_kind", KINDS)
        if self.classes and self.target_kind != "integer":
            raise Malformed("classes", "are for a target of classes, not for numbers: leave out one of the two")
        if self.classes and len(self.target) != 1:
            raise Malformed("classes", "are for one target column")
        if self.inputs and self.leave_out:
            raise Malformed("leave_out", "is given together with inputs: leave out one of the two")
        for name in (*self.target, *([self.user] if self.user else [])):
            if name in self.inputs:
                raise Malformed("inputs", f"name the column {name}, which is the target or the user: a model would see")
        for name in self.declared:
            if name in self.values or (self.classes and name in self.target):
                raise Malformed("bounds", f"or categories are of the column {name}, whose values are listed as text")
        for name in self.join:
            if name in self.inputs:
                raise Malformed("inputs", f"name the column {name}, which the table is joined by: a model would see")

    @property
    def one_record_each(self) -> bool:
        """Whether an identity has one record: of a user, and of a person in some joins, there may be more."""
        return bool(self.identity) and not self.user and self.join_rows_max == 1

    @classmethod
    def load(cls, path: Path) -> RecordSchema:
        """Read a schema file. Raises: Malformed, naming the field; OSError."""
        table = read_table(path, "records", ())
        try:
            needed = () if "join" in table else ("target",)
            return cls(**_read(c.fields(table, "", needed, _OPTIONAL)), file=path)
        except Malformed as error:
            raise error.under(f"{path}: records") from None


def _read(known: Mapping[str, Any]) -> dict[str, Any]:
    members: dict[str, Any] = {name: _columns(known[name], name) for name in ("join", "target") if name in known}
    members |= {name: c.strings(known[name], name, COLUMNS_MAX) for name in _LISTS if name in known}
    if "join_rows_max" in known:
        members["join_rows_max"] = c.integer(known["join_rows_max"], "join_rows_max", 1, PERSON_RECORDS_MAX)
    if "classes" in known:
        members["classes"] = c.strings(known["classes"], "classes", VALUES_MAX)
    for name in ("target_kind", "user"):
        if name in known:
            members[name] = c.string(known[name], name)
    if "values" in known:
        values = c.members(known["values"], "values")
        members["values"] = {name: _values(listed, f"values.{name}") for name, listed in values.items()}
    if "missing" in known:
        fills = c.members(known["missing"], "missing")
        members["missing"] = {name: signed_number(number, f"missing.{name}") for name, number in fills.items()}
    if "records_max" in known:
        members["records_max"] = c.integer(known["records_max"], "records_max", 1, RECORDS_MAX)
    return members | {"declared": _declared(known)}


def _declared(known: Mapping[str, Any]) -> dict[str, ColumnRule]:
    """The rules of columns, in their order. Raises: Malformed."""
    bounds, categories = (c.members(known.get(field, {}), field) for field in ("bounds", "categories"))
    if twice := bounds.keys() & categories.keys():
        raise Malformed(f"categories.{min(twice)}", "has bounds too: leave out one of the two")
    rules = {name: ColumnRule(bounds=read_bounds(pair, f"bounds.{name}")) for name, pair in bounds.items()}
    listed = {name: read_categories(values, f"categories.{name}") for name, values in categories.items()}
    return rules | {name: ColumnRule(categories=values) for name, values in listed.items()}


def _values(listed: object, where: str) -> tuple[str, ...]:
    """The values of a text column; one of them may be empty, for cells that are."""
    if isinstance(listed, list) and listed.count("") == 1:
        c.strings([item for item in listed if item != ""], where, VALUES_MAX - 1)
        return tuple(listed)
    return c.strings(listed, where, VALUES_MAX)


def _columns(value: object, where: str) -> tuple[str, ...]:
    return (c.string(value, where),) if isinstance(value, str) else c.strings(value, where, VALUES_MAX)
