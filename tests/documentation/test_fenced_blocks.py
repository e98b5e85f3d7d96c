"""No page has code that nobody runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.fenced_blocks import OUTPUT, ROOT, blocks, pages

PAGES = pages()
NOT_OURS = ("nginx",)
"""Languages of programs that the tests do not have."""


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_block_names_the_test_that_runs_it(page: Path) -> None:
    """It is there, and it names the page; a block without a language is output."""
    name = str(page.relative_to(ROOT))
    for block in blocks(page):
        assert block.run_by is not None, f"{name}, line {block.line}: no comment says which test runs this block"
        if block.run_by == OUTPUT:
            assert block.language in {"", "text", *NOT_OURS}, f"{name}, line {block.line}: code cannot be output"
        else:
            test = ROOT / block.run_by
            assert test.is_file(), f"{name}, line {block.line}: {block.run_by} is not there"
            read = test.read_text(encoding="utf-8")
            assert page.name in read, f"{name}, line {block.line}: {block.run_by} does not name the page"
