"""Pictures of every page of the console, and of a report, on the demonstration's book: ``make pictures`` takes them.

    python -m tests.api.console.pictures [DEMO]

``DEMO`` is the folder of a demonstration that was run; without it one is run. The pictures are WebP, which browser and
documentation show and which is a third of a PNG; the browser makes them itself.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from api.dev_issuer.issuer import Person
from tests.api.console import demonstration
from tests.api.console.visitors import browser, log_in
from tests.api.console.walk import ROOT, Walker, Window, launched
from tests.factories.service import ServedWorld

INTO: Final = ROOT / "docs" / "pictures" / "console"
PAGE: Final = ROOT / "docs" / "console.md"
WIDTH: Final = 1280
PICTURE_BYTES_MAX: Final = 60_000
_HEIGHTS: Final = (1_500, 1_000, 700)
"""Of a longer page so many pixels are shown."""
_QUALITIES: Final = (80, 65, 50)
_NAMES: Final = {"/": "home"}


def name_of(path: str) -> str:
    """The file of a page's picture, by the page's path."""
    words = path.replace("{", "").replace("}", "").strip("/").replace("/", "-")
    return f"{_NAMES.get(path, words)}.webp"


def pictured() -> set[str]:
    """The files that the page of the console shows."""
    return {*re.findall(r"\(pictures/console/([a-z-]+\.webp)\)", PAGE.read_text("utf-8"))}


def take(window: Window, file: Path) -> None:
    """Write what a window shows, as well as fits in so many bytes."""
    page: Any = window.page
    whole = page.evaluate("document.documentElement.scrollHeight")
    page.evaluate("document.fonts.ready")
    session = page.context.new_cdp_session(page)
    for height, quality in product(_HEIGHTS, _QUALITIES):
        page.set_viewport_size({"width": WIDTH, "height": max(400, min(height, whole))})
        taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": quality})
        data = base64.b64decode(taken["data"])
        if len(data) <= PICTURE_BYTES_MAX:
            break
    file.write_bytes(data)
    page.set_viewport_size({"width": WIDTH, "height": 800})


def main(demo: Path) -> None:
    """Take all of them."""
    INTO.mkdir(parents=True, exist_ok=True)
    people = {"regulator": Person(demonstration.REGULATOR), "operator": Person(demonstration.REGULATOR, ("OPERATOR",))}
    with (
        TemporaryDirectory() as folder,
        demonstration.served(demo, Path(folder)) as world,
        world.issuing(people) as issuer,
        browser(world.url) as regulator,
        browser(world.url) as operator,
        launched() as chromium,
    ):
        log_in(regulator, issuer, "regulator")
        log_in(operator, issuer, "operator")
        walker = Walker(chromium, world.url, {"regulator": regulator, "operator": operator})
        windows = {one: walker.open(one, viewport={"width": WIDTH, "height": 800}) for one in walker.people}
        for path, address in demonstration.page_addresses(world).items():
            if name_of(path) not in pictured():
                continue
            window = windows["operator" if path == "/operations" else "regulator"]
            assert window.goto(address) == 200, path
            if path == "/policy-impact":
                _ask_draft(window, world)
            if path == "/log/{index}":
                window.verdict(world.log.vkey)
            take(window, INTO / name_of(path))
        _report(demo, Path(folder), windows["regulator"])


def _ask_draft(window: Window, world: ServedWorld) -> None:
    """Ask what a stricter cap on one lineage would change."""
    with world.book.read() as facts:
        newest = json.loads(facts.documents[facts.policies["health"][-1].document])
    draft = {**newest, "lineage": {**newest["lineage"], "epsilon_max": "3"}, "version": newest["version"] + 1}
    window.page.fill("textarea", json.dumps(draft, indent=1, sort_keys=True))
    window.page.click("main form button")
    window.page.wait_for_selector("#accounts")


def _report(demo: Path, folder: Path, window: Window) -> None:
    dataset = "did:web:lotus-hospital.demo.invalid/digits"
    command = [str(Path(sys.executable).with_name("epsilon")), "report", str(demo / "book.sqlite")]
    subprocess.run([*command, "--dataset", dataset, "--into", str(folder / "report")], check=True)
    window.page.goto((folder / "report" / "report.html").as_uri())
    take(window, INTO / "report.webp")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as made:
            demonstration.perform(Path(made) / "demo")
            main(Path(made) / "demo")
