"""A report as PDF: the page as a browser prints it, with a text layer, tags and an outline of its headings.

Playwright drives the Chromium that the machine has; none is downloaded. The page comes from memory, its scripts are
off, and the browser reaches no network.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, Final

from ledger.wire.malformed import Malformed

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
"""What distributions call Chromium's program."""
PAGE_LOAD_MS: Final = 120_000
"""How long Chromium may take to start, and to lay the page out."""


def pdf_printer(name: str) -> Callable[[bytes], bytes]:
    """The function that makes a PDF of a page of HTML.

    Args:
        name: of the option that asks for it.

    Raises:
        Malformed: without Playwright, or without a Chromium in the path; what is returned raises it where the browser
            fails.
    """
    browser = next((path for one in NAMES if (path := shutil.which(one))), None)
    if browser is None:
        raise Malformed(name, "needs Chromium: apt install chromium, or print report.html with any browser")
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise Malformed(name, "needs Playwright: pip install 'epsilon-ledger[pdf]'") from None

    def printed(page: bytes) -> bytes:
        with sync_playwright() as playwright:
            try:
                return _printed(playwright.chromium, browser, page)
            except Error as error:
                raise Malformed(name, f"{browser} does not print the page: {error.message.splitlines()[0]}") from None

    return printed


def _printed(chromium: Any, browser: str, page: bytes) -> bytes:  # noqa: ANN401 - of a library that is an extra
    with chromium.launch(executable_path=browser, timeout=PAGE_LOAD_MS) as opened:
        window = opened.new_context(java_script_enabled=False, offline=True).new_page()
        window.set_content(page.decode(), timeout=PAGE_LOAD_MS)
        return bytes(window.pdf(format="A4", tagged=True, outline=True))
