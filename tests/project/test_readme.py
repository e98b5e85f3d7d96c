"""What the pages tell a stranger to type or to open is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.epsilon_ledger.commands import root

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("[a-z]*/README.md")), *sorted((ROOT / "docs").glob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_is_one(page: Path) -> None:
    """Each `epsilon ...` names a command of the program, and each `make ...` a target of the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    for said in re.findall(r"(?:`|bin/)epsilon ([a-z][a-z -]*)", text):
        command = root()
        for name in said.split():
            if hasattr(command, "commands"):
                assert name in command.commands, said
                command = command.commands[name]
    for name in re.findall(r"(?:`|^)make ([a-z]+)", text, re.MULTILINE):
        assert name in targets


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_file_named_is_there(page: Path) -> None:
    """Links and Python files lead somewhere, from the page's own folder or from the top."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^):#]+)\)", text) + re.findall(r"`([a-z0-9_/]+\.py)`", text)
    for name in named:
        assert (page.parent / name).exists() or (ROOT / name).exists(), name


def test_every_room_has_its_page() -> None:
    """A folder of the distribution that holds a room has a README.md, and the first page links to it."""
    first = (ROOT / "README.md").read_text(encoding="utf-8")
    for room in ("api", "client", "ledger", "migrations", "policy", "trainer_adapter"):
        assert f"]({room}/README.md)" in first
        assert (ROOT / room / "README.md").is_file()


@pytest.mark.parametrize("room", ["api", "client", "ledger", "policy", "trainer_adapter"])
def test_the_table_of_packages_leaves_none_out(room: str) -> None:
    """Each page names every package of its room; the ledger's the verifier's file, too."""
    page = (ROOT / room / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
    named = set(re.findall(r"^\| `([a-z_.]+)/?` \|", page, re.MULTILINE))
    packages = {file.parent.name for file in (ROOT / room).glob("*/__init__.py")}
    # What users import is in a table of its own.
    named = {name for name in named if not name.startswith(room)}
    assert named == packages | ({"verifier.py"} if room == "ledger" else set())
