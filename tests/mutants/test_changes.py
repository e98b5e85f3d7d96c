"""What is dropped before any test, where a change lies, and how its code takes the function's place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import changes, statuses

SOURCE = '''def held(self, at):
    """One."""
    if at > 3:
        raise ValueError("so many", f"are {at}")
    return super().held(
        at + 1,
    )
'''


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ('raise E("code", "a word")', 'raise E("code", "XXa wordXX")', "sentences"),
        ('raise E("code", f"{x} is")', 'raise E("code", None)', "sentences"),
        ('raise E("code", "a word")', 'raise E("CODE", "a word")', None),
        ('raise E("code", "a word")', 'raise E(None, "a word")', None),
        ('say("a word")', 'say("A WORD")', None),
        ('cast("T", x)', 'cast("t", x)', "the type"),
        ('cast("T", x)', 'cast("T", None)', None),
        ("zip(a, b, strict=True)", "zip(a, b, strict=None)", "zip"),
        ("zip(a, b, strict=True)", "zip(a, strict=True)", None),
    ],
)
def test_only_what_no_test_ought_to_see_is_dropped(before: str, after: str, kind: str | None) -> None:
    """Codes and fields of errors are not."""
    found = changes.dropped_as(before, after)
    assert found is None if kind is None else found is not None and found.startswith(kind)


@pytest.mark.parametrize(("changed", "lines"), [(1, ()), (3, (3,)), (4, (4,)), (6, (5, 6, 7))])
def test_a_change_is_of_its_statement(changed: int, lines: tuple[int, ...]) -> None:
    """Of a statement with a body, its head; of the function's head, none."""
    (node,) = ast.parse(SOURCE).body
    assert isinstance(node, ast.FunctionDef)
    assert changes.statement_lines(node, changed) == lines


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('"""One."""', '"""Another\n\n    one."""', True),
        ('    """One."""\n', "", True),
        ("if at > 3:", "if at > 3:  # Why.", True),
        ("at > 3", "at > 4", False),
        ('"so many"', '"so few"', False),
        ("def held", "@cached\ndef held", False),
        ("self, at", "self, at=1", False),
    ],
)
def test_what_was_decided_holds_while_the_code_is_the_same(before: str, after: str, *, same: bool) -> None:
    """Whatever is said of it."""
    digests = set()
    for text in (SOURCE, SOURCE.replace(before, after)):
        (node,) = ast.parse(text).body
        assert isinstance(node, ast.FunctionDef)
        digests.add(changes.digest(node))
    assert SOURCE.replace(before, after) != SOURCE
    assert (len(digests) == 1) is same


def test_the_code_of_a_method_calls_what_it_overrides() -> None:
    """Its new code has the same cell for the class."""

    class Base:
        def held(self, at: int) -> int:
            return at

    class Rule(Base):
        def held(self, at: int) -> int:
            return super().held(at)

    text = "\n".join(f"    {line}" for line in SOURCE.splitlines())
    function = changes.Function(Path("rule.py"), "m.Rule.held", "Rule.held", "", range(1, 8), text, (), ())
    assert function.module == "m"
    Rule.held.__code__ = function.compiled(text)
    assert Rule().held(2) == 3


def test_what_was_decided_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept letters, and over them what an interrupted run has appended."""
    monkeypatch.setattr(statuses, "KEPT", tmp_path / "decided.txt")
    monkeypatch.setattr(statuses, "DECIDED", tmp_path / "decided.jsonl")
    statuses.write({("m.f", "d1"): "kt..", ("m.g", "d2"): "s"})
    statuses.DECIDED.write_text('{"function": "m.f", "digest": "d1", "place": 4, "status": "s"}\n')
    assert statuses.read() == {("m.f", "d1"): "kt.s", ("m.g", "d2"): "s"}
