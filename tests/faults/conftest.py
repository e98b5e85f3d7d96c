"""What long runs tell while they run."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a line with the time of day, at once and past pytest, so that the figures stand though a run is stopped."""

    def line(reported: str) -> None:
        with capsys.disabled():
            print(f"\n{time.strftime('%H:%M:%S')} {reported}", end="", flush=True)  # noqa: T201 - the figures

    return line
