"""The distribution's browser, driven by Playwright from a folder of its own; no browser is ever downloaded.

``EPSILON_BROWSER`` says what to do: ``required`` fails without a browser or its driver, a path names one, and without
it the usual places are looked at.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from api.report.pdf import NAMES

ROOT: Final = Path(__file__).parents[3]
DRIVER: Final = ROOT / ".venv" / "browser"
REQUIRED: Final = "required"
PATIENCE_MS: Final = 300_000
"""How long a browser may take for anything: no test is about time, and the machine may be busy."""


def browser_path() -> str | None:
    """The browser to walk with; None if there is none, or no driver. Raises: AssertionError, where one is required."""
    wanted = os.environ.get("EPSILON_BROWSER", "")
    named = wanted if wanted not in {"", REQUIRED} else None
    found = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found or wanted != REQUIRED, "EPSILON_BROWSER=required, and no browser is there: apt install chromium"
    if found and not DRIVER.is_dir():
        assert wanted != REQUIRED, "EPSILON_BROWSER=required, and its driver is not there: make .venv/.browser"
        return None
    return found


def driver_module(name: str) -> Any:  # noqa: ANN401 - of a folder that no checker reads
    """A module that lies beside the driver."""
    if str(DRIVER) not in sys.path:
        sys.path.append(str(DRIVER))
    return import_module(name)


@contextmanager
def launched() -> Iterator[Any]:
    """The browser itself, without a window, while the block runs. Raises: AssertionError, without one."""
    path = browser_path()
    assert path is not None
    with driver_module("playwright.sync_api").sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield chromium
        chromium.close()


class Walker(NamedTuple):
    """A browser, the address of a service, and the cookies of those who are logged in there, by role."""

    chromium: Any
    url: str
    people: Mapping[str, httpx.Client]

    def open(self, role: str, **terms: object) -> Window:
        """A window of somebody who is logged in; ``terms`` are those of a context of Playwright's."""
        context = self.chromium.new_context(**terms)
        context.set_default_timeout(PATIENCE_MS)
        for name, value in self.people[role].cookies.items():
            context.add_cookies([{"name": name, "url": self.url, "value": value}])
        return Window(context.new_page(), self.url)


class Window:
    """One window, which notes whatever a page does that none may do.

    Attributes:
        page: Playwright's.
        noted: messages on the browser's console (a violation of the policy is one), errors of scripts, and requests to
            any other place.
    """

    def __init__(self, page: Any, url: str) -> None:  # noqa: ANN401 - Playwright's
        """Nothing is open in it yet."""
        self.page, self._url = page, url
        self.noted: list[str] = []
        page.on("console", lambda message: self.noted.append(message.text))
        page.on("pageerror", lambda error: self.noted.append(str(error)))
        page.on("request", lambda request: self._note_request(request.url))

    def _note_request(self, url: str) -> None:
        if not url.startswith((self._url, "data:")):
            self.noted.append(url)

    def goto(self, path: str) -> int:
        """Open a page of the service; its status, 401 where it led to logging in."""
        status = int(self.page.goto(f"{self._url}{path}").status)
        return 401 if "/console/login" in self.page.url and "/login" not in path else status

    def hindrances(self) -> list[str]:
        """What axe finds that hinders people, each with the places on the page."""
        found = driver_module("axe_playwright_python.sync_playwright").Axe().run(self.page).response["violations"]
        return [f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']]}" for one in found]

    def is_wider_than(self, width: int) -> bool:
        """Whether the page must be moved sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth") > width)

    def verdict(self, vkey: str) -> str:
        """What a page of the log says of its proof under a key."""
        self.page.evaluate("document.getElementById('verdict').className = ''")
        self.page.fill("input[name=vkey]", vkey)
        self.page.click("#pin button")
        self.page.wait_for_selector("#verdict.passed, #verdict.failed")
        return str(self.page.inner_text("#verdict"))

    def close(self) -> None:
        """Close it, with all that it was told by the service."""
        self.page.context.close()
