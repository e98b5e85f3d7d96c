"""Every test says in its own body what it holds: a test that only runs something passes whatever comes of it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
EXPECTING: Final = {"raises", "warns"}
"""Of pytest: what they enclose fails unless it raises or warns."""


def _asserts(test: ast.FunctionDef) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in EXPECTING:
            return True
    return False


def _silent(source: str) -> list[str]:
    """The tests of a module that assert nothing."""
    tests = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [test.name for test in tests if test.name.startswith("test_") and not _asserts(test)]


def test_every_test_asserts() -> None:
    """An assertion, or an error or a warning that is expected; and one without any is seen."""
    assert _silent("def test_nothing():\n    check()\ndef test_it():\n    assert check()\n") == ["test_nothing"]
    silent = {path: _silent(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py")}
    assert {str(path.relative_to(TESTS)): names for path, names in silent.items() if names} == {}
