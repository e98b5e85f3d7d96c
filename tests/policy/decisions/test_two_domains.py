"""A run over data of two domains keeps the bounds of both policies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from tests.factories.documented import PLAN, opened, policy_document
from tests.factories.documents import dataset
from tests.factories.memory import ref_of
from tests.factories.people import BANKS, HOSPITAL, SRO

SCANS = f"{HOSPITAL}/scans/two"
NAMED = [{"dataset": name, "provider": HOSPITAL} for name in ("digits", "scans")]


@pytest.mark.parametrize("refs", [(ref_of("one"), SCANS), (SCANS, ref_of("one"))])
@pytest.mark.parametrize(
    ("permitted", "codes"), [(["poisson_gaussian"], []), (["laplace"], ["mechanism_not_permitted"])]
)
def test_the_mechanisms_of_each_domain_bind(refs: tuple[str, ...], permitted: list[str], codes: list[str]) -> None:
    """Whichever partition is named first."""
    market = opened("one")
    research = policy_document(domain="research", mechanisms=permitted)
    market.enter(research, "research", SRO, SRO)
    market.enter({**dataset(name="scans"), "domain": "research"}, "scans", HOSPITAL, HOSPITAL)
    assert not market.open("two", "6", dataset="scans").code.refused
    digest = market.contract_of(BANKS[0], version=2, datasets=NAMED)
    asked = market.ask(PLAN, digest=digest)
    decision = replace(asked, run=structs.replace(asked.run, partitions=refs)).decision
    assert [check.code for check in decision.checks if not check.passed] == codes
