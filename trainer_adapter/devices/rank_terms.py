"""What all ranks of a run must agree on before it is charged: a digest of each, compared by every rank."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import nn

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.devices.rank_group import RankGroup
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.training.run_options import Options

_DIGEST_BYTES = 32


def terms_of(
    assignment: Assignment, model: nn.Module, optimiser: torch.optim.Optimizer, options: Options
) -> dict[str, bytes]:
    """A SHA-256 of each thing that ranks agree on, by its name."""
    parameters = [(name, [*one.shape], str(one.dtype), one.requires_grad) for name, one in model.named_parameters()]
    groups = [{name: one for name, one in group.items() if name != "params"} for group in optimiser.param_groups]
    known: dict[str, object] = {
        "charge": [assignment.id, assignment.contract, c.dump(assignment.stated)],
        "plan": assignment.plan.digest,
        "model": [str(model), parameters],
        "optimiser": [type(optimiser).__name__, groups],
        "options": [options.microbatch, options.records_per_user_max, sorted(map(str, options.engine.items()))],
        "PyTorch": torch.__version__,
    }
    return {name: hashlib.sha256(repr(value).encode()).digest() for name, value in known.items()}


def agree(ranks: RankGroup, terms: dict[str, bytes]) -> None:
    """Compare this rank's terms with all others'; every rank finds the same. Raises: Malformed, RankLost."""
    check_terms([*terms], ranks.gather(b"".join(terms.values())))


def check_terms(names: Sequence[str], said: Sequence[bytes]) -> None:
    """Hold what each rank says to rank 0's. Raises: Malformed, naming the first rank and term that differ."""
    for rank, one in enumerate(said):
        for place, name in enumerate(names):
            here = slice(place * _DIGEST_BYTES, (place + 1) * _DIGEST_BYTES)
            if one[here] != said[0][here]:
                raise Malformed("devices", f"rank {rank} has another {name} than rank 0: all ranks run one job")
