"""Folders, files and functions are small enough to be read in one piece."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("api", "client", "epsilon_ledger", "ledger", "migrations", "policy", "trainer_adapter")
MODULES_MAX: Final = 14
LINES_MAX: Final = 320
TEST_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 60
ALONE: Final = "ledger/verifier.py"
"""One file by design: it runs without the rest."""
VAGUE: Final = ("common", "helper", "helpers", "misc", "util", "utils")


def _files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_no_folder_has_many_modules() -> None:
    """A folder of the product is looked through at one glance; ``__init__.py`` counts for nothing."""
    folders: dict[Path, int] = {}
    for file in _files(*PRODUCT):
        if file.name != "__init__.py":
            folders[file.parent] = folders.get(file.parent, 0) + 1
    assert len(folders) > 50
    assert {str(folder): count for folder, count in folders.items() if count > MODULES_MAX} == {}


def test_no_file_is_long() -> None:
    """About three hundred lines, but for the verifier; a file of tests five hundred."""
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines())
        for file in _files(*PRODUCT, "tests")
    }
    assert lengths.pop(ALONE) > LINES_MAX
    limits = {name: TEST_LINES_MAX if name.startswith("tests/") else LINES_MAX for name in lengths}
    assert {name: count for name, count in lengths.items() if count > limits[name]} == {}


def test_no_function_is_long() -> None:
    """With its decorators left out: what is longer has a part with a name of its own."""
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in _files(*PRODUCT)
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_no_module_is_named_after_nothing() -> None:
    """A name says what a module holds."""
    assert [str(file) for file in _files(*PRODUCT) if any(word in file.stem.split("_") for word in VAGUE)] == []
