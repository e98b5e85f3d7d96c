"""The book of the demonstration, served as it lies there, for those who look at its pages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from api.console.view_list import PAGES
from api.dev_issuer.issuer import Person
from client.keys.signer import load_private
from tests.api.console.long_book import last_time
from tests.factories.people import Clock
from tests.factories.service import ServedWorld, open_world
from tests.factories.stored import copy

ORIGIN: Final = "ledger.demo.invalid"
REGULATOR: Final = "did:web:health-council.demo.invalid"
_HOSPITAL: Final = "did:web:lotus-hospital.demo.invalid"
_BANK: Final = "did:web:banyan-bank.demo.invalid"
PEOPLE: Final = {
    "SRO": Person(REGULATOR),
    "TDP": Person(_HOSPITAL),
    "TDC": Person(_BANK),
    "AUDITOR": Person("did:web:auditor.demo.invalid", ("AUDITOR",)),
    "OPERATOR": Person("did:web:operator.demo.invalid", ("OPERATOR",)),
}
"""Who looks at it, by role."""
_PARTITION: Final = f"{_HOSPITAL}/digits/2026-q3"
_PLANNED: Final = f"{_HOSPITAL}/digits/2026-q4"
_OF_SOMETHING: Final = {
    "/contracts/{id}": "/contracts/digits-banyan-bank",
    "/datasets/{provider}/{dataset}": f"/datasets/{_HOSPITAL}/digits",
    "/decisions/{id}": "/decisions/banyan-bank-run-5",
    "/decisions/{id}/checks": "/decisions/banyan-bank-run-6/checks",
    "/knowledge/{provider}/{dataset}": f"/knowledge/{_HOSPITAL}/digits",
    "/lineage/{did}": "/lineage/did:web:banyan-cedar.demo.invalid",
    "/log/{index}": "/log/41",
    "/merger": f"/merger?first={_BANK}&second=did:web:sesame-clinics.demo.invalid",
    "/partitions/{provider}/{dataset}/{partition}": f"/partitions/{_PARTITION}",
    "/policies/{domain}": "/policies/health",
    "/runs/{id}": "/runs/banyan-bank-run-6",
    "/runs/{id}/curve": "/runs/banyan-bank-run-6/curve",
    "/runs/{id}/live": "/runs/banyan-bank-run-6/live",
}


def page_addresses(world: ServedWorld) -> dict[str, str]:
    """By the page's path, an address on this book, of every page that people look at."""
    shown = [one.path for one in PAGES if not one.path.endswith((".json", "bytes"))]
    known = {path: _OF_SOMETHING.get(path, path) for path in shown}
    with world.book.read() as facts:
        contract = facts.contract_heads["digits-banyan-bank"]
    plan = urlencode({"contract": contract, "partition": _PLANNED, "probability": "0.5", "noise": "6.9", "steps": "60"})
    known["/planner"] = f"/planner?{plan}"
    return {path: f"/console{one}" for path, one in known.items() if "{" not in one}


def perform(folder: Path) -> None:
    """Run the demonstration: a minute of two cores, with training."""
    command = [str(Path(sys.executable).with_name("epsilon")), "demo", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ), timeout=900)


@contextmanager
def served(demo: Path, folder: Path) -> Iterator[ServedWorld]:
    """A copy of a demonstration's book, at a moment just after its last entry, while the block runs."""
    book = copy(demo / "book.sqlite", folder / "book.sqlite")
    clock, key = Clock(last_time(book)), load_private(demo / "log.pem")
    with open_world(folder, clock=clock, log_key=key, database=f"sqlite:///{book}", origin=ORIGIN) as world:
        yield world
