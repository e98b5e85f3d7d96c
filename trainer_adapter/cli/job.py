"""A job: an assignment, and what ``epsilon train`` makes of it; read from the same TOML file.

    [train]
    ...
    model = "digits-linear"
    learning_rate = "0.3"
    momentum = "0.9"
    test = "data/test.npz"
    accuracy_target = "0.85"

``model`` is a name of :mod:`trainer_adapter.cli.models` or a function in a file beside the job, as
``networks.py:small``; the file is then the run's ``pipeline``, unless the job names another. ``accuracy_target`` may be
left out; it is measured on public data only, so a run that stops at it stops on what was released and may give its
unexecuted steps back. ``records_per_user_max`` is there where the plan's unit is the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number, parse_positive
from trainer_adapter.job.job_spec import (
    OPTIONAL,
    RECORDS_PER_UNIT_MAX,
    REQUIRED,
    Assignment,
    assigned,
    path_in,
    read_train,
)

_OWN: Final = ("learning_rate", "model", "momentum", "test")


@dataclass(frozen=True, kw_only=True)
class Job(Assignment):
    """One run of a model that :mod:`trainer_adapter.cli.models` makes; ``folder`` is the job's own."""

    folder: Path
    model: str
    learning_rate: Fraction
    momentum: Fraction
    test: Path
    accuracy_target: Fraction | None
    records_per_user_max: int | None

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job file. Raises: Malformed, naming the field; OSError."""
        return read_train(path, lambda value: cls._parse(value, path.parent))

    @classmethod
    def _parse(cls, value: object, folder: Path) -> Job:
        known = c.fields(value, "", (*REQUIRED, *_OWN), (*OPTIONAL, "accuracy_target", "records_per_user_max"))
        target = parse_number(known["accuracy_target"], "accuracy_target") if "accuracy_target" in known else None
        model = c.string(known["model"], "model", 200)
        base = assigned(known, folder)
        if ":" in model and base["pipeline"] is None:
            base["pipeline"] = path_in(folder, model.rpartition(":")[0], "model")
        return cls(
            **base,
            folder=folder,
            model=model,
            learning_rate=parse_positive(known["learning_rate"], "learning_rate"),
            momentum=parse_number(known["momentum"], "momentum"),
            test=path_in(folder, known["test"], "test"),
            accuracy_target=target,
            records_per_user_max=_bound(known),
        )


def _bound(known: dict[str, Any]) -> int | None:
    if "records_per_user_max" not in known:
        return None
    return c.integer(known["records_per_user_max"], "records_per_user_max", 1, RECORDS_PER_UNIT_MAX)
