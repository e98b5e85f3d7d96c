"""What the console names of a run that its reader sees under a contract that its reader does not see."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ledger.wire import canonical_json as c
from tests.api.console.visitors import visitors
from tests.api.two_of_each import TwoOfEach
from tests.factories.people import BANK_A, BANK_B
from tests.factories.service import open_world

_ADDRESS: Final = re.compile(r'"/console/contracts/([^"?#]+)')
AGREED: Final = "digits-bank-b"


def test_a_run_s_page_names_no_contract_that_is_hidden(tmp_path: Path) -> None:
    """Who was given the model sees the run and its contract's digest, as in the API; its own contract it sees whole."""
    with open_world(tmp_path) as world:
        world.contract = world.found_service()
        pairs = TwoOfEach(world)
        agreement = world.agreement(pairs.foreign.run, BANK_B, BANK_A, 9)
        gift: c.Object = {"agreement": agreement, "charge": pairs.foreign.run, "giver": BANK_B, "recipient": BANK_A}
        world.service.submit(pairs.other_bank, BANK_B, "transfer", gift, "gift")
        with visitors(world) as browsers:
            given, own, all_of_it = (
                browsers[role].get(f"/console/runs/{run}").raise_for_status().text
                for role, run in (("TDC", pairs.foreign.run), ("TDC", pairs.own.run), ("SRO", pairs.foreign.run))
            )
    assert (AGREED in given, _ADDRESS.findall(given)) == (False, [])
    assert pairs.foreign.contract[:12] in given
    assert _ADDRESS.findall(own) == ["digits-bank-a"]
    assert _ADDRESS.findall(all_of_it) == [AGREED]
