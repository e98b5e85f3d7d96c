"""A trained model as safetensors, whose metadata name what it cost: charge, contract, plan, ε, δ and accountant."""

from __future__ import annotations

from safetensors.torch import save
from torch import nn

from ledger.wire.exact_numbers import ceil_decimal, format_number
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.session.loss_report import Spent


def model_bytes(model: nn.Module, assignment: Assignment, steps: int, spent: Spent) -> bytes:
    """The file of a model after ``steps`` steps; the same model and run make the same bytes.

    ``epsilon`` is of this run alone, rounded up, by the ledger's own odometer; ``infinite`` where it has no bound.
    """
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    about = {
        "accountant": spent.accountant,
        "charge": assignment.id,
        "contract": assignment.contract,
        "delta": format_number(spent.delta),
        "epsilon": "infinite" if spent.epsilon is None else ceil_decimal(spent.epsilon, 6),
        "plan": assignment.plan.digest,
        "steps": str(steps),
    }
    return save(tensors, about)
