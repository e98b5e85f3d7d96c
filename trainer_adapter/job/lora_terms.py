"""What a job states of LoRA: a correction of low rank (Hu et al. 2021) that trains beside public weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ledger.wire import canonical_json as c
from trainer_adapter.job.job_fields import plain

LORA_RANK_MAX: Final = 1_024
"""The rank of a correction that LoRA trains."""
LORA_ALPHA_MAX: Final = 65_536
"""What the rank of a correction is divided into: it counts alpha / rank times."""
LORA_MODULES_MAX: Final = 64
"""Names of layers that LoRA corrects."""


@dataclass(frozen=True, slots=True)
class Lora:
    """A correction of low rank that trains beside a folder's weights.

    Attributes:
        alpha: the correction counts alpha / rank times; twice the rank if it is None.
        modules: the names of the layers that get one; those that PEFT knows for the model if it is None.
    """

    rank: int = field(metadata=plain(c.integer, 1, LORA_RANK_MAX))
    alpha: int | None = field(default=None, metadata=plain(c.integer, 1, LORA_ALPHA_MAX))
    modules: tuple[str, ...] | None = field(default=None, metadata=plain(c.strings, LORA_MODULES_MAX))
