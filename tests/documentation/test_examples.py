"""The notebooks of docs/examples/README.md: saved without outputs; every cell runs, in order, in an empty folder."""

from __future__ import annotations

import itertools
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


@pytest.mark.soak
def test_a_hospital_and_two_banks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real processes: half of a budget each, all of it together, and no key for the run that does not fit."""
    printed = _executed(FOLDER / "hospital_and_banks.ipynb", tmp_path, monkeypatch, capsys)
    pooled = re.search(r"([\d.]+) % and ([\d.]+) % -> ([\d.]+) %", printed)
    assert pooled is not None
    one, other, both = map(float, pooled.groups())
    assert max(one, other) < both == pytest.approx(one + other, abs=0.2)
    assert "budget_exhausted" in printed
    assert "3 runs were requested, 2 data keys were released" in printed
    assert "2 charges priced again" in printed


@pytest.mark.soak
def test_an_auditor_with_pandas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log is what its key signed; the table falls where a run was voided, and rises to the run that is refused."""
    monkeypatch.syspath_prepend(str(ROOT / ".venv" / "notebooks"))
    printed = _executed(FOLDER / "auditor_with_pandas.ipynb", tmp_path, monkeypatch, capsys)
    assert re.search(r"^\d+ entries of localhost/development-[0-9a-f]+, as they were signed", printed, re.MULTILINE)
    rows = re.findall(r"^20\d\d-.* ([\d.]+) +[\d.]+$", printed, re.MULTILINE)
    shares = [float(one) for one in rows]
    assert any(low > high for low, high in itertools.pairwise(shares))
    assert 90 < shares[-1] <= 100
    assert "budget_exhausted" in printed
    assert (tmp_path / "budget.png").read_bytes().startswith(b"\x89PNG")


def _executed(notebook: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the cells print, each run after the other with the names that those before left."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    names: dict[str, Any] = {"__name__": "notebook"}
    try:
        for number, cell in enumerate(_cells(notebook)):
            if cell["cell_type"] == "code":
                code = compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec")
                exec(code, names)  # noqa: S102 - our own notebook
    finally:
        # A cell that fails leaves the processes of those before it, which the last cell would end.
        for process in [*names.get("processes", ()), *([names["up"]] if "up" in names else ())]:
            if process.poll() is None:
                process.terminate()
                process.communicate()
    return capsys.readouterr().out
