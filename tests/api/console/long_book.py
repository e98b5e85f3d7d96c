"""A generated book of thousands of entries, served as it lies there, and an address on it of each page."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from ledger.commands.entry import Entry
from ledger.wire import canonical_json as c
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.bench.grown import ENDLESS, grown
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, LOG_KEY, STRANGER, Clock
from tests.factories.service import ServedWorld, open_world
from tests.factories.stored import copy

RICHEST: Final = {"/operations": "OPERATOR", "/planner": "TDC"}
"""By page, who sees most on it, where that is not the SRO."""
_PARTITION: Final = f"{HOSPITAL}/digits/2026-q4"
_CONTRACT: Final = c.digest(c.dump(ENDLESS))


def planned(ref: str) -> str:
    """The planner's answer for a run on a partition."""
    return f"/planner?contract={_CONTRACT}&partition={ref}&probability=0.05&noise=1000&steps=1"


LONG: Final[Mapping[str, tuple[str, ...]]] = {
    "/": ("/",),
    "/contracts": ("/contracts",),
    "/contracts/{id}": (f"/contracts/{ENDLESS['id']}",),
    "/datasets": ("/datasets",),
    "/datasets/{provider}/{dataset}": (f"/datasets/{HOSPITAL}/digits",),
    "/decisions": ("/decisions", "/decisions?kind=post", "/decisions?kind=policy", f"/decisions?actor={STRANGER}"),
    "/decisions/{id}": ("/decisions/run-0",),
    "/decisions/{id}/checks": ("/decisions/run-0/checks",),
    "/knowledge": ("/knowledge",),
    "/knowledge/{provider}/{dataset}": (f"/knowledge/{HOSPITAL}/digits",),
    "/lineage": ("/lineage",),
    "/lineage-graph": ("/lineage-graph",),
    "/lineage/{did}": (f"/lineage/{BANK_A}",),
    "/log": ("/log", "/log?kind=policy", "/log?before=500"),
    "/log/checkpoints": ("/log/checkpoints",),
    "/log/checkpoints/{size}/bytes": ("/log/checkpoints/{size}/bytes",),
    "/log/{index}": ("/log/20",),
    "/log/{index}/bytes": ("/log/20/bytes",),
    "/meaning": ("/meaning?epsilon=3&delta=0.00001",),
    "/merger": (f"/merger?first={BANK_A}&second={BANK_B}",),
    "/models": ("/models",),
    "/operations": ("/operations",),
    "/partitions/{provider}/{dataset}/{partition}": (f"/partitions/{_PARTITION}",),
    "/planner": (planned(_PARTITION),),
    "/policies": ("/policies",),
    "/policies/{domain}": ("/policies/health",),
    "/policy-impact": ("/policy-impact",),
    "/register": ("/register",),
    "/register.json": ("/register.json",),
    "/runs": ("/runs", "/runs?state=pending"),
    "/runs/{id}": ("/runs/run-0",),
    "/runs/{id}/curve": ("/runs/run-0/curve",),
    "/runs/{id}/live": ("/runs/run-0/live",),
}
"""By the page's path, addresses of it; ``{size}`` is the number of entries."""
NOT_THERE: Final = {"/contract-proposals/{sha256}", "/contract-proposals/{sha256}/bytes"}
"""What the generated book has nothing for: a proposal lies beside the log, and its number grows with no log."""
PATHS: Final = tuple((page, path) for page, paths in LONG.items() for path in paths)
"""Each page with each of its addresses."""


class LongBook(NamedTuple):
    """The served book, and a browser of each role that is the richest on some page."""

    world: ServedWorld
    browsers: Mapping[str, httpx.Client]

    def of(self, page: str) -> httpx.Client:
        """The browser of who sees most on a page."""
        return self.browsers[RICHEST.get(page, "SRO")]

    def get(self, page: str, path: str) -> httpx.Response:
        """A page in its richest role, by one of its addresses in :data:`LONG`."""
        return self.of(page).get(f"/console{path}".format(size=self.world.size))


@contextmanager
def served_long(entries: int, folder: Path) -> Iterator[LongBook]:
    """A copy of a generated book, at a moment just after its last entry, while the block runs."""
    folder.mkdir(exist_ok=True)
    with served_file(copy(grown(entries), folder / "book.sqlite"), folder) as served:
        yield served


@contextmanager
def served_file(book: Path, folder: Path) -> Iterator[LongBook]:
    """A book of the tests' own people, at a moment just after its last entry, while the block runs."""
    roles = ("SRO", "TDP", *{*RICHEST.values()})
    with (
        open_world(folder, clock=Clock(last_time(book)), log_key=LOG_KEY, database=f"sqlite:///{book}") as world,
        world.issuing({role.lower(): PEOPLE[role] for role in roles}) as issuer,
        ExitStack() as stack,
    ):
        browsers = {role: stack.enter_context(browser(world.url)) for role in roles}
        for role, http in browsers.items():
            log_in(http, issuer, role.lower())
            # The world's clock stands and a session goes on; cookies would end by the machine's.
            for cookie in http.cookies.jar:
                cookie.expires = None
        yield LongBook(world, browsers)


def last_time(book: Path) -> int:
    """A time (ms) just after the last entry of a book that no process has open."""
    with sqlite3.connect(book) as connection:
        (data,) = connection.execute("SELECT data FROM entry ORDER BY position DESC LIMIT 1").fetchone()
    connection.close()
    return Entry.parse(bytes(data)).time_after + 1_000
