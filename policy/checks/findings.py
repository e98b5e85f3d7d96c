"""Checks as they are made, in order. A code names the fault; ``passed`` says that the fault is absent."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from ledger.domain.gate import Caps, Check, Header, Verdict
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.checks.field_readers import format_time

EXACT_CHARACTERS_MAX: Final = 20
TEXT_MAX: Final = 400


class Findings:
    """The checks of one decision; it permits only if there is one and all passed."""

    def __init__(self) -> None:
        """Nothing checked yet."""
        self.checks: list[Check] = []

    def that(self, code: str, passed: bool, text: str, source: str = "") -> None:  # noqa: FBT001 - it is the finding
        """Note one check."""
        # A hostile name may hold a lone surrogate, which no canonical form can spell.
        spelled = text[:TEXT_MAX]
        if not spelled.isascii():
            spelled = spelled.encode("utf-8", "replace").decode("utf-8")
        self.checks.append(Check(code, passed, spelled, source))

    def passed(self, code: str, text: str, source: str = "") -> None:
        """Note a fault that is absent."""
        self.that(code, True, text, source)  # noqa: FBT003 - it is the finding

    def failed(self, code: str, text: str, source: str = "") -> None:
        """Note a fault."""
        self.that(code, False, text, source)  # noqa: FBT003 - it is the finding

    def says(self, code: str, passed: bool, subject: str, predicate: str, source: str = "") -> None:  # noqa: FBT001 - it is the finding
        """Note that a subject is, or is not, something."""
        self.that(code, passed, f"{subject} is {'' if passed else 'not '}{predicate}", source)

    def equal(self, code: str, subject: str, value: object, wanted: object, source: str = "") -> None:
        """Two values of the same type must be the same."""
        same = type(value) is type(wanted) and value == wanted
        self.that(code, same, f"{subject}: {shown(value)} {'=' if same else '!='} {shown(wanted)}", source)

    def at_most(self, code: str, subject: str, value: Fraction, most: Fraction, source: str) -> None:
        """A loss or a budget within its cap; equal is within."""
        within = value <= most
        told = _cost(value, most)
        self.that(code, within, f"{subject}: {told} {'<=' if within else '>'} {format_number(most)}", source)

    def at_least(self, code: str, subject: str, value: Fraction, least: Fraction, source: str) -> None:
        """A number, told exactly, that must reach another; equal reaches it."""
        reached = value >= least
        told = f"{subject}: {format_number(value)} {'>=' if reached else '<'} {format_number(least)}"
        self.that(code, reached, told, source)

    def one_of(self, code: str, word: str, permitted: Iterable[str], source: str) -> None:
        """A word of a list."""
        self.says(code, word in permitted, word, f"one of {', '.join(permitted)}", source)

    def count_at_most(self, code: str, subject: str, value: int, most: int, source: str) -> None:
        """A count within its cap; equal is within."""
        within = value <= most
        self.that(code, within, f"{subject}: {value} {'<=' if within else '>'} {most}", source)

    def not_after(self, code: str, earlier: tuple[str, int], later: tuple[str, int], source: str = "") -> None:
        """A moment (its name, ms) at or before another."""
        passed = earlier[1] <= later[1]
        first, last = (f"{name} {format_time(moment)}" for name, moment in (earlier, later))
        self.that(code, passed, f"{first} {'<=' if passed else '>'} {last}", source)

    def before(self, code: str, earlier: tuple[str, int], later: tuple[str, int], source: str = "") -> None:
        """A moment (its name, ms) strictly before another."""
        passed = earlier[1] < later[1]
        first, last = (f"{name} {format_time(moment)}" for name, moment in (earlier, later))
        self.that(code, passed, f"{first} {'<' if passed else '>='} {last}", source)

    def verdict(self, header: Header | None = None, caps: Iterable[tuple[str, Caps]] = ()) -> Verdict:
        """Permit if every check passed, and at least one was made."""
        permit = bool(self.checks) and all(check.passed for check in self.checks)
        return Verdict(permit, tuple(self.checks), header, tuple(caps))


def shown(value: object) -> str:
    """A value as JSON spells it, shortened, so that ``"1"`` and ``1`` look different."""
    spelled = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    return f'"{spelled[:80]}"' if isinstance(value, str) else spelled[:80]


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
