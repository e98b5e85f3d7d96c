"""A job's estimator: any function of a chunk's records, in a file beside the job, and the time that each chunk gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

MILLISECONDS_MAX: Final = 3_600_000
"""Of one chunk."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """A function ``FILE.py:FUNCTION`` of arrays (inputs, targets) that gives a number, or several.

    Attributes:
        file: where it is. function: its name.
        milliseconds: of each chunk; one that takes more than nine tenths of them counts as the fixed answer, and one
            that takes less waits.
    """

    file: Path
    function: str
    milliseconds: int

    @classmethod
    def parse(cls, value: object, where: str, folder: Path) -> Self:
        """Read the table ``[train.estimator]``. Raises: Malformed."""
        members = c.fields(value, where, ("function", "milliseconds"))
        named = c.string(members["function"], f"{where}.function", 200)
        file, _, function = named.rpartition(":")
        if not file.endswith(".py") or "\0" in file or not function.isidentifier():
            raise Malformed(f"{where}.function", f"must be FILE.py:FUNCTION, which {named} is not")
        limit = c.integer(members["milliseconds"], f"{where}.milliseconds", 1, MILLISECONDS_MAX)
        return cls(folder / file, function, limit)
