"""A real browser walks every page in its richest role: nothing is blocked, nothing overflows, and proofs verify there.

Run by ``make soak``, which brings the driver; the browser is the distribution's (``apt install chromium``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from api.console.view_list import PAGES
from tests.api.console.conftest import Looked
from tests.api.console.page_addresses import addresses
from tests.api.console.visitors import ANYONE
from tests.api.console.walk import browser_path, driver

pytestmark = pytest.mark.soak
_RICHEST: Final = {"/operations": "OPERATOR", "/planner": "TDC"}
WIDTHS: Final = (1280, 640)
"""Of the window; the narrow one is what 200 % zoom leaves of the wide one."""


class Walker(NamedTuple):
    """A browser, and the world that it looks at."""

    chromium: Any
    looked: Looked

    def open(self, role: str, **terms: object) -> Any:  # noqa: ANN401 - a page of Playwright's
        """A window of somebody who is logged in."""
        context = self.chromium.new_context(**terms)
        url = self.looked.pairs.world.url
        for name, value in self.looked.browsers[role].cookies.items():
            context.add_cookies([{"name": name, "url": url, "value": value}])
        return context.new_page()


@pytest.fixture(scope="module")
def walker(looked: Looked) -> Iterator[Walker]:
    """Chromium; without one, this module says so and the rest of the tests run."""
    path = browser_path()
    if path is None:
        pytest.skip("no browser here: apt install chromium, or name one in EPSILON_BROWSER")
    with driver().sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield Walker(chromium, looked)
        chromium.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_blocked_or_wider_than_its_window(walker: Walker, scheme: str, width: int) -> None:
    """No message on the console, no violation of the policy, no request that fails or leaves the service."""
    url = walker.looked.pairs.world.url
    for role in ("SRO", "TDC", "OPERATOR", ANYONE):
        window = walker.open(role, viewport={"width": width, "height": 800}, color_scheme=scheme)
        said: list[str] = []
        window.on("console", lambda message, said=said: said.append(message.text))
        window.on("pageerror", lambda error, said=said: said.append(str(error)))
        window.on(
            "request", lambda one, said=said: said.append(one.url) if not one.url.startswith((url, "data:")) else None
        )
        for page in PAGES:
            if _RICHEST.get(page.path, "SRO" if not page.public else ANYONE) != role or page.path.endswith(
                (".json", "bytes")
            ):
                continue
            answer = window.goto(url + addresses(walker.looked.pairs)[page.path])
            assert (answer.status, said) == (200, []), page.path
            assert window.evaluate("document.documentElement.scrollWidth") <= width, page.path
        window.context.close()


def test_the_browser_verifies_a_proof_and_notices_a_forgery(walker: Walker) -> None:
    """By the key that the person brings: another key, other bytes and a shorter log are each refused."""
    world = walker.looked.pairs.world
    window = walker.open("AUDITOR")
    window.goto(f"{world.url}/console/log/7")
    assert _verdict(window, world.log.vkey).startswith("✓ Verified")
    window.evaluate("document.querySelector('section.verify').dataset.bytes = '/console/log/8/bytes'")
    assert "are not in this log" in _verdict(window, world.log.vkey)
    window.goto(f"{world.url}/console/log/7")
    assert "must be name+id+key" in _verdict(window, "nothing")
    window.goto(f"{world.url}/console/log")
    assert "for the first time" in _verdict(window, world.log.vkey)
    assert "goes on from" in _verdict(window, world.log.vkey)
    key = f"epsilon-checkpoint {world.log.vkey}"
    window.evaluate("([key]) => localStorage.setItem(key, JSON.stringify({size: 999, root: []}))", [key])
    assert "an older copy is served" in _verdict(window, world.log.vkey)
    rewritten = "([key]) => localStorage.setItem(key, JSON.stringify({size: 5, root: new Array(32).fill(1)}))"
    window.evaluate(rewritten, [key])
    assert "history was rewritten" in _verdict(window, world.log.vkey)


def _verdict(window: Any, vkey: str) -> str:  # noqa: ANN401 - a page of Playwright's
    window.evaluate("document.getElementById('verdict').className = ''")
    window.fill("input[name=vkey]", vkey)
    window.click("#pin button")
    window.wait_for_selector("#verdict.passed, #verdict.failed")
    return str(window.inner_text("#verdict"))


def test_tables_forms_and_paging_work_without_scripts(walker: Walker) -> None:
    """The planner answers, a filter filters, and a charge is reached by links alone."""
    world = walker.looked.pairs.world
    window = walker.open("TDC", java_script_enabled=False)
    window.goto(f"{world.url}/console/planner")
    window.select_option("select[name=contract]", walker.looked.pairs.own.contract)
    window.select_option("select[name=partition]", walker.looked.pairs.own.partition)
    window.click("form.plan button")
    assert window.locator("#checks tbody tr").count() > 5
    window.goto(f"{world.url}/console/decisions")
    window.select_option("select[name=kind]", "charge")
    window.click("form.filters button")
    kinds = window.locator("#decisions tbody tr td:nth-child(3)").all_inner_texts()
    assert set(kinds) == {"charge"}
    window.click("text=run-3")
    assert window.inner_text("h1") == "Decision on run-3"


def test_a_page_is_walked_by_keyboard_alone(walker: Walker) -> None:
    """The first stop skips to the content, and each stop can be seen."""
    window = walker.open("SRO")
    window.goto(f"{walker.looked.pairs.world.url}/console/datasets")
    window.keyboard.press("Tab")
    assert window.evaluate("document.activeElement.textContent") == "Skip to the content"
    seen = []
    for _ in range(25):
        window.keyboard.press("Tab")
        seen.append(window.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
    assert set(seen) <= {"solid", "auto"}
    window.click("nav >> text=Runs")
    assert window.locator("nav a[aria-current=page]").inner_text() == "Runs"
