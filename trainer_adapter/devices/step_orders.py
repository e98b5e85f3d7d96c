"""What rank 0 says before each step: take it, or end; and a new key, where a lease of steps begins."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final, Self

import torch
from torch import nn

from trainer_adapter.devices.rank_group import RankGroup, RankLost
from trainer_adapter.dpsgd.csprng import SECRET_BYTES

_FORM: Final = struct.Struct(f">B?Q?{SECRET_BYTES}s")
_STEP, _END = 1, 2


@dataclass(frozen=True, slots=True)
class StepOrder:
    """One order.

    Attributes:
        step: the step to take; 0: the run has ended.
        update: whether the optimiser is stepped by the run, and not by the loop.
        secret: the key of a lease that begins with this step; empty where the one before it goes on.
    """

    step: int
    update: bool = True
    secret: bytes = b""

    def sent(self, ranks: RankGroup) -> None:
        """Tell the other ranks. Raises: RankLost."""
        kind = _STEP if self.step else _END
        ranks.broadcast(_FORM.pack(kind, self.update, self.step, bool(self.secret), self.secret))

    @classmethod
    def received(cls, ranks: RankGroup) -> Self:
        """Wait for rank 0's. Raises: RankLost."""
        kind, update, step, renewed, secret = _FORM.unpack(ranks.broadcast(bytes(_FORM.size)))
        return cls(step if kind == _STEP else 0, update, secret if renewed else b"")


def check_weights(ranks: RankGroup, model: nn.Module, step: int) -> None:
    """See that all ranks hold the same weights and buffers, bit for bit. Raises: RankLost, naming one that does not."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        if isinstance(value, torch.Tensor):
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    known = ranks.gather(digest.digest())
    for rank, one in enumerate(known):
        if one != known[0]:
            raise RankLost("devices", f"rank {rank} holds other weights than rank 0 after step {step}")
