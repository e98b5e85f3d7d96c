"""The checks of a decision: what a sentence shows never reads as the other outcome."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.checks.findings import TEXT_MAX, Findings

AMOUNTS = st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**24)


def test_a_decision_without_a_check_denies() -> None:
    """And so does one of which a single check fails."""
    findings = Findings()
    assert not findings.verdict().permit
    findings.passed("first", "passes")
    assert findings.verdict().permit
    findings.failed("second", "fails")
    findings.passed("third", "passes")
    assert not findings.verdict().permit


@given(AMOUNTS, AMOUNTS)
def test_a_cost_is_shown_rounded_up_and_on_its_side_of_the_maximum(value: Fraction, most: Fraction) -> None:
    """What is shown is never below the cost; a cost within its maximum never reads as above it."""
    findings = Findings()
    findings.at_most("epsilon", "the run's ε", value, most, "policy")
    (check,) = findings.checks
    assert check.passed == (value <= most)
    shown = Fraction(re.split(r"[ ]", check.text.removeprefix("the run's ε "))[0])
    assert value <= shown <= value + Fraction(1, 10**4)
    if value <= most - Fraction(1, 10**17):
        assert shown <= most


@given(AMOUNTS)
def test_a_cost_at_its_maximum_is_within_it(most: Fraction) -> None:
    """By as little as there is beyond it, it is not."""
    findings = Findings()
    findings.at_most("epsilon", "ε", most, most, "")
    findings.at_most("epsilon", "ε", most + Fraction(1, 10**60), most, "")
    findings.at_least("records", "records", most, most, "")
    findings.at_least("records", "records", most - Fraction(1, 10**60), most, "")
    assert [one.passed for one in findings.checks] == [True, False, True, False]


@pytest.mark.parametrize(
    ("value", "wanted", "text"),
    [
        (1, 1, "x is 1"),
        ("1", 1, 'x is "1", not 1'),
        (True, 1, "x is true, not 1"),
        (None, "none", 'x is None, not "none"'),
    ],
)
def test_a_value_of_another_type_is_another_value(value: object, wanted: object, text: str) -> None:
    """And its sentence shows the difference."""
    findings = Findings()
    findings.equal("same", "x", value, wanted)
    assert [(one.passed, one.text) for one in findings.checks] == [(text == "x is 1", text)]


def test_moments_are_compared_to_the_millisecond() -> None:
    """Equal moments are not after one another, and not before."""
    findings = Findings()
    for first, last in ((0, 0), (0, 1), (1, 0)):
        findings.not_after("not_after", ("start", first), ("end", last))
        findings.before("before", ("start", first), ("end", last))
    assert [one.passed for one in findings.checks] == [True, False, True, True, False, False]


def test_a_hostile_name_is_spelled_within_bounds() -> None:
    """Also one that no canonical form can spell."""
    findings = Findings()
    findings.failed("name", "\ud800" + "ä" * 2 * TEXT_MAX)
    (check,) = findings.checks
    assert check.text.encode("utf-8") == b"?" + "ä".encode() * (TEXT_MAX - 1)
