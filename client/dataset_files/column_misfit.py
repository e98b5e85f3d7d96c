"""The first record of each column that does not fit a schema, and the setting that would make it fit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from ledger.wire.malformed import Malformed

CLASSES: Final = "is no number: name its values in order, {classes}"
VALUES: Final = "is no number: name its values, {values}, or leave it out{leave_out}"
EMPTY: Final = "is empty or NaN: say what replaces it, {missing}, or leave the record out"
_BY_OPTION: Final = {
    "classes": "as --classes A,B",
    "values": "as --values {name}=A,B",
    "missing": "as --missing {name}=NUMBER",
    "leave_out": " of the inputs",
}
_BY_SCHEMA: Final = {
    "classes": 'in {file}, under [records]: classes = ["A", "B"]',
    "values": 'in {file}, under [records.values]: {name} = ["A", "B"]',
    "missing": 'in {file}, under [records.missing]: {name} = "NUMBER"',
    "leave_out": ", under [records]: leave_out = [{name}]",
}
_DELIMITERS: Final = (";", "\t", "|")
_ANY: Final = "COLUMN"


class Misfit(Malformed):
    """The first record of a column that does not fit the schema; its value is not quoted, since screens are logged."""

    def __init__(self, where: str, column: str, record: int, rule: str) -> None:
        """Name the file, the column and the record; ``rule`` may name a setting, as :func:`_advised` words it."""
        super().__init__(where, f"column {column} of record {record} {rule}")
        self.column, self.record, self.template = column, record, rule


def together(misfits: Sequence[Misfit], schema: Path | None) -> Malformed:
    """One error of all columns that do not fit: those that break the same rule in one part of the sentence."""
    if len(misfits) == 1:
        (misfit,) = misfits
        rule = _advised(misfit.template, misfit.column, schema)
        return Malformed(misfit.field, f"column {misfit.column} of record {misfit.record} {rule}")
    groups: dict[str, list[Misfit]] = {}
    for misfit in misfits:
        groups.setdefault(misfit.template, []).append(misfit)
    parts = []
    for rule, alike in groups.items():
        named = ", ".join(f"{misfit.column} (record {misfit.record})" for misfit in alike)
        words = _advised(rule, _ANY if len(alike) > 1 else alike[0].column, schema)
        parts.append(f"{named}{': each' if len(alike) > 1 else ''} {words}")
    return Malformed(misfits[0].field, f"{len(misfits)} columns do not fit: {'; '.join(parts)}")


def _advised(rule: str, column: str, schema: Path | None) -> str:
    """A rule with the setting that it names as the user writes it: in the schema's file, or as an option in a shell."""
    name = shlex.quote(column) if schema is None else json.dumps(column, ensure_ascii=False)
    words = _BY_OPTION if schema is None else _BY_SCHEMA
    return rule.format(**{field: text.format(name=name, file=schema) for field, text in words.items()})


def columns_shown(name: str, known: Sequence[str]) -> str:
    """The columns that a table has, and which of them may be meant."""
    if len(known) == 1 and (delimiters := [delimiter for delimiter in _DELIMITERS if delimiter in known[0]]):
        shown = "tabs" if delimiters[0] == "\t" else delimiters[0]
        return f"{some(known)}; is it separated by {shown}? Save it with commas"
    near = get_close_matches(name, known, 1)
    return f"{some(known)}; is {near[0]} meant?" if near else some(known)


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
