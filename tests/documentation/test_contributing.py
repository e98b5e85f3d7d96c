"""CONTRIBUTING.md and SECURITY.md: what they tell people to type exists, and what passes here passes in `.ci/run`."""

from __future__ import annotations

import re

from tests.documentation.fenced_blocks import ROOT, commands

HERE = "tests/documentation/test_contributing.py"


def test_each_target_of_the_page_is_one_and_ci_runs_those_that_a_change_must_pass() -> None:
    """`make unit` is a part of `make test`."""
    typed = [line.split() for line, _ in commands(ROOT / "CONTRIBUTING.md", HERE)]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert all(words[0] == "make" and words[1] in targets for words in typed)
    ran = set(re.findall(r"^make (\w+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE))
    assert ran == {"check", "docs", "kernels", "test"}
    assert ran < {words[1] for words in typed}
