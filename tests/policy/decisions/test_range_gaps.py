"""Periods that a range goes over: those missed are named, and the search for them ends, whatever a name is."""

from typing import Any

import pytest

from policy.checks.calendar_periods import WEEK
from tests.factories.decision_facts import decide
from tests.factories.decision_scene import PARTITION, STREAM
from tests.factories.people import HOSPITAL


def _faults(period: str, *names: str) -> list[str]:
    """What a charge over a range from the first to the last of these partitions finds; the last is a slice."""
    stream = {**STREAM, "period": period, "window_max": 1024}
    partitions: list[Any] = [
        {**PARTITION, "name": name, "index": 10 + 10 * place, "run": "2"} for place, name in enumerate(names)
    ]
    named = {"dataset": f"{HOSPITAL}/digits", "first": names[0], "last": names[-1]}
    change = {
        "streams": [stream],
        "stream_indexes": [15],
        "partitions": partitions,
        "body|partitions": [],
        "body|ranges": [named],
    }
    return [one.text for one in decide("charge", change).checks if one.code == "range_has_gaps"]


@pytest.mark.parametrize(
    ("names", "missed"),
    [
        (("2026-W20", "2026-W21"), None),
        (("2026-W20", "2026-W22"), "2026-W21:"),
        (("2026-W20", "2026-W43"), "2026-W39, 2026-W40 and 2 more"),
        # What opened before the stream may be called anything.
        (("9999-W10", "2026-W21"), None),
        (("2026-W21", "2026-W21x"), None),
        (("first", "2026-W21"), None),
        (("0001-W01", "2026-W21"), "and 9980 more"),
    ],
)
def test_what_was_missed_is_named_and_the_search_ends(names: tuple[str, ...], missed: str | None) -> None:
    """At most so many periods are looked at, whatever an older partition is called."""
    found = _faults(WEEK, *names)
    assert bool(found) is (missed is not None)
    assert missed is None or missed in found[0]


def test_a_range_ends_before_the_gap_that_is_no_part_of_it() -> None:
    """What opened after its last partition is not looked at."""
    partitions: list[Any] = [
        {**PARTITION, "name": name, "index": 20 + place, "run": "2"}
        for place, name in enumerate(("2026-W20", "2026-W21", "2026-W23"))
    ]
    named = {"dataset": f"{HOSPITAL}/digits", "first": "2026-W20", "last": "2026-W21"}
    change = {
        "streams": [{**STREAM, "window_max": 1024}],
        "stream_indexes": [15],
        "partitions": partitions,
        "body|partitions": [],
        "body|ranges": [named],
    }
    assert not any(one.code == "range_has_gaps" for one in decide("charge", change).checks)
    named["last"] = "2026-W23"
    assert any(one.code == "range_has_gaps" for one in decide("charge", change).checks)


def test_alike_partitions_of_a_range_are_checked_once_under_one_name() -> None:
    """Of its dataset, from the first to the last."""
    partitions: list[Any] = [
        {**PARTITION, "name": name, "index": 20 + place, "run": "2"}
        for place, name in enumerate(("2026-W20", "2026-W21"))
    ]
    named = {"dataset": f"{HOSPITAL}/digits", "first": "2026-W20", "last": "2026-W21"}
    change = {
        "streams": [{**STREAM, "window_max": 1024}],
        "stream_indexes": [15],
        "partitions": partitions,
        "body|partitions": [],
        "body|ranges": [named],
    }
    texts = [one.text for one in decide("charge", change).checks if one.code == "partition_retired"]
    assert texts == [f"{HOSPITAL}/digits[2026-W20..2026-W21] is open"]
