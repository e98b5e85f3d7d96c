"""A plugin of pytest for mutation testing: no test lives on what a cache kept of the code without the change.

mutmut runs every test once in its own process, to note which functions each of them calls, and then forks that process
for each mutant. Answers that a cache kept would hide the changed function from all tests; and of the tests that need a
kept answer, only the first would be noted as one that calls the function.
"""

from __future__ import annotations

import gc
import os
from functools import _lru_cache_wrapper
from typing import Final

OURS: Final = ("ledger", "policy", "tests")


def pytest_sessionstart() -> None:
    """Forget everything before the tests of a mutant."""
    forget()


def pytest_runtest_setup() -> None:
    """Forget everything before each test while mutmut notes what the tests call."""
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        forget()


def forget() -> None:
    """Empty the cache of each function of ours."""
    for found in gc.get_objects():
        if isinstance(found, _lru_cache_wrapper) and found.__module__.partition(".")[0] in OURS:
            found.cache_clear()
