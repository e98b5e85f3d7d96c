"""A job: an assignment, and what ``epsilon train`` makes of it; read from the same TOML file.

    [train]
    ...
    model = "digits-linear"
    learning_rate = "0.3"
    momentum = "0.9"
    test = "data/test.npz"
    accuracy_target = "0.85"

``accuracy_target`` may be left out; it is measured on public data only, so a run that stops at it stops on what was
released and may give its unexecuted steps back.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from ledger import canonical as c
from ledger.units import parse_number, parse_positive
from trainer_adapter.assignment import OPTIONAL, REQUIRED, Assignment, assigned, path_in, read_train

_OWN: Final = ("learning_rate", "model", "momentum", "test")


@dataclass(frozen=True, kw_only=True)
class Job(Assignment):
    """One run of a model that :mod:`trainer_adapter.models` has."""

    model: str
    learning_rate: Fraction
    momentum: Fraction
    test: Path
    accuracy_target: Fraction | None

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job file. Raises: Malformed, naming the field; OSError."""
        return read_train(path, lambda value: cls._parse(value, path.parent))

    @classmethod
    def _parse(cls, value: object, folder: Path) -> Job:
        known = c.fields(value, "", (*REQUIRED, *_OWN), (*OPTIONAL, "accuracy_target"))
        target = parse_number(known["accuracy_target"], "accuracy_target") if "accuracy_target" in known else None
        return cls(
            **assigned(known, folder),
            model=c.string(known["model"], "model", 64),
            learning_rate=parse_positive(known["learning_rate"], "learning_rate"),
            momentum=parse_number(known["momentum"], "momentum"),
            test=path_in(folder, known["test"], "test"),
            accuracy_target=target,
        )
