"""An address of each page of the console, about what is the hospital's and the bank's."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from tests.api.two_of_each import TwoOfEach
from tests.factories.people import BANK_A, BANK_B, HOSPITAL

_DATASET: Final = f"{quote(HOSPITAL, safe=':')}/digits"


def addresses(pairs: TwoOfEach) -> dict[str, str]:
    """By the page's path, an address that its own parties may open."""
    own = pairs.own
    planned = f"contract={own.contract}&partition={quote(own.partition)}&probability=0.05&noise=2&steps=100"
    found = {
        "/contracts/{id}": "/contracts/digits-bank-a",
        "/datasets/{provider}/{dataset}": f"/datasets/{_DATASET}",
        "/decisions/{id}": f"/decisions/{own.charge}",
        "/knowledge/{provider}/{dataset}": f"/knowledge/{_DATASET}",
        "/lineage/{did}": f"/lineage/{BANK_A}",
        "/log/{index}": "/log/3",
        "/log/{index}/bytes": "/log/3/bytes",
        "/merger": f"/merger?first={BANK_A}&second={BANK_B}",
        "/partitions/{provider}/{dataset}/{partition}": f"/partitions/{own.partition}",
        "/planner": f"/planner?{planned}",
        "/policies/{domain}": "/policies/health",
        "/runs/{id}": f"/runs/{own.run}",
        "/runs/{id}/curve": f"/runs/{own.run}/curve",
        "/runs/{id}/live": f"/runs/{own.charge}/live",
    }
    from api.console.view_list import PAGES

    return {page.path: f"/console{found.get(page.path, page.path)}" for page in PAGES}
