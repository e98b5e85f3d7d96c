"""The burn-down of a budget: the stretch of time that it shows, and what of runs and forecast lies in it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console.charts.burn_down import Point, burn_down, usual_window
from api.console.charts.window import Window, chosen_window
from ledger.wire.malformed import Malformed
from tests.api.console.conftest import Looked
from tests.api.console.page_addresses import addresses

HOUR_MS: Final = 3_600_000
RUNS: Final = [Point(hour * HOUR_MS, Fraction(hour), Fraction(hour + 1)) for hour in range(1, 11)]
CAPS: Final = [("budget", Fraction(12))]
NOW: Final = 11 * HOUR_MS
PARTITION_PAGE: Final = "/partitions/{provider}/{dataset}/{partition}"


def _line(drawn: str, name: str) -> list[tuple[float, float]]:
    found = re.search(rf'd="([^"]*)" class="{name}"', drawn)
    assert found is not None
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", found[1])]


def test_a_field_is_a_day_or_a_minute_in_utc() -> None:
    """One that is empty leaves the usual end; any other is refused by its name."""
    usual = Window(0, NOW)
    assert chosen_window("", "", usual) == usual
    assert chosen_window("1970-01-01T02:30", "1970-01-02", usual) == Window(150 * 60_000, 24 * HOUR_MS)
    assert chosen_window(*Window(150 * 60_000, NOW).fields(), usual) == Window(150 * 60_000, NOW)
    for first, last, field in (
        ("yesterday", "", "from"),
        ("1970-01-01T02:30Z", "", "from"),
        ("", "99999-01-01", "until"),
        ("1970-01-02", "1970-01-02", "until"),
        ("1971-01-01", "", "until"),
    ):
        with pytest.raises(Malformed) as refused:
            chosen_window(first, last, usual)
        assert refused.value.field == field


@given(st.integers(1, 10), st.integers(1, 10))
def test_a_stretch_has_its_runs_and_begins_where_they_had_come(first: int, wide: int) -> None:
    """A place to hover over for each run in it, and the line begins at the ε of the last run before it."""
    window = Window(first * HOUR_MS - 1, (first + wide) * HOUR_MS)
    drawn = str(burn_down(RUNS, CAPS, NOW, window=window))
    inside = [one for one in RUNS if window.first <= one.time <= window.last]
    assert drawn.count("<circle ") == len(inside)
    for one in inside:
        moment = datetime.fromtimestamp(one.time / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        assert f"<title>{moment} UTC: ε {one.posted} of what is posted" in drawn
    heights = [y for _, y in _line(drawn, "posted")]
    assert heights == sorted(heights, reverse=True)
    zero = _line(str(burn_down(RUNS, CAPS, NOW)), "posted")[0][1]
    if first > 1:
        assert heights[1] < zero


def test_a_forecast_reaches_as_far_ahead_as_the_runs_reach_back() -> None:
    """It squeezes neither the runs nor the caps: it ends at the top, and now is a line of its own."""
    ahead = [(NOW, Fraction(10)), (NOW + 1_000 * HOUR_MS, Fraction(1_000))]
    assert usual_window(RUNS, NOW, ahead) == Window(HOUR_MS, 2 * NOW - HOUR_MS)
    assert usual_window(RUNS, NOW) == Window(HOUR_MS, NOW)
    drawn = str(burn_down(RUNS, CAPS, NOW, ahead))
    (start, low), *_, (end, high) = _line(drawn, "forecast")
    top = min(y for _, y in _line(drawn, "posted"))
    assert start < end
    assert high < low
    assert high >= 24
    assert high < top
    assert drawn.count('class="today"') == 1
    assert burn_down(RUNS, CAPS, NOW, window=Window(0, NOW - 1)) is not None


def test_a_page_draws_the_time_that_its_form_asks_for(looked: Looked) -> None:
    """Without a script: the form holds what is drawn, a link leads to all of it, and what is no time is refused."""
    http, address = looked.browsers["SRO"], addresses(looked.pairs)[PARTITION_PAGE]
    page = http.get(address).text
    assert page.count('type="datetime-local"') == 2
    assert page.count('class="hover"') > 0
    empty = http.get(f"{address}?from=2000-01-01&until=2000-01-02").text
    assert ('value="2000-01-01T00:00"' in empty, empty.count('class="hover"')) == (True, 0)
    assert page.count("<tr>") == empty.count("<tr>")
    refused = http.get(f"{address}?from=soon")
    assert (refused.status_code, "from" in refused.text) == (422, True)
