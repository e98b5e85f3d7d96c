"""Pages over ten thousand partitions: cut where they are long, which they say, with few statements and page by page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Final
from urllib.parse import quote

import httpx
import pytest

from api.console.frame.pages import ROWS_MAX
from api.console.views.policies import CHANGES_MAX
from ledger.wire import canonical_json as c
from tests.api.console.crowded_book import PARTITIONS, RUNS, crowded_book, many
from tests.api.console.long_book import PATHS, LongBook, planned, served_file
from tests.api.console.test_statements import STATEMENTS_MAX, counted, statements
from tests.bench.grown import ENDLESS
from tests.factories.documents import policy
from tests.factories.people import BANK_A, BANK_B, HOSPITAL

pytestmark = pytest.mark.soak
DATASET: Final = f"{quote(HOSPITAL, safe=':')}/digits"
PLANNED: Final = f"{HOSPITAL}/digits/{many(PARTITIONS // 2)}"
OTHERS: Final = (
    "/",
    "/datasets",
    f"/datasets/{DATASET}",
    f"/partitions/{PLANNED}",
    "/contracts",
    "/planner",
    planned(PLANNED),
    "/register",
    "/policies/health",
    f"/runs/run-{RUNS - 1}",
)
"""What a provider and a consumer look at, too."""
BYTES_MAX: Final = 300_000


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongBook]:
    """One dataset with as many, all charged, and the browsers of its parties."""
    folder = tmp_path_factory.mktemp("crowded")
    with served_file(crowded_book(folder), folder) as served:
        yield served


def _is_short(crowded: LongBook, http: httpx.Client, address: str) -> bool:
    """In size and in statements, and not blank. Raises: AssertionError, with what is too much."""
    with counted(crowded.world.book) as asked:
        count = statements(http, address, asked)
    answer = http.get(address)
    whole = "</main>" in answer.text or address.endswith(("bytes", ".json"))
    assert (answer.status_code, whole) == (200, True)
    assert count <= STATEMENTS_MAX
    assert len(answer.content) < BYTES_MAX
    return True


@pytest.mark.parametrize(("page", "path"), PATHS, ids=[path for _, path in PATHS])
def test_a_page_stays_short(crowded: LongBook, page: str, path: str) -> None:
    """Each in its richest role, whatever the number of partitions."""
    assert _is_short(crowded, crowded.of(page), f"/console{path}".format(size=crowded.world.size))


@pytest.mark.parametrize(("role", "path"), [*product(("TDP", "TDC"), OTHERS), ("TDP", f"/knowledge/{DATASET}")])
def test_a_page_stays_short_for_the_parties(crowded: LongBook, role: str, path: str) -> None:
    """A provider sees all of it, and a consumer all that it shares."""
    assert _is_short(crowded, crowded.browsers[role], f"/console{path}")


def test_a_draft_that_changes_all_of_them_is_answered_and_cut(crowded: LongBook) -> None:
    """The impact of a policy reads each table once; its page shows the first rows, and says of how many."""
    draft = policy(crowded.world.clock.now, lineage={"epsilon_max": "2"}, version=2)
    http = crowded.browsers["SRO"]
    token = re.findall(r'name="form_token" value="([^"]+)"', http.get("/console/policy-impact").text)[0]
    form = {"document": c.dump(draft).decode(), "form_token": token}
    with counted(crowded.world.book) as requested:
        shown = http.post("/console/policy-impact", data=form)
    assert f"Partitions whose bounds change: the first {CHANGES_MAX} of {PARTITIONS + 1}" in shown.text
    assert f"Accounts whose cap changes: the first {CHANGES_MAX} of " in shown.text
    assert len(shown.content) < BYTES_MAX
    assert len(requested) <= STATEMENTS_MAX


def test_a_proposed_contract_is_answered_and_cut(crowded: LongBook) -> None:
    """What could run under it is computed once for all partitions of equal terms."""
    proposed = c.dump({**ENDLESS, "version": 3})
    crowded.world.service.propose_contract(crowded.world.bank, proposed)
    address = f"/console/contract-proposals/{c.digest(proposed)}"
    assert _is_short(crowded, crowded.browsers["TDP"], address)
    text = crowded.browsers["TDP"].get(address).text
    assert f"What could run under its caps: the first {ROWS_MAX} of {PARTITIONS + 1}" in text


def test_what_a_merger_changes_is_cut(crowded: LongBook) -> None:
    """Those over their cap come first, and the caption has the number of all."""
    text = crowded.get("/merger", f"/merger?first={BANK_A}&second={BANK_B}").text
    assert f"the first {ROWS_MAX} of {PARTITIONS + 1}" in text


def test_the_first_page_says_that_it_is_cut_and_the_list_goes_on(crowded: LongBook) -> None:
    """Page by page to the last one, each partition once."""
    http = crowded.browsers["TDP"]
    assert "more partitions than are looked at" in http.get("/console/").text
    seen, address = list[str](), f"/console/datasets/{DATASET}"
    while address:
        text = http.get(address).text
        seen += [part.partition('"')[0] for part in text.split(f'href="/console/partitions/{HOSPITAL}/digits/')[1:]]
        _, mark, _ = text.partition('rel="next"')
        address = (
            text[: text.index(mark)].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&") if mark else ""
        )
    assert len(seen) == len({*seen}) == PARTITIONS + 1
