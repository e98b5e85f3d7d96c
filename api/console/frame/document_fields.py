"""Documents as rows of fields, several versions beside one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from api.console.frame.cells import moment, text
from api.console.frame.tables import Table
from ledger.wire import canonical_json as c

FIELDS_MAX: Final = 400
"""Fields of one document that a page shows."""
_TIMES: Final = frozenset({"effective", "ends", "starts"})
"""Fields that hold a time in Unix milliseconds."""
_ABSENT: Final = "–"
_QUIET: Final = frozenset({"batch_size_expected", "crv", "e", "kind", "kty", "n", "v", "x", "y"})
"""Fields that say nothing to people, or that a page never shows."""


class Versions(NamedTuple):
    """Versions by name, newest first; each field with its value in each; and the names of those that differ."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    changed: frozenset[str]

    def table(self) -> Table:
        """A row for each field, a column for each version."""
        rows = tuple((text(name), *map(text, values)) for name, values in self.rows)
        return Table("fields", "What it says, version beside version", ("Field", *self.names), rows)


def document_fields(names: Sequence[str], documents: Sequence[Mapping[str, c.Json]]) -> Versions:
    """Compare documents field by field, by dotted paths."""
    flat = [dict(_flat("", dict(document))) for document in documents]
    every = dict.fromkeys(name for fields in flat for name in fields)
    known = [name for name in every if name.rpartition(".")[2] not in _QUIET][:FIELDS_MAX]
    rows = tuple((name, tuple(fields.get(name, _ABSENT) for fields in flat)) for name in known)
    return Versions(tuple(names), rows, frozenset(name for name, values in rows if len(set(values)) > 1))


def _flat(path: str, value: c.Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _flat(f"{path}.{name}" if path else name, member)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for place, item in enumerate(value):
            yield from _flat(f"{path}[{place}]", item)
    elif isinstance(value, list):
        yield path, ", ".join(map(_words, value)) or "none"
    elif isinstance(value, int) and path.rpartition(".")[2] in _TIMES:
        yield path, moment(value).text
    else:
        yield path, _words(value)


def _words(value: c.Json) -> str:
    if value is None:
        return _ABSENT
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
