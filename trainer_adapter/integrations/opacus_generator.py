"""A generator for the noise of Opacus whose whole state is of fresh hardware entropy."""

from __future__ import annotations

from hashlib import shake_256
from typing import Final

import numpy as np
import torch

from trainer_adapter.dpsgd.csprng import SECRET_BYTES
from trainer_adapter.integrations.opacus_refusal import Refusal
from trainer_adapter.session.hardware_secret import hardware_secret

_TWISTER: Final = slice(24, 24 + 8 * 624)
"""The 624 words of 32 bits, each in 64, in the bytes of a CPU generator's state; the first is that of its seed."""


def unseeded(device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of PyTorch's whose whole state is of fresh hardware entropy, and is kept nowhere.

    A seed alone would not do on a CPU: the Mersenne Twister there takes 32 bits of it, and so many can be searched.

    Raises:
        Refusal: for a PyTorch that keeps the state in another form.
    """
    seed = int.from_bytes(hardware_secret()) >> (8 * SECRET_BYTES - 63)
    made = torch.Generator(device).manual_seed(seed)
    if made.device.type != "cpu":
        return made
    state = made.get_state()
    words = state[_TWISTER].view(torch.int64)
    if int(words[0]) != seed & 0xFFFFFFFF:
        raise Refusal("this PyTorch keeps its generator's state in a form that this program does not know")
    drawn = np.frombuffer(shake_256(hardware_secret()).digest(4 * len(words)), np.uint32)
    words.copy_(torch.from_numpy(drawn.astype(np.int64)))
    return made.set_state(state)
