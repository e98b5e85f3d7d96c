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

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number, parse_positive
from trainer_adapter.job.job_spec import (
    OPTIONAL,
    RECORDS_PER_UNIT_MAX,
    REQUIRED,
    Assignment,
    Reader,
    path_in,
    plain,
    read_train,
)


@dataclass(frozen=True, kw_only=True)
class Job(Assignment):
    """One run of a model that :mod:`trainer_adapter.cli.models` makes; ``folder`` is the job's own."""

    folder: Path
    model: str
    learning_rate: Fraction
    momentum: Fraction
    test: Path
    accuracy_target: Fraction | None = None
    records_per_user_max: int | None = None

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job file. Raises: Malformed, naming the field; OSError."""
        known = read_train(path, _REQUIRED, _OPTIONAL)
        file, colon, _ = known["model"].rpartition(":")
        if colon:
            known.setdefault("pipeline", path.parent / file)
        return cls(**known, folder=path.parent)


def _model(value: object, field: str, folder: Path) -> str:
    name = c.string(value, field, 200)
    if ":" in name:
        path_in(name.rpartition(":")[0], field, folder)
    return name


_REQUIRED: Final[Mapping[str, Reader]] = {
    **REQUIRED,
    "learning_rate": plain(parse_positive),
    "model": _model,
    "momentum": plain(parse_number),
    "test": path_in,
}
_OPTIONAL: Final[Mapping[str, Reader]] = {
    **OPTIONAL,
    "accuracy_target": plain(parse_number),
    "records_per_user_max": plain(c.integer, 1, RECORDS_PER_UNIT_MAX),
}
