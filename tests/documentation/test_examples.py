"""The notebooks of docs/examples/README.md: saved without outputs; every cell runs, in order, in an empty folder."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.documentation.fenced_blocks import ROOT

FOLDER: Final = ROOT / "docs" / "examples"
NOTEBOOKS: Final = sorted(FOLDER.glob("*.ipynb"))


def _cells(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return cells


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[one.stem for one in NOTEBOOKS])
def test_a_notebook_is_saved_without_outputs_and_listed(notebook: Path) -> None:
    """What it would show is of one machine and one day; links lead to pages."""
    code = [cell for cell in _cells(notebook) if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert f"]({notebook.name})" in (FOLDER / "README.md").read_text(encoding="utf-8")
    words = "".join("".join(cell["source"]) for cell in _cells(notebook) if cell["cell_type"] == "markdown")
    assert all((FOLDER / link).exists() for link in re.findall(r"\]\(([^):#]+)\)", words))


@pytest.mark.soak
def test_one_s_own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that learnt something, a run that does not fit, and a book that verifies."""
    printed = _executed(FOLDER / "own_table.ipynb", tmp_path, monkeypatch, capsys)
    right = re.search(r"^(\d+)% of the public test records$", printed, re.MULTILINE)
    assert right is not None
    assert int(right[1]) > 75
    assert "1 charge priced again" in printed


def _executed(notebook: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the cells print, each run after the other with the names that those before left."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(_cells(notebook)):
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec")
            exec(code, names)  # noqa: S102 - our own notebook
    return capsys.readouterr().out
