"""Ranges as people name them: which partitions a name stands for, and which names are none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ledger.domain.range_names import RANGE_PATTERN, Opened, OpenPartitions, with_ranges
from ledger.wire.malformed import Malformed

CLAIMS = "did:web:h.example/claims"
WEEKS = ["2026-W50", "2026-W51", "2026-W53", "2027-W01", "2027-W02"]
KNOWN = OpenPartitions(
    lambda: [
        # In no order: the index says which opened first.
        *(Opened(f"did:web:{one}.example/scans/v1.{one}", 9, closed=False) for one in "ab"),
        *(Opened(f"{CLAIMS}/{week}", place, closed=week == "2027-W01") for place, week in enumerate(WEEKS)),
    ]
)
GOOD = {
    "claims[2026-W50..2026-W51]": [("2026-W50", "2026-W51")],
    f"{CLAIMS}[2027-W02..2026-W50]": [("2027-W02", "2026-W50")],
    # A period was missed, and a slice is retired.
    "claims[last 4]": [("2026-W50", "2026-W51"), ("2026-W53", "2026-W53"), ("2027-W02", "2027-W02")],
    "did:web:a.example/scans[v1.a..v1.a]": [("v1.a", "v1.a")],
    "did:web:b.example/scans[last 1]": [("v1.b", "v1.b")],
}
WRONG = {
    "claims[last 5]": "has 4 open partitions",
    "claims[last 0]": "must be",
    "claims[last]": "must be",
    "claims[2026-W50]": "must be",
    "claims[2026-W50..]": "must be",
    f"{CLAIMS}/2026-W50[last 2]": "must be",
    "scans[last 1]": "of 2 providers: name its provider too",
    "none[last 1]": "of 0 providers: no partition of it is open",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_name_stands_for_ranges(name: str) -> None:
    """One for each row of partitions without a gap; what was listed or ranged before stays."""
    body: Any = with_ranges({"partitions": ["one", name, "two"], "ranges": ["other"], "plan": 1}, KNOWN)
    assert (body["partitions"], body["plan"], body["ranges"][0]) == (["one", "two"], 1, "other")
    assert [(one["first"], one["last"]) for one in body["ranges"][1:]] == GOOD[name]
    assert re.fullmatch(RANGE_PATTERN, name)


@pytest.mark.parametrize("name", WRONG)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    """By its place."""
    with pytest.raises(Malformed, match=re.escape(WRONG[name])) as refused:
        with_ranges({"partitions": ["one", name]}, KNOWN)
    assert refused.value.field == "partitions[1]"
    assert bool(re.fullmatch(RANGE_PATTERN, name)) == (WRONG[name] != "must be")


@pytest.mark.parametrize("named", [["one"], [], None, [1], "claims[last 4]"])
def test_a_body_without_ranges_stays(named: Any) -> None:  # noqa: ANN401 - JSON
    """What is wrong in it, the service says."""
    body = {"partitions": named}
    assert with_ranges(body, KNOWN) is body
