"""The ratios, at the end of the run."""

from __future__ import annotations

import pytest

from tests.bench.compare import LINES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Time per operation over the peer's, median and range of the rounds."""
    if LINES:
        terminalreporter.section("ratios")
        for line in LINES:
            terminalreporter.write_line(line)
