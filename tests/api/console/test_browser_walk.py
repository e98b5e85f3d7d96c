"""A real browser opens every page in its richest role: nothing is blocked, nothing overflows, nobody is hindered.

The browser is the distribution's (``apt install chromium``), its driver and axe come with ``make test`` where there is
one. ``EPSILON_BROWSER=required`` fails without; else the run says at its end that no page was walked.
"""

from __future__ import annotations

from typing import Final

from api.console.view_list import PAGES
from tests.api.console.conftest import Looked
from tests.api.console.page_addresses import addresses
from tests.api.console.visitors import ANYONE
from tests.api.console.walk import Walker

_RICHEST: Final = {"/operations": "OPERATOR", "/planner": "TDC"}
WIDTH: Final = 1280


def _role(path: str, *, public: bool) -> str:
    return _RICHEST.get(path, ANYONE if public else "SRO")


def test_every_page_is_walked_once(looked: Looked, walker: Walker) -> None:
    """No message, no violation of the policy, no request to another place, none wider than its window; axe is clean."""
    known = addresses(looked.pairs)
    wrong: dict[str, list[str]] = {}
    for role in ("SRO", "TDC", "OPERATOR", ANYONE):
        window = walker.open(role, viewport={"width": WIDTH, "height": 800})
        for page in PAGES:
            if _role(page.path, public=page.public) != role or page.path.endswith((".json", "bytes")):
                continue
            status = window.goto(known[page.path])
            found = [*window.noted, *window.hindrances()]
            window.noted.clear()
            if status != 200 or found or window.is_wider_than(WIDTH):
                wrong[page.path] = [str(status), *found]
        window.close()
    assert wrong == {}


def test_the_browser_verifies_a_proof_and_notices_a_forgery(looked: Looked, walker: Walker) -> None:
    """By the key that the person brings: another key, other bytes and a shorter log are each refused."""
    key = looked.pairs.world.log.vkey
    window = walker.open("AUDITOR")
    window.goto("/console/log/7")
    assert window.verdict(key).startswith("✓ Verified")
    window.page.evaluate("document.querySelector('section.verify').dataset.bytes = '/console/log/8/bytes'")
    assert "are not in this log" in window.verdict(key)
    window.goto("/console/log/7")
    assert "must be name+id+key" in window.verdict("nothing")
    window.goto("/console/log")
    assert "for the first time" in window.verdict(key)
    assert "goes on from" in window.verdict(key)
    for kept, words in (
        ("{size: 999, root: []}", "an older copy is served"),
        ("{size: 5, root: new Array(32).fill(1)}", "history was rewritten"),
    ):
        stored = f"([key]) => localStorage.setItem(key, JSON.stringify({kept}))"
        window.page.evaluate(stored, [f"epsilon-checkpoint {key}"])
        assert words in window.verdict(key)
    window.close()
