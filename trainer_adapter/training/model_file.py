"""The file of a trained model: safetensors, whose metadata name the charge, the plan and the ε of the run."""

from __future__ import annotations

from collections.abc import Mapping

from safetensors.torch import save
from torch import Tensor, nn

from ledger.accounts.run_epsilon import ChargeEpsilon, RunEpsilon, greatest
from ledger.mechanisms.statistics_plans import StagedPlan, StatisticsPlan
from ledger.wire.exact_numbers import format_number
from ledger.wire.records import write
from trainer_adapter.job.job_spec import Assignment


def model_bytes(
    model: nn.Module, assignment: Assignment, steps: int, privacy: ChargeEpsilon, more: Mapping[str, str] | None = None
) -> bytes:
    """A model after ``steps`` steps as safetensors, whose metadata name what it cost.

    The same model and run make the same bytes. ``epsilon`` is of the whole plan, however few of its steps ran: the
    greatest of the lines in ``run_epsilon``, whose partition, δ and accountant are beside it. Of a model that starts
    from charged ones, ``epsilon_with_ancestry`` is the greatest of ``with_ancestry``, and the partition of that line
    is beside it. Each is ``infinite`` if none is proven. ``more`` are further metadata.
    """
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    return tensors_bytes(tensors, assignment, steps, privacy, more)


def tensors_bytes(
    tensors: Mapping[str, Tensor],
    assignment: Assignment,
    steps: int,
    privacy: ChargeEpsilon,
    more: Mapping[str, str] | None = None,
) -> bytes:
    """The same of any tensors: what a run of statistics answered is such a file, which also names each statistic."""
    figure = privacy.epsilon
    about = {
        "accountant": figure.accountant,
        "charge": assignment.id,
        "contract": assignment.contract,
        "delta": format_number(figure.delta),
        "epsilon": _decimal(figure),
        "partition": figure.partition,
        "plan": assignment.plan.digest,
        "relation": figure.relation,
        "run_epsilon": _json(privacy.run_epsilon),
        "steps": str(steps),
        "unit": figure.unit,
    }
    if privacy.with_ancestry:
        together = greatest(privacy.with_ancestry)
        about["epsilon_with_ancestry"] = _decimal(together)
        about["partition_with_ancestry"] = together.partition
        about["with_ancestry"] = _json(privacy.with_ancestry)
    if isinstance(assignment.plan, StatisticsPlan | StagedPlan):
        about["statistics"] = write(assignment.plan).decode()
    return save({**tensors}, {**about, **(more or {})})


def _decimal(line: RunEpsilon) -> str:
    return "infinite" if line.epsilon is None else format_number(line.epsilon)


def _json(lines: tuple[RunEpsilon, ...]) -> str:
    return write(lines).decode()
