"""DP-SGD in a clean room, charged to the ledger: ``from trainer_adapter import attach`` starts a run of a model.

These names are the public ones, with :mod:`trainer_adapter.integrations`. They load torch when they are first used, so
that ``epsilon --help`` does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trainer_adapter.devices.attach_ranks import attach_ranks
    from trainer_adapter.job.job_spec import Assignment
    from trainer_adapter.layers.next_token_loss import next_token_loss
    from trainer_adapter.run.charged_run import Run
    from trainer_adapter.statistics.staged_run import attach_stages
    from trainer_adapter.training.attach import attach
    from trainer_adapter.training.model_run import ModelRun
    from trainer_adapter.training.run_options import Options
    from trainer_adapter.training.training_records import read_records

__all__ = [
    "Assignment",
    "ModelRun",
    "Options",
    "Run",
    "attach",
    "attach_ranks",
    "attach_stages",
    "next_token_loss",
    "read_records",
]

_MODULES: Final = {
    "Assignment": "trainer_adapter.job.job_spec",
    "Run": "trainer_adapter.run.charged_run",
    "read_records": "trainer_adapter.training.training_records",
    "ModelRun": "trainer_adapter.training.model_run",
    "Options": "trainer_adapter.training.run_options",
    "attach": "trainer_adapter.training.attach",
    "attach_ranks": "trainer_adapter.devices.attach_ranks",
    "attach_stages": "trainer_adapter.statistics.staged_run",
    "next_token_loss": "trainer_adapter.layers.next_token_loss",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """A public name, from the module that defines it. Raises: AttributeError."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
