"""The guides, run line by line against a served book, after the first steps of three parties."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.documentation.fenced_blocks import ROOT, commands
from tests.factories.parties_walk import Desk, walked

GUIDES: Final = ("tdc.md", "sro.md", "operator.md", "auditor.md", "tdp.md")
"""The last one revokes the contract."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A served book with three parties, and its files as the guides name them."""
    with walked(tmp_path) as (desk, _):
        (desk.folder / "book.sqlite").symlink_to(tmp_path / "book.sqlite")
        (desk.folder / "log.vkey").write_text(desk.world.log.vkey)
        yield desk


def test_each_line_of_the_guides_ends_as_it_says(desk: Desk) -> None:
    """One after the other on one book: what must be refused is, and nothing else."""
    for guide in GUIDES:
        lines = commands(ROOT / "docs" / "guides" / guide, "tests/documentation/test_guides.py")
        assert lines
        for line, code in lines:
            assert _run(desk, line) == code, (guide, line)


def _run(desk: Desk, line: str) -> int:
    """How one line ended; what it printed is shown if a test fails."""
    if not line.startswith("epsilon "):
        return subprocess.run(["bash", "-euc", line], cwd=desk.folder, check=False).returncode
    with suppress(OSError):
        desk.known_to_the_issuer("bank-b")
    ran = desk.run(line)
    sys.stdout.write(f"{line}\n{ran.out}{ran.err}")
    return ran.code
