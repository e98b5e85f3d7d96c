"""A plugin of pytest for mutation testing: the tests of one mutant may take so much processor time.

mutmut runs the tests that call the changed function, the shortest first, until one fails. What survives them all takes
as long as all of them together, which is minutes where hundreds of tests call the function. After the limit the rest
is left out, and the mutant counts as skipped: nothing is known of it, and the report counts it with the survivors.
"""

from __future__ import annotations

import os
import time
from typing import Final

import pytest

CPU_S_MAX: Final = float(os.environ.get("MUTANT_CPU_S", "20"))
SKIPPED: Final = 34
"""The exit code that mutmut keeps as ``skipped``."""
_NO_MUTANT: Final = frozenset({"", "stats", "fail", "list_all_tests"})
_started: list[float] = []


def pytest_sessionstart() -> None:
    """Begin to count."""
    _started[:] = [time.process_time()]


def pytest_runtest_setup() -> None:
    """End the tests of this mutant if they took too long."""
    is_mutant = os.environ.get("MUTANT_UNDER_TEST", "") not in _NO_MUTANT
    if is_mutant and time.process_time() - _started[0] > CPU_S_MAX:
        pytest.exit("no test failed within the limit", returncode=SKIPPED)
