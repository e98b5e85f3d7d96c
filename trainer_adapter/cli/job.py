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

from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number, parse_positive
from trainer_adapter.job.job_spec import RECORDS_PER_UNIT_MAX, Assignment, path_in, plain, read_by, read_train


def _read_model(value: object, where: str, folder: Path) -> str:
    name = c.string(value, where, 200)
    if ":" in name:
        path_in(name.rpartition(":")[0], where, folder)
    return name


@dataclass(frozen=True, kw_only=True)
class Job(Assignment):
    """One run of a model that :mod:`trainer_adapter.cli.models` makes; ``folder`` is the job's own."""

    folder: Path
    model: str = field(metadata=read_by(_read_model))
    learning_rate: Fraction = field(metadata=plain(parse_positive))
    momentum: Fraction = field(metadata=plain(parse_number))
    test: Path = field(metadata=read_by(path_in))
    accuracy_target: Fraction | None = field(default=None, metadata=plain(parse_number))
    records_per_user_max: int | None = field(default=None, metadata=plain(c.integer, 1, RECORDS_PER_UNIT_MAX))

    @classmethod
    def load(cls, path: Path) -> Job:
        """Read a job file. Raises: Malformed, naming the field; OSError."""
        job = read_train(Job, path, folder=path.parent)
        if ":" in job.model and job.pipeline is None:
            return replace(job, pipeline=path.parent / job.model.rpartition(":")[0])
        return job
