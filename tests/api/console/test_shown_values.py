"""What pages make of values: rounding, names that mean mischief, refusals, and charts that agree with their tables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console.charts.burn_down import Point, burn_down
from api.console.charts.curve import Named, epsilon_curves
from api.console.charts.graph import Edge, Vertex, layered
from api.console.charts.strip import Bar, strip
from api.console.frame.cells import bound, loss, rounded, share
from api.console.frame.document_fields import document_fields
from api.console.views.meaning import advantage, growth, shrinking, true_positives
from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from tests.api.console.test_statements import STATEMENTS_MAX, counted, statements
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.factories.documents import PARTITION, plan
from tests.factories.people import BANK_A, BANK_B, CleanRoom
from tests.factories.service import ServedWorld, founded_world

NAME: Final = "<img src=x onerror=alert(1)>\"'&{{7*7}}"
TURNED: Final = "\u202e"
BACKWARDS: Final = f"abc{TURNED}gnp.exe"
_POSITIVE: Final = st.fractions(min_value=Fraction(1, 10**12), max_value=10**6)


class Seen(NamedTuple):
    """A world whose other bank has a wild name, and a browser of the regulator's."""

    world: ServedWorld
    http: httpx.Client


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """One charge is refused, and two organisations are named by somebody who tries things."""
    folder: Path = tmp_path_factory.mktemp("seen")
    with (
        founded_world(folder) as world,
        world.issuing({"sro": PEOPLE["SRO"]}) as issuer,
        browser(world.url) as http,
    ):
        for number, (did, name) in enumerate(((BANK_B, NAME), ("did:web:other.example", BACKWARDS))):
            signer = Signer.generate()
            claim: c.Object = {"key": signer.jwk, "name": name, "organisation": did, "roles": ["TDC"]}
            body: c.Object = {**claim, "possession": signer.sign(c.dump(claim))}
            world.service.submit(world.sro, PEOPLE["SRO"].organisation, "organisation", body, f"wild-{number}")
        loud = {**world.charge_body(world.contract, CleanRoom()), "plan": plan(noise="0.8")}
        raw = world.command_bytes(world.bank, BANK_A, "charge", loud, "run-9")
        world.post("/v1/charges", raw, world.sign(world.bank, "/v1/charges", raw, "run-9"))
        log_in(http, issuer, "sro")
        yield Seen(world, http)


def test_a_name_is_text_and_turns_nothing_around(seen: Seen) -> None:
    """Markup is escaped, and no name turns the words around it: neither those of other cells nor a DID beside it."""
    page = seen.http.get("/console/lineage").text
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "{{7*7}}" in page
    assert f'<bdi title="did:web:other.example">{BACKWARDS}</bdi>' in page
    page = seen.http.get("/console/lineage/did:web:other.example").text
    assert f"Lineage of {BACKWARDS.replace(TURNED, '?')} (did:web:other.example)" in page


def test_a_refusal_shows_each_check_and_what_binds(seen: Seen) -> None:
    """In the order in which they were made; those that failed say so in a word."""
    page = seen.http.get("/console/decisions/run-9").text
    results = re.findall(r'<span class="mark (passed|failed)">[✓✗]</span> <bdi>(passed|failed)</bdi>', page)
    assert {one for one, _ in results} == {"passed", "failed"}
    assert all(one == other for one, other in results)
    binding = re.search(r"What binds: .*?<code>(\w+)</code>", page)
    assert binding is not None
    assert binding[1] == "run_above_contract"
    assert "The smallest changes that would pass" in page
    with counted(seen.world.book) as requested:
        assert statements(seen.http, "/console/decisions/run-9", requested) <= STATEMENTS_MAX
    listed = seen.http.get("/console/decisions?outcome=refused").text
    assert "/console/decisions/run-9" in listed
    assert "/console/decisions/run-9" not in seen.http.get("/console/decisions?outcome=permitted").text


def test_each_of_the_smallest_changes_would_pass(seen: Seen) -> None:
    """As the planner decides it now, and a little less would not."""
    text = seen.http.get("/console/decisions/run-9?csv=advice").raise_for_status().text
    changes = {row["Change"]: row["To"] for row in csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))}
    noise = Fraction(changes["more noise"])
    # One step with so little noise is above the contract's ε already.
    assert "fewer steps" not in changes
    loud: dict[str, Any] = plan(noise="0.8")
    small = Fraction(1, 10_000)
    for change, passes in (
        ({"steps": 1}, False),
        ({"noise_multiplier": format_number(noise)}, True),
        ({"noise_multiplier": format_number(noise - small)}, False),
    ):
        changed: c.Object = {**loud, **change}
        asked: c.Object = {"contract": seen.world.contract, "partitions": [PARTITION], "plan": changed}
        answer = (
            seen.world.http.post(
                "/v1/plans",
                params={"search": "false"},
                content=c.dump(asked),
                headers={**seen.world.everybody.shown(PEOPLE["SRO"].organisation), "content-type": "application/json"},
            )
            .raise_for_status()
            .json()
        )
        assert (answer["decision"]["outcome"] == "pending") == passes, change


@given(_POSITIVE)
def test_a_loss_is_rounded_up_and_a_limit_down(number: Fraction) -> None:
    """Both by less than a part in a thousand, and the exact number goes along."""
    up, down = Fraction(rounded(number, up=True)), Fraction(rounded(number, up=False))
    assert down <= number <= up
    assert up - down <= number / 999 or number > 10**4
    assert Fraction(loss(number).value) == Fraction(bound(number).value) == number


@given(st.fractions(min_value=0, max_value=3))
def test_a_share_is_never_shown_smaller_than_it_is(part: Fraction) -> None:
    """In tenths of a percent; the bar ends at its end."""
    shown = share(part)
    percent = Fraction(shown.text.removesuffix(" %"))
    assert 0 <= percent - 100 * part < Fraction(1, 10)
    assert shown.percent is not None
    assert min(Fraction(100), percent) <= shown.percent <= 100


def test_no_proof_of_a_loss_is_no_small_loss() -> None:
    """It is infinite, and a limit that is none is none."""
    assert (loss(None).text, bound(None).text, share(None).text) == ("infinite", "none", "no room at all")


@given(st.fractions(min_value=0, max_value=20, max_denominator=1000), st.fractions(0, 1, max_denominator=10**6))
def test_the_odds_bound_the_best_test_there_is(epsilon: Fraction, delta: Fraction) -> None:
    """Against the trade-off of (ε, δ) computed to forty digits by another library, and never below it."""
    with mpmath.workdps(40):
        exact = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
        grown, shrunk = growth(epsilon), shrinking(epsilon)
        assert mpmath.mpf(grown.numerator) / grown.denominator >= exact * (1 - mpmath.mpf(10) ** -38)
        assert mpmath.mpf(shrunk.numerator) / shrunk.denominator <= 1 / exact * (1 + mpmath.mpf(10) ** -38)
        small = mpmath.mpf(delta.numerator) / delta.denominator
        rates = [mpmath.mpf(place) / 64 for place in range(65)]
        best: float = max(float(min(exact * a + small, 1 - (1 - small - a) / exact, 1) - a) for a in rates)
    assert float(advantage(epsilon, delta)) >= best - 1e-12
    for place in range(0, 65, 8):
        rate = Fraction(place, 64)
        assert rate <= true_positives(epsilon, delta, rate) <= 1


def test_a_burn_down_draws_what_its_points_say() -> None:
    """A step for each run, each cap by its name, the greatest highest; nothing where there is no run."""
    points = [Point(0, Fraction(1), Fraction(2)), Point(10, Fraction(2), Fraction(3))]
    drawn = burn_down(points, [("budget", Fraction(6)), ("cap", Fraction(59, 10))], 20)
    assert drawn is not None
    posted = re.search(r'd="([^"]+)" class="posted"', drawn)
    assert posted is not None
    heights = [float(one) for one in re.findall(r"[ML][\d.]+ ([\d.]+)", posted[1])]
    assert heights[1] > heights[3]
    labels = [float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)" text-anchor="start" class="">', drawn)]
    assert len(labels) == 2
    assert abs(labels[0] - labels[1]) >= 14
    assert burn_down([], [("budget", Fraction(6))], 20) is None


def test_what_has_an_epsilon_is_drawn_under_its_own_name() -> None:
    """A mark with its exact numbers at each point, a line where there are several; what holds at δ = 0 goes across."""
    plan_points = [(Fraction(1, 10**place), Fraction(place, 7)) for place in (3, 5, 8)]
    shown = [
        Named("plan", "of one run", plan_points, "posted", "disc"),
        Named("budget", "<never>", [(Fraction(1, 10**5), Fraction(6))], "cap", "cross"),
    ]
    drawn = epsilon_curves(shown)
    assert drawn is not None
    assert "&lt;never&gt;" in drawn
    for one in shown:
        assert f">{one.name}</text>" in drawn
        for delta, epsilon in one.points:
            words = f"{one.name}: ε {format_number(epsilon)} at δ {format_number(delta)}"
            assert drawn.count(f"<title>{words}</title>") == 1
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawn)][:3]
    assert heights == sorted(heights, reverse=True)
    assert len(re.findall(r'<path d="M[^"]+" class="posted">', drawn)) == 2
    assert len(re.findall(r'<path d="M[^"]+" class="cap">', drawn)) == 0
    pure = epsilon_curves([*shown, Named("bound", "", [(Fraction(0), Fraction(1))], "second", "diamond")])
    assert pure is not None
    across = re.search(r'<path d="M([\d.]+) ([\d.]+) L([\d.]+) ([\d.]+)" class="second">', pure)
    assert across is not None
    assert across[2] == across[4]
    assert float(across[3]) - float(across[1]) > 500
    assert epsilon_curves([]) is None


def test_a_partition_is_a_bar_from_its_opening_to_its_close() -> None:
    """One without a close ends in an arrow at the edge, one that takes no run is an outline; today is a line."""
    day = 86_400_000
    bars = [
        Bar("first", 0, 10 * day, live=False, words="", title="<1>"),
        Bar("second", 5 * day, 30 * day, live=True, words="", title="<2>"),
        Bar("third", 20 * day, None, live=True, words="", title="<3>"),
    ]
    drawn = strip(bars, 15 * day)
    assert drawn is not None
    found = re.findall(r'<title>&lt;(\d)&gt;</title><path d="([^"]+)" class="(bar[ a-z]*)"', drawn)
    corners = {int(n): [float(x) for x in re.findall(r"[ML]([\d.]+) ", path)] for n, path, _ in found}
    assert [kind for _, _, kind in found] == ["bar", "bar live", "bar live"]
    today = re.search(r'<line x1="([\d.]+)"[^>]*class="today"', drawn)
    assert today is not None
    per_day = (max(corners[1]) - min(corners[1])) / 10
    assert max(corners[2]) - min(corners[2]) == pytest.approx(25 * per_day, abs=0.2)
    assert float(today[1]) - min(corners[1]) == pytest.approx(15 * per_day, abs=0.2)
    assert (len(corners[2]), len(corners[3])) == (4, 5)
    assert max(corners[3]) >= max(corners[2])
    assert strip([], 0) is None


def test_a_graph_has_every_vertex_below_what_it_comes_from() -> None:
    """And an arrow that was cut is broken."""
    vertices = [Vertex(number, f"<{number}>", number == 3) for number in range(4)]
    drawn = layered(vertices, [Edge(0, 2, cut=False), Edge(1, 2, cut=True), Edge(2, 3, cut=False)])
    assert drawn is not None
    tops = {int(n): float(y) for y, n in re.findall(r'<rect x="[-\d.]+" y="([\d.]+)"[^>]*><title>&lt;(\d)&gt;', drawn)}
    assert tops[0] == tops[1] < tops[2] < tops[3]
    assert (drawn.count('class="arrow"'), drawn.count('class="arrow cut"')) == (2, 1)
    assert layered(vertices, []) is None


def test_versions_differ_where_a_field_does() -> None:
    """A field that one of them lacks differs; what is never shown is no field."""
    found = document_fields(
        ["new", "old"],
        [
            {"a": 1, "ends": 1_803_232_640_000, "load": {"batch_size_expected": 5, "steps": 7}},
            {"a": 1, "ends": 1_803_232_640_000, "load": {"steps": 8}, "b": [{"c": True, "key": {"x": "AAAA"}}]},
        ],
    )
    assert dict(found.rows) == {
        "a": ("1", "1"),
        "b[0].c": ("–", "yes"),
        "ends": ("2027-02-21 17:57 UTC", "2027-02-21 17:57 UTC"),
        "load.steps": ("7", "8"),
    }
    assert found.changed == {"load.steps", "b[0].c"}
