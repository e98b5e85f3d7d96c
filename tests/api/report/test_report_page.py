"""docs/report.md: its commands, run as they are written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.documentation.fenced_blocks import ROOT, commands
from tests.factories.people import LOG
from tests.factories.statements import state_now
from tests.factories.stored import open_world


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """Each ends as it says, and the last one writes into a folder that it names itself."""
    with open_world(tmp_path) as world:
        world.submit(world.charge("one"))
        state_now(world.book)
        size = world.size
    (tmp_path / "log.vkey").write_text(f"{LOG.vkey}\n", encoding="ascii")
    found = commands(ROOT / "docs" / "report.md", "tests/api/report/test_report_page.py")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line, code in found:
        done = subprocess.run(["bash", "-euc", line], cwd=tmp_path, check=False, env={**os.environ, "PATH": path})
        assert done.returncode == code, line
    assert size > 10
    assert {one.name for one in tmp_path.iterdir() if (one / "report.html").is_file()} == {
        "evidence",
        "report-digits-10",
    }
