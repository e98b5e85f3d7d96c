"""What ε means: the odds of an attacker, and the ε of one run at each δ.

For (ε, δ) and any test of whether one record was used, at a rate a of false positives the rate of true positives is at
most min(e^ε a + δ, 1 - e^-ε (1 - δ - a)) (Kairouz, Oh, Viswanath 2015, theorem 2.1); their difference is at most
(e^ε - 1 + 2 δ) / (e^ε + 1) (Humphries et al. 2023, theorem 1). All numbers are rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final

from api.console.charts.curve import Named, at_delta, epsilon_curves
from api.console.charts.tradeoff import tradeoff
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import partition, run
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import accounts
from api.routes.overviews import account_histories
from api.wire.epsilon_curve import CurvePoint, EpsilonCurve
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.wire.exact_numbers import EPSILON_MAX, format_number, parse_number
from ledger.wire.malformed import Malformed

PAGES: Final = Pages()
_RATES: Final = tuple(Fraction(1, people) for people in (1000, 100, 20, 10, 4, 2))
_PLACES: Final = 4
_EPSILON: Final = "1"
_DELTA: Final = "0.00001"
_DIGITS: Final = 60


@PAGES.page("/meaning", "What ε means", public=True)
def meaning(reader: Reader, inputs: Inputs) -> Page:
    """The odds at one ε and δ. Raises: Malformed."""
    epsilon = _given(inputs.get("epsilon") or _EPSILON, "epsilon", EPSILON_MAX)
    delta = _given(inputs.get("delta") or _DELTA, "delta", Fraction(1))
    rows = tuple((cells.share(rate), cells.share(true_positives(epsilon, delta, rate))) for rate in _RATES)
    table = Table(
        "odds",
        "An attacker that asks whether one person's record was used",
        ("Others it takes for members", "Members it finds, at most"),
        rows,
    )
    facts = [
        ("ε", cells.loss(epsilon)),
        ("δ", cells.loss(delta)),
        ("The odds change by at most a factor of", Cell(_shown(growth(epsilon)), "number")),
        ("Advantage over a guess, at most", cells.share(advantage(epsilon, delta))),
    ]
    steps = [Fraction(place, 100) for place in range(101)]
    points = [(float(step), float(true_positives(epsilon, delta, step))) for step in steps]
    chart = tradeoff(points, f"True positives by false positives at ε {cells.rounded(epsilon, up=True)}")
    given = {"epsilon": inputs.get("epsilon") or _EPSILON, "delta": inputs.get("delta") or _DELTA}
    values = {"about": facts, "chart": chart, "given": given, "runs": reader.may(accounts.list_charges)}
    return Page("meaning.html", "What ε means", (table,), values)


def _given(text: str, name: str, most: Fraction) -> Fraction:
    number = parse_number(text, name)
    if number > most:
        raise Malformed(name, f"must be at most {cells.rounded(most, up=False)}")
    return number


def growth(epsilon: Fraction) -> Fraction:
    """e^ε, rounded up."""
    context = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    number = context.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    # Decimal's own exponential is rounded half even whatever the context says: one unit more is above it.
    return Fraction(context.next_plus(context.exp(number)))


def shrinking(epsilon: Fraction) -> Fraction:
    """e^-ε, rounded down."""
    context = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    return Fraction(context.next_minus(context.divide(Decimal(1), _decimal_up(growth(epsilon)))))


def _decimal_up(number: Fraction) -> Decimal:
    context = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))


def true_positives(epsilon: Fraction, delta: Fraction, false_positives: Fraction) -> Fraction:
    """The most members that a test finds which takes so many others for members."""
    grown = growth(epsilon) * false_positives + delta
    bent = 1 - shrinking(epsilon) * (1 - delta - false_positives)
    return max(false_positives, min(Fraction(1), grown, bent))


def advantage(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The most by which true positives exceed false ones."""
    factor = growth(epsilon)
    return min(Fraction(1), (factor - 1 + 2 * delta) / (factor + 1))


def _shown(number: Fraction) -> str:
    return cells.rounded(number, up=True)


@PAGES.page("/runs/{id}/curve", "", accounts.read_charge_epsilon, account_histories.read_epsilon_curve, slow=True)
def curve(reader: Reader, inputs: Inputs) -> Page:
    """Plan, run, bound and budget by name, on the partition where the run reveals most. Raises: Malformed, Problem."""
    answer = reader.read(accounts.read_charge_epsilon, inputs.path["id"])
    found = reader.read(account_histories.read_epsilon_curve, inputs.path["id"])
    named = _named(answer, found)
    rows = tuple(
        (cells.text(one.name), cells.bound(delta), cells.loss(epsilon), cells.text(one.words))
        for one in named
        for delta, epsilon in one.points
    )
    table = Table("curve", "ε by δ", ("Of", "δ", "ε", "Which is"), rows)
    opened = reader.facts.partitions[found.partition]
    own = next(line for line in answer.run_epsilon if line.partition == found.partition)
    odds = "" if own.epsilon is None else address("meaning", **_asked(own.epsilon, opened.delta))
    about = [
        ("Run", run(found.charge)),
        ("Partition", partition(opened.ref)),
        ("Its budget", cells.bound(opened.epsilon)),
        ("at δ", cells.bound(opened.delta)),
        ("ε of the run at this δ", cells.loss(own.epsilon)),
    ]
    values = {"about": about, "chart": epsilon_curves(named), "odds": odds}
    return Page("curve.html", f"ε of {found.charge} by δ", (table,), values)


def _asked(epsilon: Fraction, delta: Fraction) -> dict[str, str]:
    return {"epsilon": format_number(epsilon), "delta": format_number(delta)}


def _named(answer: ChargeEpsilon, found: EpsilonCurve) -> list[Named]:
    """What has an ε, each under its own name, as a line where it is proven at several δ."""
    delta, budget = found.budget.delta, found.budget.epsilon
    assert budget is not None
    named = [Named("plan", "of one run, whenever it stops", _proven(found.points), "posted", "disc")]
    lines = [("run", line) for line in answer.run_epsilon]
    lines += [(f"run and its ancestry, {line.runs} runs", line) for line in answer.with_ancestry]
    for name, line in lines:
        if line.partition == found.partition and line.epsilon is not None:
            named.append(
                Named(
                    name,
                    f"{at_delta(line.epsilon, delta)}, by {line.accountant}",
                    [(delta, line.epsilon)],
                    "posted",
                    "square",
                )
            )
    if found.account is not None:
        bound = found.account
        named.append(Named("bound", "on all runs, by the rule's odometer", _proven(bound.points), "second", "diamond"))
        if bound.epsilon is not None:
            named.append(
                Named(
                    "bound now",
                    f"{at_delta(bound.epsilon, delta)}, by {bound.bound}",
                    [(delta, bound.epsilon)],
                    "second",
                    "square",
                )
            )
    named.append(Named("budget", f"never exceeded: {at_delta(budget, delta)}", [(delta, budget)], "cap", "cross"))
    return [one for one in named if one.points]


def _proven(points: Sequence[CurvePoint]) -> list[tuple[Fraction, Fraction]]:
    return [(point.delta, point.epsilon) for point in points if point.epsilon is not None]
