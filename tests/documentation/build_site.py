"""``make docs``: stage the repository's pages and the generated reference, and let Sphinx make the site of them.

Every warning is an error, so a link inside the site that leads nowhere fails. Nothing is fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.documentation.fenced_blocks import pages
from tests.documentation.reference_pages import PAGES

ROOT: Final = Path(__file__).parents[2]
BUILT: Final = ROOT / "build" / "site"
PACKAGES: Final = ROOT / ".venv" / "docs"
INDEX: Final = "docs/index.md"
GENERATED: Final = "Reference"
LINK: Final = re.compile(r"\]\(([^):#]+)\)")
"""Where a link or a picture of a page leads, if it is a file here."""
LOADED: Final = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)="(?:https?:)?//""")
IMPORTED: Final = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""")


def page_files() -> list[Path]:
    """What the site is made of, from the top: every page, and every file that a page links to."""
    read = pages()
    linked = {
        (page.parent / link).resolve() for page in read for link in LINK.findall(page.read_text(encoding="utf-8"))
    }
    return sorted({file.relative_to(ROOT) for file in linked | set(read) if file.is_file()})


def tree_of(index: str, generated: tuple[str, ...]) -> Iterator[str]:
    """The tables of contents that Sphinx asks for: one for each heading of the index, of the links under it."""
    for section in index.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        pages = re.findall(r"\]\(([^):#]+\.md)\)", text)
        if heading == GENERATED:
            pages = [*(f"reference/{name}.md" for name in generated), *pages]
        yield "\n".join(["```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```"])


def stage(place: Path) -> None:
    """Lay out what Sphinx reads, in the repository's own folders, so that links between pages hold."""
    for file in page_files():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, place / file)
    (place / "docs" / "reference").mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (place / "docs" / "reference" / f"{name}.md").write_text(page(), encoding="utf-8")
    index = (ROOT / INDEX).read_text(encoding="utf-8")
    (place / INDEX).write_text("\n\n".join([index, *tree_of(index, tuple(PAGES))]) + "\n", encoding="utf-8")


def foreign(place: Path) -> list[str]:
    """What the pages of a site would load from another machine."""
    found = []
    for file in sorted(place.rglob("*")):
        pattern = {".html": LOADED, ".css": IMPORTED}.get(file.suffix)
        if pattern is not None:
            found += [f"{file.relative_to(place)}: {one}" for one in pattern.findall(file.read_text(encoding="utf-8"))]
    return found


def build(source: Path, place: Path) -> int:
    """Sphinx, in a process of its own with the packages of docs.lock; its exit code."""
    words = ["-q", "-W", "--keep-going", "-E", "-b", "html", "-c", str(Path(__file__).parent), str(source), str(place)]
    path = os.pathsep.join([str(ROOT), str(PACKAGES)])
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *words], env={**os.environ, "PYTHONPATH": path}, check=False
    ).returncode


def main() -> None:
    """Build the site into build/site. Ends with 1, in Sphinx's own words, if it warns of anything."""
    source = BUILT.with_name("site-source")
    for old in (source, BUILT):
        shutil.rmtree(old, ignore_errors=True)
    stage(source)
    if build(source, BUILT):
        sys.exit(1)
    if loaded := foreign(BUILT):
        sys.exit("\n".join(["docs: the site would load from elsewhere:", *loaded]))
    (BUILT / "index.html").write_text(
        '<meta http-equiv="refresh" content="0; url=docs/index.html">\n', encoding="utf-8"
    )
    sys.stdout.write(f"docs: {(BUILT / 'index.html').relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
