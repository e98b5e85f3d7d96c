"""A real browser on every page in every role: light and dark, wide and narrow, by keyboard alone, without scripts.

On a world with two of everything, on the book of the demonstration, and on one of a hundred thousand entries. Each
role, scheme and width is a test of its own: ``-k 'hundred and TDP'`` walks some.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from api.dev_issuer.issuer import Person
from tests.api.console import demonstration
from tests.api.console.conftest import Looked
from tests.api.console.long_book import PATHS, last_time
from tests.api.console.page_addresses import addresses
from tests.api.console.visitors import ANYONE, PEOPLE, browser, log_in
from tests.api.console.walk import Walker
from tests.bench.grown import grown
from tests.factories.people import AUDITOR, LOG_KEY, Clock
from tests.factories.service import ServedWorld, open_world
from tests.factories.stored import copy

pytestmark = pytest.mark.soak
SCHEMES: Final = ("light", "dark")
WIDTHS: Final = (1280, 640)
"""Of the window; the narrow one is what 200 % zoom leaves of the wide one."""
_STOPS: Final = 25
ROLES: Final = ("SRO", "TDP", "TDC", "AUDITOR", "OPERATOR")
"""Who is on record in the long books, or comes from the issuer."""


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


def _pages(looked: Looked) -> list[str]:
    return [path for path in addresses(looked.pairs).values() if not path.endswith((".json", "bytes"))]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_hinders_anybody_in_any_role(looked: Looked, walker: Walker, scheme: str, width: int) -> None:
    """No message, no violation of the policy, none wider than its window; axe is clean, on refusals too."""
    paths = _pages(looked)
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


def _without_focus(walker: Walker, role: str, paths: Iterable[str]) -> dict[str, str]:
    """Pages on which the first stop skips nothing, a stop cannot be seen, or there is none; with what is wrong."""
    window, wrong = walker.open(role), dict[str, str]()
    page = window.page
    for path in paths:
        if window.goto(path) != 200:
            continue
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") != "Skip to the content":
            wrong[path] = "the first stop is another"
        seen = set()
        for _ in range(_STOPS):
            page.keyboard.press("Tab")
            seen.add(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
        # Beyond the last stop the browser's own controls have the focus.
        if not seen <= {"solid", "auto", "none"} or not seen & {"solid", "auto"}:
            wrong[path] = f"stops are outlined {sorted(seen)}"
    window.close()
    return wrong


def _other_without_scripts(walker: Walker, role: str, paths: Iterable[str]) -> dict[str, str]:
    """Pages that say something else without scripts, beside what says that one is missing; with what is wrong."""
    without, with_scripts = walker.open(role, java_script_enabled=False), walker.open(role)
    wrong: dict[str, str] = {}
    for path in paths:
        # A live run's frame may be another by then.
        if path.endswith("/live") or with_scripts.goto(path) != 200:
            continue
        status = without.goto(path)
        without.page.evaluate("document.querySelectorAll('noscript').forEach(one => one.remove())")
        words = without.page.inner_text("main").split()
        if status != 200 or without.noted or words != with_scripts.page.inner_text("main").split():
            wrong[path] = f"{status}, {without.noted}"
        without.noted.clear()
    without.close()
    with_scripts.close()
    return wrong


@pytest.mark.parametrize("role", ROLES)
def test_every_page_is_walked_by_keyboard_alone(looked: Looked, walker: Walker, role: str) -> None:
    """The first stop skips to the content, and each stop can be seen."""
    assert _without_focus(walker, role, _pages(looked)) == {}


def test_enter_follows_a_link(walker: Walker) -> None:
    """From the list of pages, which then says where one is."""
    window = walker.open("SRO")
    page = window.page
    window.goto("/console/datasets")
    page.focus("nav >> text=Runs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs")
    assert page.locator("nav a[aria-current=page]").inner_text() == "Runs"
    window.close()


@pytest.mark.parametrize("role", ROLES)
def test_every_page_is_whole_without_scripts(looked: Looked, walker: Walker, role: str) -> None:
    """The same words as with them, beside what says that a script is missing; and no message."""
    assert _other_without_scripts(walker, role, _pages(looked)) == {}


class Visited(NamedTuple):
    """A served book, the addresses of its pages, and a window's walker for its people by role."""

    walker: Walker
    paths: tuple[str, ...]


@contextmanager
def _visited(world: ServedWorld, people: Mapping[str, Person], paths: Iterable[str], at: Walker) -> Iterator[Visited]:
    names = {role: role.lower() for role in people}
    with world.issuing({names[role]: person for role, person in people.items()}) as issuer, ExitStack() as stack:
        browsers = {role: stack.enter_context(browser(world.url)) for role in people}
        for role, http in browsers.items():
            log_in(http, issuer, names[role])
        yield Visited(Walker(at.chromium, world.url, browsers), tuple(paths))


@pytest.fixture(scope="module")
def long_book(walker: Walker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visited]:
    """A hundred thousand entries."""
    folder = tmp_path_factory.mktemp("long")
    book = copy(grown(100_000), folder / "book.sqlite")
    people = {**PEOPLE, "AUDITOR": Person(AUDITOR, ("AUDITOR",))}
    people = {role: people[role] for role in ROLES}
    paths = [f"/console{path}" for _, path in PATHS if not path.endswith((".json", "bytes"))]
    with (
        open_world(folder, clock=Clock(last_time(book)), log_key=LOG_KEY, database=f"sqlite:///{book}") as world,
        _visited(world, people, paths, walker) as visited,
    ):
        yield visited


@pytest.fixture(scope="module")
def played_book(walker: Walker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visited]:
    """The demonstration's, which is run for it; ``EPSILON_DEMO`` names a folder in which it was."""
    folder = tmp_path_factory.mktemp("played")
    made = os.environ.get("EPSILON_DEMO")
    if not made:
        demonstration.perform(folder / "demo")
    with (
        demonstration.served(Path(made) if made else folder / "demo", folder) as world,
        _visited(world, demonstration.PEOPLE, demonstration.page_addresses(world).values(), walker) as visited,
    ):
        yield visited


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_book_of_a_hundred_thousand_entries(long_book: Visited, role: str, scheme: str, width: int) -> None:
    """The same of every page, in every role."""
    assert _wrong(long_book.walker, role, long_book.paths, scheme=scheme, width=width) == {}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_book_of_the_demonstration(played_book: Visited, role: str, scheme: str, width: int) -> None:
    """Likewise."""
    assert _wrong(played_book.walker, role, played_book.paths, scheme=scheme, width=width) == {}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("book", ["long_book", "played_book"])
def test_long_books_by_keyboard_and_without_scripts(request: pytest.FixtureRequest, book: str, role: str) -> None:
    """As on the small world: every stop can be seen, and nothing is said by a script alone."""
    visited: Visited = request.getfixturevalue(book)
    assert _without_focus(visited.walker, role, visited.paths) == {}
    assert _other_without_scripts(visited.walker, role, visited.paths) == {}
