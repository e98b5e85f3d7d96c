"""The checks of a policy decision, in order: each has a stable code, a sentence with the numbers, and its source."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from ledger.domain.gate import Caps, Check, Header, Verdict
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.checks.field_readers import format_time

EXACT_CHARACTERS_MAX: Final = 20
TEXT_MAX: Final = 4_000


class Findings:
    """The checks of one decision, which permits only if there is at least one and all of them pass."""

    def __init__(self) -> None:
        """Start without checks."""
        self.checks: list[Check] = []

    def add(self, code: str, passed: bool, text: str, source: str = "") -> None:  # noqa: FBT001 - it is the finding
        """Add one check."""
        # A hostile name may hold a lone surrogate, which has no canonical form.
        shortened = text[:TEXT_MAX]
        if not shortened.isascii():
            shortened = shortened.encode("utf-8", "replace").decode("utf-8")
        self.checks.append(Check(code, passed, shortened, source))

    def passed(self, code: str, text: str, source: str = "") -> None:
        """Add a check that passes."""
        self.add(code, True, text, source)  # noqa: FBT003 - it is the finding

    def failed(self, code: str, text: str, source: str = "") -> None:
        """Add a check that fails."""
        self.add(code, False, text, source)  # noqa: FBT003 - it is the finding

    def check(self, code: str, passed: bool, subject: str, predicate: str, source: str = "") -> None:  # noqa: FBT001 - it is the finding
        """Check that a subject exists."""
        self.add(code, passed, f"{subject} is {'' if passed else 'not '}{predicate}", source)

    def equal(self, code: str, subject: str, value: object, wanted: object, source: str = "") -> None:
        """Check that a value equals the expected one, type included."""
        same = type(value) is type(wanted) and value == wanted
        self.add(code, same, f"{subject} is {shown(value)}{'' if same else f', not {shown(wanted)}'}", source)

    def at_most(self, code: str, subject: str, value: Fraction, most: Fraction, source: str) -> None:
        """Check that a loss or a budget is within its maximum; equal is within."""
        within = value <= most
        self.add(code, within, f"{subject} {_cost(value, most)} {_at_most(within)} {format_number(most)}", source)

    def at_least(self, code: str, subject: str, value: Fraction, least: Fraction, source: str) -> None:
        """Check that an exact number is at least its minimum."""
        reached = value >= least
        compared = "is at least" if reached else "is below the minimum"
        self.add(code, reached, f"{subject} {format_number(value)} {compared} {format_number(least)}", source)

    def one_of(self, code: str, word: str, permitted: Iterable[str], source: str) -> None:
        """Check that a word is in a list."""
        self.check(code, word in permitted, word, f"one of {', '.join(permitted)}", source)

    def count_at_most(self, code: str, subject: str, value: int, most: int, source: str) -> None:
        """Check that a count is within its maximum; equal is within."""
        within = value <= most
        self.add(code, within, f"{subject} {value} {_at_most(within)} {most}", source)

    def not_after(self, code: str, earlier: tuple[str, int], later: tuple[str, int], source: str = "") -> None:
        """Check that a time (its name, ms) is at or before another."""
        passed = earlier[1] <= later[1]
        first, last = (f"{name} {format_time(moment)}" for name, moment in (earlier, later))
        self.add(code, passed, f"{first} is {'not ' if passed else ''}after {last}", source)

    def before(self, code: str, earlier: tuple[str, int], later: tuple[str, int], source: str = "") -> None:
        """Check that a time (its name, ms) is strictly before another."""
        passed = earlier[1] < later[1]
        first, last = (f"{name} {format_time(moment)}" for name, moment in (earlier, later))
        self.add(code, passed, f"{first} is {'' if passed else 'not '}before {last}", source)

    def verdict(self, header: Header | None = None, caps: Iterable[tuple[str, Caps]] = ()) -> Verdict:
        """The verdict: permit if there is a check and all passed."""
        permit = bool(self.checks) and all(check.passed for check in self.checks)
        return Verdict(permit, tuple(self.checks), header, tuple(caps))


def _at_most(within: bool) -> str:  # noqa: FBT001 - it is the finding
    return "is at most" if within else "exceeds the maximum"


def shown(value: object) -> str:
    """A value as JSON spells it, shortened, so that ``"1"`` and ``1`` look different."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    return f'"{text[:80]}"' if isinstance(value, str) else text[:80]


def _cost(value: Fraction, most: Fraction) -> str:
    """Exact if short; else rounded up, to as many places as keep it on its side of the cap."""
    exact = format_number(value)
    if len(exact) <= EXACT_CHARACTERS_MAX:
        return exact
    for places in range(4, 18):
        rounded = -((-value.numerator * 10**places) // value.denominator)
        if value > most or rounded * most.denominator <= most.numerator * 10**places:
            return ceil_decimal(value, places)
    return ceil_decimal(value, 18)
