"""A real browser on every page in every role: light and dark, wide and narrow, by keyboard alone, without scripts.

On a world with two of everything, on the book of the demonstration, and on one of a hundred thousand entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from api.dev_issuer.issuer import Person
from tests.api.console import demonstration
from tests.api.console.conftest import Looked
from tests.api.console.page_addresses import addresses
from tests.api.console.test_statements import GROWN, last_time
from tests.api.console.visitors import ANYONE, PEOPLE, browser, log_in
from tests.api.console.walk import Walker
from tests.bench.grown import grown
from tests.factories.people import LOG_KEY, Clock
from tests.factories.service import ServedWorld, open_world
from tests.factories.stored import copy

pytestmark = pytest.mark.soak
SCHEMES: Final = ("light", "dark")
WIDTHS: Final = (1280, 640)
"""Of the window; the narrow one is what 200 % zoom leaves of the wide one."""
_STOPS: Final = 25


def _wrong(walker: Walker, role: str, paths: Iterable[str], *, scheme: str, width: int) -> dict[str, list[str]]:
    """What a role's browser finds wrong on these pages; one that it may not see says so, and is a page too."""
    window = walker.open(role, viewport={"width": width, "height": 800}, color_scheme=scheme)
    wrong: dict[str, list[str]] = {}
    for path in paths:
        status = window.goto(path)
        # Whoever has no session is led to logging in.
        refused = status in ({401} if role == ANYONE else {403, 404})
        # The browser itself notes a page that is refused.
        noted = [one for one in window.noted if not refused or f"status of {status}" not in one]
        found = [*noted, *window.hindrances()]
        window.noted.clear()
        if found or window.is_wider_than(width) or (status != 200 and not refused):
            wrong[path] = [str(status), *found]
    window.close()
    return wrong


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_hinders_anybody_in_any_role(looked: Looked, walker: Walker, scheme: str, width: int) -> None:
    """No message, no violation of the policy, none wider than its window; axe is clean, on refusals too."""
    paths = [one for one in addresses(looked.pairs).values() if not one.endswith((".json", "bytes"))]
    found = {role: _wrong(walker, role, paths, scheme=scheme, width=width) for role in looked.browsers}
    assert {role: wrong for role, wrong in found.items() if wrong} == {}


def test_tables_forms_and_paging_work_without_scripts(looked: Looked, walker: Walker) -> None:
    """The planner answers, a filter filters, and a charge is reached by links alone."""
    window = walker.open("TDC", java_script_enabled=False)
    page = window.page
    window.goto("/console/planner")
    page.select_option("select[name=contract]", looked.pairs.own.contract)
    page.select_option("select[name=partition]", looked.pairs.own.partition)
    page.click("form.plan button")
    assert page.locator("#checks tbody tr").count() > 5
    window.goto("/console/decisions")
    page.select_option("select[name=kind]", "charge")
    page.click("form.filters button")
    assert {*page.locator("#decisions tbody tr td:nth-child(3)").all_inner_texts()} == {"charge"}
    page.click("text=run-3")
    assert page.inner_text("h1") == "Decision on run-3"


def test_every_page_is_walked_by_keyboard_alone(looked: Looked, walker: Walker) -> None:
    """The first stop skips to the content, each stop can be seen, and Enter follows a link."""
    window = walker.open("SRO")
    page = window.page
    for path in addresses(looked.pairs).values():
        if path.endswith((".json", "bytes")) or window.goto(path) != 200:
            continue
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content", path
        seen = set()
        for _ in range(_STOPS):
            page.keyboard.press("Tab")
            seen.add(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
        # Beyond the last stop the browser's own controls have the focus.
        assert seen <= {"solid", "auto", "none"}, path
        assert seen & {"solid", "auto"}, path
    window.goto("/console/datasets")
    page.focus("nav >> text=Runs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs")
    assert page.locator("nav a[aria-current=page]").inner_text() == "Runs"


def _of_one_role(at: Walker, world: ServedWorld, did: str, paths: Iterable[str]) -> dict[str, list[str]]:
    with world.issuing({"person": Person(did)}) as issuer, browser(world.url) as http:
        log_in(http, issuer, "person")
        walker = Walker(at.chromium, world.url, {"": http})
        known = [*paths]
        return {
            f"{path} {scheme}": wrong
            for scheme in SCHEMES
            for path, wrong in _wrong(walker, "", known, scheme=scheme, width=WIDTHS[0]).items()
        }


def test_a_book_of_a_hundred_thousand_entries(walker: Walker, tmp_path: Path) -> None:
    """The same, of the regulator's pages."""
    book = copy(grown(100_000), tmp_path / "book.sqlite")
    clock = Clock(last_time(book))
    with open_world(tmp_path, clock=clock, log_key=LOG_KEY, database=f"sqlite:///{book}") as world:
        assert _of_one_role(walker, world, PEOPLE["SRO"].organisation, [f"/console{path}" for path in GROWN]) == {}


def test_the_book_of_the_demonstration(walker: Walker, tmp_path: Path) -> None:
    """Run, and then looked at by its regulator, who may open every page but the operator's."""
    demonstration.perform(tmp_path / "demo")
    with demonstration.served(tmp_path / "demo", tmp_path) as world:
        known = demonstration.page_addresses(world)
        wrong = _of_one_role(walker, world, demonstration.REGULATOR, known.values())
        assert {path: one for path, one in wrong.items() if known["/operations"] not in path} == {}
