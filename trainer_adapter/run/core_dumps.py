"""No memory of a process that holds data keys and records is written down where it dies."""

from __future__ import annotations

import resource
import sys
from typing import Final

CORE_BYTES: Final = 1 if sys.platform == "linux" else 0
"""At most of a core dump. Linux hands a core to the program of its ``core_pattern`` whatever the limit, unless it is 1,
which no core fits either: they have a page at least."""


def leave_no_core() -> None:
    """From here on this process leaves no core dump, and nothing that it starts does; it is never taken back."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    limit = CORE_BYTES if most == resource.RLIM_INFINITY else min(CORE_BYTES, most)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
