"""What a job says of a model that answers: how an ensemble's teachers are trained, and when answers leave.

[train.teachers]
steps = 200
batch_size = 32

[train.answers]
cadence_s = 60
at_once = 32
repeated = "stored"
port = 8300
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from ledger.mechanisms.ensembles import QUESTIONS_MAX
from ledger.wire import canonical_json as c

STORED: Final = "stored"
CHARGED: Final = "charged"
REPEATED: Final = (STORED, CHARGED)
TEACHER_STEPS_MAX: Final = 1_000_000
TEACHER_BATCH_MAX: Final = 100_000
CADENCE_S_MAX: Final = 86_400
AT_ONCE_MAX: Final = 1_000
"""Questions that are answered together."""
PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class TeacherTerms:
    """How each teacher is trained, without privacy.

    Attributes:
        steps: of each teacher. batch_size: records of its chunk a step, drawn with replacement.
    """

    steps: int
    batch_size: int

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read the table ``[train.teachers]``. Raises: Malformed."""
        members = c.fields(value, where, ("steps", "batch_size"))
        return cls(
            c.integer(members["steps"], f"{where}.steps", 1, TEACHER_STEPS_MAX),
            c.integer(members["batch_size"], f"{where}.batch_size", 1, TEACHER_BATCH_MAX),
        )


@dataclass(frozen=True, slots=True)
class AnswerTerms:
    """When answers leave, and which questions are charged.

    Attributes:
        cadence_s: answers leave at multiples of so many seconds, whatever they took.
        at_once: questions that are answered together, at most.
        repeated: whether a question that was answered gets the stored answer, or is charged again.
        most: answers that are given at all, of a model whose answers cost nothing; None for no limit.
        port: of the loopback interface; 0 for any that is free.
    """

    cadence_s: int = 60
    at_once: int = 32
    repeated: str = STORED
    most: int | None = None
    port: int = 0

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read the table ``[train.answers]``. Raises: Malformed."""
        members = c.fields(value, where, (), ("cadence_s", "at_once", "repeated", "most", "port"))
        bounds = {
            "cadence_s": (1, CADENCE_S_MAX),
            "at_once": (1, AT_ONCE_MAX),
            "most": (1, QUESTIONS_MAX),
            "port": (0, PORT_MAX),
        }
        found: dict[str, Any] = {
            name: c.integer(members[name], f"{where}.{name}", *bounds[name]) for name in bounds if name in members
        }
        if "repeated" in members:
            found["repeated"] = c.one_of(members["repeated"], f"{where}.repeated", REPEATED)
        return cls(**found)
