"""What a job tunes: the values that each trial draws from, and how long a trial may take.

[train.tuning]
trial_s = 60

[train.tuning.space]
learning_rate = ["0.1", "0.3", "1"]
clipping_norm = ["0.5", "1"]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from ledger.mechanisms.plan import BATCH_MAX
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number, parse_positive
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_fields import read_model

TRIAL_S_MAX: Final = 86_400
VALUES_MAX: Final = 256
"""Values of one member of the space."""
Value: TypeAlias = Fraction | int | str
Space: TypeAlias = dict[str, tuple[Value, ...]]
Point: TypeAlias = dict[str, Value]
"""One value of each member of the space."""
PLAN_MEMBERS: Final = ("batch_size_expected", "clipping_norm")
"""Members of the space that change the plan of a trial."""
_READERS: Final[dict[str, Callable[[Any, str, Path], Value]]] = {
    "batch_size_expected": lambda value, where, _: c.integer(value, where, 1, BATCH_MAX),
    "clipping_norm": lambda value, where, _: parse_positive(value, where),
    "learning_rate": lambda value, where, _: parse_positive(value, where),
    "model": read_model,
    "momentum": lambda value, where, _: parse_number(value, where),
    "weight_decay": lambda value, where, _: parse_number(value, where),
}
MEMBERS: Final = tuple(_READERS)


@dataclass(frozen=True, slots=True)
class TuningTerms:
    """The declared space of a job, and the time of its trials.

    Attributes:
        space: the values of each member; a trial draws each of them uniformly, independent of every other trial.
        trial_s: the whole run takes as long as the most trials of so many seconds each, however many there are.
    """

    space: Space
    trial_s: int

    @classmethod
    def parse(cls, value: object, where: str, folder: Path) -> Self:
        """Read the table ``[train.tuning]``. Raises: Malformed."""
        known = c.fields(value, where, ("space", "trial_s"))
        space = c.fields(known["space"], f"{where}.space", (), MEMBERS)
        if not space:
            raise Malformed(f"{where}.space", f"is empty: name values of {', '.join(MEMBERS)}")
        found = {name: _values(space[name], f"{where}.space.{name}", name, folder) for name in space}
        return cls(found, c.integer(known["trial_s"], f"{where}.trial_s", 1, TRIAL_S_MAX))


def _values(value: object, where: str, name: str, folder: Path) -> tuple[Value, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= VALUES_MAX:
        raise Malformed(where, f"must be a list of 1 to {VALUES_MAX} values")
    found = tuple(_READERS[name](one, f"{where}.{place}", folder) for place, one in enumerate(value))
    if len(set(found)) != len(found):
        raise Malformed(where, "must have different values: each is drawn with the same probability")
    return found
