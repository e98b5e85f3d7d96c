"""Names like `api` are not ours alone: a foreign module is named, with its place and the way out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from epsilon_ledger.__main__ import PACKAGES

HOME = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("room", PACKAGES)
@pytest.mark.parametrize("form", ["module", "package"])
def test_a_foreign_module_is_named(room: str, form: str, tmp_path: Path) -> None:
    """One sentence on stderr, exit code 2, and the foreign code does not run."""
    foreign = tmp_path / f"{room}.py" if form == "module" else tmp_path / room
    code = foreign if form == "module" else foreign / "__init__.py"
    code.parent.mkdir(exist_ok=True)
    code.write_text("raise SystemExit('the foreign module ran')\n")
    done = _epsilon(tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"epsilon: the package '{room}' comes from {foreign}, which hides the one of epsilon-ledger in {HOME};"
        " remove that place from PYTHONPATH or uninstall what put it there, then retry.\n"
    )


def test_our_own_modules_pass(tmp_path: Path) -> None:
    """Without a foreign module the same call shows the help."""
    done = _epsilon(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Usage: epsilon" in done.stdout


def _epsilon(python_path: Path) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("epsilon")
    environment = {**os.environ, "PYTHONPATH": str(python_path), "COLUMNS": "100"}
    return subprocess.run(
        [script, "--help"], capture_output=True, text=True, check=False, env=environment, cwd=python_path
    )
