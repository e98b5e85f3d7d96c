"""``epsilon report --pdf``: the printed page says what the page says, and without a browser nothing is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.api.console.walk import DRIVER, browser_path, driver_module
from tests.factories.people import HOSPITAL, LOG
from tests.factories.statements import state_now
from tests.factories.stored import open_world


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book with a run that is posted and one that is not, beside its log's key."""
    folder = tmp_path_factory.mktemp("printed")
    with open_world(folder) as world:
        world.submit(world.charge("one"))
        world.submit(world.settle("one", 40), world.charge("two"))
        state_now(world.book)
    (folder / "log.vkey").write_text(f"{LOG.vkey}\n", encoding="ascii")
    return world.path


def _report(book: Path, into: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    words = ["report", book, "--dataset", f"{HOSPITAL}/digits", "--into", into, "--pdf"]
    return subprocess.run(
        [sys.executable, "-m", "epsilon_ledger", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(DRIVER)} | changes,
        capture_output=True,
        text=True,
        check=False,
    )


class _Texts(HTMLParser):
    """The words that each element of a page's body shows, and its headings."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.headings: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self._open.append(tag)
        if tag in {"h1", "h2", "h3"}:
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "body" in self._open and not {"title", "desc"} & {*self._open}:
            self.texts.append(data)
            if {"h1", "h2", "h3"} & {*self._open}:
                self.headings[-1] += data


def _bare(text: str) -> str:
    """Without blanks: lines break in other places on paper."""
    return re.sub(r"[\s\u00ad\u200b]", "", text)


def test_the_paper_says_what_the_page_says(book: Path, tmp_path: Path) -> None:
    """Every word and number, charts included; headings are its outline; nothing in it runs or leads elsewhere."""
    if browser_path() is None:
        pytest.skip("no report was printed, for there is no browser: apt install chromium")
    into = tmp_path / "evidence"
    done = _report(book, into)
    assert (done.returncode, done.stderr) == (0, "")
    page = _Texts()
    page.feed((into / "report.html").read_text("utf-8"))
    paper = driver_module("pypdf").PdfReader(into / "report.pdf")
    printed = _bare("".join(one.extract_text() for one in paper.pages))
    assert len(page.texts) > 100
    assert [one for one in page.texts if _bare(one) not in printed] == []
    assert _outline(paper.outline) == [_bare(one) for one in page.headings]
    assert paper.trailer["/Root"]["/MarkInfo"]["/Marked"]
    assert not {"/JavaScript", "/OpenAction", "/AA"} & {*paper.trailer["/Root"]}
    assert b"http" not in b"".join(_targets(paper))


def _outline(entries: list[object]) -> list[str]:
    found = list[str]()
    for one in entries:
        found += _outline(one) if isinstance(one, list) else [_bare(one["/Title"])] if isinstance(one, Mapping) else []
    return found


def _targets(paper: Any) -> list[bytes]:  # noqa: ANN401 - pypdf has no types
    """Where the links of the pages lead."""
    notes = [note.get_object() for page in paper.pages for note in page.get("/Annots", ())]
    return [str(note["/A"]["/URI"]).encode() for note in notes if "/A" in note and "/URI" in note["/A"]]


def test_without_a_browser_nothing_is_written(book: Path, tmp_path: Path) -> None:
    """One sentence, which says what to do, before the log is read."""
    done = _report(book, tmp_path / "evidence", PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        2,
        "--pdf: needs Chromium: apt install chromium, or print report.html with any browser\n",
    )
    assert [*tmp_path.iterdir()] == []


def _browser(folder: Path) -> str:
    """A path in which Chromium is a program that ends at once."""
    folder.mkdir()
    (folder / "chromium").write_text("#!/bin/sh\nexit 3\n")
    (folder / "chromium").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_without_playwright_nothing_is_written(book: Path, tmp_path: Path) -> None:
    """It is an extra, which the sentence names."""
    done = _report(book, tmp_path / "evidence", PATH=_browser(tmp_path / "path"), PYTHONPATH="")
    assert (done.returncode, done.stderr) == (2, "--pdf: needs Playwright: pip install 'epsilon-ledger[pdf]'\n")
    assert not (tmp_path / "evidence").exists()


def test_a_browser_that_fails_leaves_nothing(book: Path, tmp_path: Path) -> None:
    """The folder is there with its paper or not at all."""
    if browser_path() is None:
        pytest.skip("no browser was seen to fail, for its driver is not there: apt install chromium")
    path = _browser(tmp_path / "path")
    done = _report(book, tmp_path / "evidence", PATH=path)
    expected = f"--pdf: {tmp_path}/path/chromium does not print the page: "
    assert (done.returncode, done.stderr[: len(expected)]) == (2, expected)
    assert done.stderr.count("\n") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["path"]
