"""Secrets of one moment, from the kernel's generator and the clocks: no copy of a process draws them again.

The kernel mixes its hardware's entropy into its generator. A machine that is put back to a snapshot has the old state
of that generator until the kernel mixes in more (where the hypervisor notifies it of the snapshot, at once); until then
the clocks distinguish two processes that continue one snapshot. They add nothing that an observer could not guess: the
secret part is the generator's.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Final

SECRET_BYTES: Final = 32
_DOMAIN: Final = b"epsilon-ledger/trainer/secret/v1\n"


def hardware_secret() -> bytes:
    """32 secret bytes, drawn now."""
    moment = (time.time_ns(), time.monotonic_ns(), os.getpid())
    clocks = b"".join(clock.to_bytes(8, "big") for clock in moment)
    return hashlib.sha256(_DOMAIN + os.urandom(SECRET_BYTES) + clocks).digest()
