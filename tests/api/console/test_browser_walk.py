"""A real browser opens every page in its richest role: nothing is blocked, nothing overflows, nobody is hindered.

The browser is the distribution's (``apt install chromium``), its driver and axe come with ``make test`` where there is
one. ``EPSILON_BROWSER=required`` fails without; else the run says at its end that no page was walked.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Final

from api.console.view_list import PAGES
from tests.api.console.conftest import Looked
from tests.api.console.page_addresses import addresses
from tests.api.console.visitors import ANYONE
from tests.api.console.walk import Walker
from tests.factories.documents import policy

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
    assert window.page.is_hidden("#drawing")
    assert "goes on from" in window.verdict(key)
    for kept, words in (
        ("{size: 999, root: []}", "an older copy is served"),
        ("{size: 5, root: new Array(32).fill(1)}", "history was rewritten"),
    ):
        stored = f"([key]) => localStorage.setItem(key, JSON.stringify({kept}))"
        window.page.evaluate(stored, [f"epsilon-checkpoint {key}"])
        assert words in window.verdict(key)
    window.close()


def test_the_browser_draws_the_proofs_that_it_verified(looked: Looked, walker: Walker) -> None:
    """Each hash as a box that joins from its side until the root, for both proofs; and the same as a list."""
    key, http = looked.pairs.world.log.vkey, looked.browsers["AUDITOR"]
    window = walker.open("AUDITOR")
    page = window.page
    window.goto("/console/log/7")
    window.verdict(key)
    hashes = len(page.inner_text("#receipt").split("\n\n")[0].splitlines()) - 2
    assert page.locator("#drawn rect").count() == 2 * hashes + 1
    assert page.locator("#drawn text").first.text_content() == "entry 7"
    assert page.locator("#proof li").count() == hashes + 1
    sizes = re.findall(r"/console/log/checkpoints/(\d+)/bytes", http.get("/console/log/checkpoints").text)
    older = next(one for one in sizes if int(one) & int(one) - 1 and int(one) != looked.pairs.world.size)
    root = [*base64.b64decode(http.get(f"/console/log/checkpoints/{older}/bytes").text.splitlines()[2])]
    window.goto("/console/log")
    seen = json.dumps({"size": int(older), "root": root})
    page.evaluate("([key, seen]) => localStorage.setItem(key, seen)", [f"epsilon-checkpoint {key}", seen])
    assert f"goes on from the {older} entries" in window.verdict(key)
    assert page.is_visible("#drawn svg")
    assert page.locator("#drawn .cut").count() > 0
    assert (
        page.locator("#proof li")
        .last.evaluate("one => one.textContent")
        .endswith(base64.b64decode(page.inner_text("#note").splitlines()[2]).hex())
    )
    assert (window.noted, window.hindrances()) == ([], [])
    window.close()


def test_a_form_of_a_page_is_taken_from_a_browser(looked: Looked, walker: Walker) -> None:
    """With the origin that the browser itself names: a draft is answered, and a person logs out."""
    window = walker.open("SRO", viewport={"width": WIDTH, "height": 800})
    page = window.page
    window.goto("/console/policy-impact")
    draft = policy(looked.pairs.world.begun, looked.pairs.world.attester, lineage={"epsilon_max": "2"}, version=9)
    page.fill("textarea", json.dumps(draft))
    page.click("main form button")
    page.wait_for_selector("#fields")
    assert page.locator("#fields tbody tr").count() > 1
    with page.expect_download() as download:
        page.click("#partitions + .under button")
    assert Path(download.value.path()).read_text("utf-8-sig").startswith('"Partition","Level now"')
    assert (window.noted, window.hindrances()) == ([], [])
    page.click(".person button")
    page.wait_for_url("**/console/login*")
    assert window.goto("/console/policy-impact") == 401
    window.close()
