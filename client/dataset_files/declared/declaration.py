"""What a provider declares of its records: bounds and categories of columns, and how many records there are at most.

    {"columns":{"age":{"bounds":["0","120"]},"vaccine":{"categories":["1","2"]}},"records_max":2119}

`epsilon dataset seal` refuses a record that breaks it, by name, and writes it into the sealed file's description. So a
clean room may hold the records to it: of the data sets that keep a declaration none ends a run, and two neighbours both
keep it. A run that ends says that the file was not sealed as its provider declares, and of no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from client.dataset_files.declared.column_rule import ColumnRule
from ledger.wire import canonical_json as c

RECORDS_MAX: Final = 10**12
_FINITE: Final = "holds what is no finite number"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Of a table's records, beside this: every number of them is finite.

    Attributes:
        columns: by the name of an input.
        target: of each number of the target; None: any.
        records_max: how many records there may be; None: any number.
    """

    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    target: ColumnRule | None = None
    records_max: int | None = None

    def __bool__(self) -> bool:
        """Whether it declares anything."""
        return bool(self.columns) or self.target is not None or self.records_max is not None

    def broken_by(self, inputs: NDArray[Any] | None, targets: NDArray[Any] | None, names: tuple[str, ...]) -> str:
        """How some records break it, or nothing: never a value, nor which record.

        Args:
            inputs: shape (records, columns); None where there are none. targets: shape (records, ...).
            names: of the columns.
        """
        for part, numbers in (("an input", inputs), ("the target", targets)):
            if numbers is not None and numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
                return f"{part} {_FINITE}"
        for name, rule in self.columns.items():
            if inputs is None or name not in names or not rule.fits(inputs[:, names.index(name)]).all():
                return f"column {name} {rule.text}"
        if self.target is not None and (targets is None or not self.target.fits(targets).all()):
            return f"the target {self.target.text}"
        return ""

    def to_json(self) -> c.Object:
        """As a sealed file's description holds it."""
        columns: c.Object = {name: rule.to_json() for name, rule in self.columns.items()}
        members: c.Object = {"columns": columns} if columns else {}
        members |= {} if self.target is None else {"target": self.target.to_json()}
        return members | ({} if self.records_max is None else {"records_max": self.records_max})

    @classmethod
    def parse(cls, value: object, where: str) -> Declaration:
        """The inverse. Raises: Malformed."""
        members = c.fields(value, where, (), ("columns", "records_max", "target"))
        columns = c.members(members.get("columns", {}), f"{where}.columns")
        target, most = members.get("target"), members.get("records_max")
        return cls(
            {name: ColumnRule.parse(rule, f"{where}.columns.{name}") for name, rule in columns.items()},
            None if target is None else ColumnRule.parse(target, f"{where}.target"),
            None if most is None else c.integer(most, f"{where}.records_max", 1, RECORDS_MAX),
        )
