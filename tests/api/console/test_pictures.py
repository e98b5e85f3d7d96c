"""The pictures of docs/console.md: one of each view, small, and each of a page that there is."""

from __future__ import annotations

from api.console.view_list import VIEWS
from tests.api.console.pictures import INTO, PICTURE_BYTES_MAX, name_of, pictured


def test_every_view_has_its_picture() -> None:
    """What lies there is what is shown, and of each view at least one page."""
    there = {one.name: one.stat().st_size for one in INTO.iterdir()}
    assert there.keys() == pictured()
    assert max(there.values()) <= PICTURE_BYTES_MAX
    shown = {view.__name__ for view in VIEWS for page in view.PAGES.all if name_of(page.path) in there}
    assert shown == {view.__name__ for view in VIEWS}
    names = {name_of(page.path) for view in VIEWS for page in view.PAGES.all}
    assert there.keys() - names == {"report.webp"}
