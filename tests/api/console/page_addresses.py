"""An address of each page of the console, about what is the hospital's and the bank's."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from ledger.wire import canonical_json as c
from policy.documents.contract import WAIVABLE
from tests.api.two_of_each import TwoOfEach
from tests.factories.documents import contract
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO
from tests.factories.service import ServedWorld

_DATASET: Final = f"{quote(HOSPITAL, safe=':')}/digits"


def proposal(world: ServedWorld) -> bytes:
    """A contract between the hospital and the bank that the regulator has to sign, too, for a waiver of its."""
    agreed = contract(BANK_A, starts=world.begun)
    waiver = {"ends": agreed["ends"], "issuer": SRO, "pipeline": "0" * 64, "reason": "none", "waives": WAIVABLE[0]}
    return c.dump({**agreed, "id": "digits-bank-a", "version": 2, "waivers": [waiver]})


def addresses(pairs: TwoOfEach) -> dict[str, str]:
    """By the page's path, an address that its own parties may open."""
    own, digest = pairs.own, c.digest(proposal(pairs.world))
    planned = f"contract={own.contract}&partition={quote(own.partition)}&probability=0.05&noise=2&steps=100"
    found = {
        "/contract-proposals/{sha256}": f"/contract-proposals/{digest}",
        "/contract-proposals/{sha256}/bytes": f"/contract-proposals/{digest}/bytes",
        "/contracts/{id}": "/contracts/digits-bank-a",
        "/datasets/{provider}/{dataset}": f"/datasets/{_DATASET}",
        "/decisions/{id}": f"/decisions/{own.charge}",
        "/decisions/{id}/checks": f"/decisions/{own.charge}/checks",
        "/knowledge/{provider}/{dataset}": f"/knowledge/{_DATASET}",
        "/lineage/{did}": f"/lineage/{BANK_A}",
        "/log/checkpoints/{size}/bytes": f"/log/checkpoints/{pairs.world.size}/bytes",
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
