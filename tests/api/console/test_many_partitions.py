"""Pages over ten thousand partitions: cut where they are long, which they say, with few statements and page by page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
import pytest

from tests.api.console.test_statements import STATEMENTS_MAX, counted, statements
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.factories.people import HOSPITAL
from tests.factories.service import ServedWorld, founded_world

pytestmark = pytest.mark.soak
PARTITIONS: Final = 10_000
KNOWLEDGE: Final = f"/knowledge/{quote(HOSPITAL, safe=':')}/digits"
PATHS: Final = (
    "/",
    "/datasets",
    f"/datasets/{quote(HOSPITAL, safe=':')}/digits",
    f"/partitions/{HOSPITAL}/digits/many-05000",
    KNOWLEDGE,
    "/contracts",
    "/planner",
    "/register",
    "/policies/health",
)
SECONDS_MAX: Final = 2
"""Of one page: far more than any takes, far less than one that reads all of them for each row."""


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedWorld, dict[str, httpx.Client]]]:
    """One dataset with as many, and the browsers of its parties."""
    folder: Path = tmp_path_factory.mktemp("crowded")
    people = {role: PEOPLE[role] for role in ("SRO", "TDP", "TDC")}
    with founded_world(folder) as world:
        for number in range(PARTITIONS):
            world.open_partition(f"many-{number:05}")
        with (
            world.issuing({role.lower(): person for role, person in people.items()}) as issuer,
            browser(world.url) as sro,
            browser(world.url) as tdp,
            browser(world.url) as tdc,
        ):
            browsers = {"SRO": sro, "TDP": tdp, "TDC": tdc}
            for role, http in browsers.items():
                log_in(http, issuer, role.lower())
            yield world, browsers


@pytest.mark.parametrize(
    ("role", "path"),
    [(role, path) for role, path in product(("SRO", "TDP", "TDC"), PATHS) if (role, path) != ("TDC", KNOWLEDGE)],
)
def test_a_page_stays_short(crowded: tuple[ServedWorld, dict[str, httpx.Client]], role: str, path: str) -> None:
    """In size, in time and in statements, whatever the number of partitions."""
    world, browsers = crowded
    http = browsers[role]
    with counted(world.book) as asked:
        count = statements(http, f"/console{path}", asked)
    begun = time.perf_counter()
    answer = http.get(f"/console{path}")
    assert time.perf_counter() - begun < SECONDS_MAX
    assert len(answer.content) < 300_000
    assert answer.status_code == 200
    assert count <= STATEMENTS_MAX, path


def test_the_first_page_says_that_it_is_cut_and_the_list_goes_on(
    crowded: tuple[ServedWorld, dict[str, httpx.Client]],
) -> None:
    """Page by page to the last one, each partition once."""
    _, browsers = crowded
    assert "more partitions than are looked at" in browsers["TDP"].get("/console/").text
    seen, address = list[str](), f"/console/datasets/{quote(HOSPITAL, safe=':')}/digits"
    while address:
        text = browsers["TDP"].get(address).text
        seen += [part.partition('"')[0] for part in text.split(f'href="/console/partitions/{HOSPITAL}/digits/')[1:]]
        _, mark, _ = text.partition('rel="next"')
        address = (
            text[: text.index(mark)].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&") if mark else ""
        )
    assert len(seen) == len({*seen}) == PARTITIONS + 1
