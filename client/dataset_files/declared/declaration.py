"""What a provider declares of its records: bounds and categories of columns, how many there are, and of one person.

    {"columns":{"age":{"bounds":["0","120"]},"vaccine":{"categories":["1","2"]}},"person_records_max":1,
     "records_max":2119}

`epsilon dataset seal` refuses a record that breaks it, by name, and writes it into the sealed file's description. So a
clean room may hold the records to it: of the data sets that keep a declaration none ends a run, and two neighbours both
keep it. A run that ends says that the file was not sealed as its provider declares, and of no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from numpy.typing import NDArray

from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.record_parts import INPUTS, TARGETS, names_of
from ledger.wire import canonical_json as c

RECORDS_MAX: Final = 10**12
PERSON_RECORDS_MAX: Final = 1_024
"""Records of one person, at most, where a declaration bounds them."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """Beside this every number of sealed records is finite, declared or not.

    Attributes:
        columns: by the name of a table's input; of an archive by the name of an array, for each of its numbers.
        target: of each number of the target; None: any.
        records_max: how many records there may be; None: any number.
        person_records_max: how many records one person may have, by the tokens of the records; None: any number.
    """

    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    target: ColumnRule | None = None
    records_max: int | None = None
    person_records_max: int | None = None

    def __bool__(self) -> bool:
        """Whether it declares anything."""
        bounded = self.records_max is not None or self.person_records_max is not None
        return bounded or bool(self.columns) or self.target is not None

    def broken_by(self, arrays: Mapping[str, NDArray[Any]], names: tuple[str, ...]) -> str:
        """How some records break what it says of columns, or nothing: never a value, nor which record.

        Args:
            arrays: of the records, by name, each of shape (records, ...).
            names: of a table's columns, in the order of its inputs; none of an archive.
        """
        for name, rule in self.columns.items():
            numbers = _column(name, arrays, names)
            if numbers is None or not rule.fits(numbers).all():
                return f"column {name} {rule.text}"
        targets = [arrays[name] for name in names_of(TARGETS, arrays)]
        if self.target is not None and not (targets and all(self.target.fits(one).all() for one in targets)):
            return f"the target {self.target.text}"
        return ""

    def to_json(self) -> c.Object:
        """As a sealed file's description holds it."""
        columns: c.Object = {name: rule.to_json() for name, rule in self.columns.items()}
        members: c.Object = {"columns": columns} if columns else {}
        members |= {} if self.target is None else {"target": self.target.to_json()}
        members |= {} if self.person_records_max is None else {"person_records_max": self.person_records_max}
        return members | ({} if self.records_max is None else {"records_max": self.records_max})

    @classmethod
    def parse(cls, value: object, where: str) -> Declaration:
        """The inverse. Raises: Malformed."""
        members = c.fields(value, where, (), ("columns", "person_records_max", "records_max", "target"))
        columns = c.members(members.get("columns", {}), f"{where}.columns")
        target, most, of_one = (members.get(name) for name in ("target", "records_max", "person_records_max"))
        return cls(
            {name: ColumnRule.parse(rule, f"{where}.columns.{name}") for name, rule in columns.items()},
            None if target is None else ColumnRule.parse(target, f"{where}.target"),
            None if most is None else c.integer(most, f"{where}.records_max", 1, RECORDS_MAX),
            None if of_one is None else c.integer(of_one, f"{where}.person_records_max", 1, PERSON_RECORDS_MAX),
        )


def _column(name: str, arrays: Mapping[str, NDArray[Any]], names: tuple[str, ...]) -> NDArray[Any] | None:
    """The numbers of a column; None where the records have no such column."""
    if not names:
        return arrays.get(name)
    inputs = arrays.get(INPUTS)
    if inputs is None or inputs.ndim == 1 or name not in names[: inputs.shape[1]]:
        return None
    column: NDArray[Any] = inputs[:, names.index(name)]
    return column
