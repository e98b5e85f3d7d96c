"""The architecture page shows what the import contracts say, and the page of limits what the source says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from tests.project import write_limits

ROOT: Final = Path(__file__).parents[2]
CONTRACTS: Final[list[dict[str, Any]]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]


def test_the_picture_shows_the_layers_of_every_package() -> None:
    """Each package's layers stand in the picture from top to bottom, as its contract lists them."""
    picture = (ROOT / "docs" / "packages.svg").read_text(encoding="utf-8")
    shown = re.findall(r'class="(name|layer)" [^>]*>([^<]+)<', picture)
    layered = [
        contract
        for contract in CONTRACTS
        if contract["type"] == "layers" and "." not in contract.get("containers", ["."])[0]
    ]
    assert len(layered) > 4
    for contract in layered:
        start = shown.index(("name", contract["containers"][0])) + 1
        expected = [("layer", layer.replace("|", "·")) for layer in contract["layers"]]
        assert shown[start : start + len(expected)] == expected


def test_the_page_of_limits_is_the_source_s() -> None:
    """``python -m tests.project.write_limits`` would change nothing."""
    assert write_limits.PAGE.read_text(encoding="utf-8") == write_limits.page()


def test_the_invariants_of_the_first_page_are_all_on_the_page_of_invariants() -> None:
    """Each test that holds one there holds one here: the short list says nothing that the whole one does not."""
    short, whole = (
        set(re.findall(r"`(tests/[\w/.]+)`", (ROOT / "docs" / page).read_text(encoding="utf-8")))
        for page in ("architecture.md", "invariants.md")
    )
    assert short <= whole
    assert len(whole) > 2 * len(short)


def test_pages_that_name_tests_name_tests_that_are_there() -> None:
    """Every file and folder in the column."""
    for page in ("architecture.md", "faults.md", "invariants.md", "threat-model.md"):
        named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
        assert len(named) > 5, page
        assert [one for one in named if not (ROOT / one).exists()] == [], page


def test_each_line_of_the_threat_model_names_tests_that_run() -> None:
    """Its third column: files that define a test, or the word that there is none; its last one says what is left."""
    page = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    rows = [line for line in lines if not line.startswith(("| could", "| key |", "|---"))]
    assert len(rows) > 30
    for row in rows:
        _, _, _, held, left, _ = row.split("|")
        named = re.findall(r"`(tests/[\w/]+/test_\w+\.py)`", held)
        assert named or held.strip() == "none", row
        assert [one for one in named if "\ndef test_" not in (ROOT / one).read_text(encoding="utf-8")] == [], row
        assert left.strip(), row
