"""The rule ``catalogue``: what it admits, what it charges, and an adversary that tries every strategy against it."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import log
from typing import Any

import pytest
from msgspec import structs

from ledger.accounting.loss_potential import Potential, lattice_step
from ledger.filters import Catalogue, Opening, choose_rule, read_rule
from ledger.filters.catalogue_prices import Corner, corners
from ledger.filters.odometer_checkpoints import checkpoint
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.mechanisms.mechanism import (
    BlackBox,
    Composed,
    Gaussian,
    Group,
    Laplace,
    Mechanism,
    PoissonGaussian,
    Pure,
    SelfComposed,
)
from ledger.mechanisms.price_proofs import NotPriced
from ledger.wire.canonical_json import Json, dump
from ledger.wire.exact_numbers import DELTA_ONE
from ledger.wire.malformed import Malformed
from policy.cli.text_report import price_lines
from tests.documentation.fenced_blocks import ROOT
from tests.ledger.filters.game import Charging, Game, Run
from tests.ledger.filters.lattice_laws import BASE, BUDGET, POINTS, laws, random_pair

RELATION = "REPLACE_SPECIAL"
COVID = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186)
MNIST = PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1_170)
BUNDLE = Composed((COVID, MNIST, MNIST))
DELTA, EPSILON = Fraction(1, 1483), Fraction(3)


@cache
def opened(prices: tuple[int, ...] | None = None, slack: int = 0) -> Catalogue:
    """A partition for one COVID run and two of MNIST."""
    return Catalogue.choose(Opening(DELTA, (EPSILON,), BUNDLE, RELATION, slack, prices))


@cache
def offered() -> list[Corner]:
    """The prices to choose from."""
    return corners(Opening(DELTA, (EPSILON,), BUNDLE))


def cost(rule: Catalogue, run: Mechanism) -> Loss:
    """What a whole run is charged."""
    segments = rule.segments(run, RELATION)
    return loss_of(segments, sum(one.steps for one in segments))


def fit(rule: Catalogue, run: Mechanism) -> int:
    """How many of these runs an empty account has room for."""
    return rule.runs(Loss.zero(2), rule.cap(rule.epsilon), cost(rule, run))


def test_one_plan_alone_fits_as_often_as_under_reference() -> None:
    """Thirteen COVID runs at (3, 1/1483): the privacy loss distribution allows no fourteenth."""
    rule = Catalogue.choose(Opening(DELTA, (EPSILON,), COVID))
    assert fit(rule, COVID) == 13
    assert fit(rule, SelfComposed(13, COVID)) == 1


def test_one_catalogue_is_good_for_both_and_for_the_mixture() -> None:
    """Twelve COVID runs, or twelve pairs of MNIST's, or six bundles of both: other rules admit three bundles."""
    assert (12, 12, 6) in [(*one.alone, one.loads) for one in offered()]
    rule = opened((1, 1))
    assert (fit(rule, COVID), fit(rule, MNIST), fit(rule, BUNDLE)) == (12, 25, 6)


def test_what_is_admitted_is_what_the_corner_says() -> None:
    """Each price line that is offered, against the rule that it opens."""
    for one in offered():
        rule = opened(one.prices)
        pair = Composed((MNIST, MNIST))
        assert (fit(rule, COVID), fit(rule, pair), fit(rule, BUNDLE)) == (*one.alone, one.loads)


def test_what_is_offered_is_what_the_guide_shows() -> None:
    """Line by line."""
    assert "\n".join(price_lines(offered())) in (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")


def test_a_cap_below_the_budget_has_fewer_ticks() -> None:
    """One price serves all caps: each has its own number of ticks, and none more than the budget's."""
    rule = opened()
    caps = [rule.cap(Fraction(one)).capacity[0] or 0 for one in (1, 2, 3, 4)]
    assert caps == sorted(caps)
    assert caps[2] == caps[3] == rule.capacity
    assert 0 < caps[0] < caps[1] < caps[2]


def test_a_block_that_has_begun_counts_whole() -> None:
    """Refunds are whole blocks: a run stopped in a block has paid for all of it."""
    rule = opened()
    block = rule.types[0]
    segments = rule.segments(COVID, RELATION)
    charged = [loss_of(segments, ran).finite[0] for ran in (0, 1, block.steps, block.steps + 1)]
    assert charged == [0, block.ticks, block.ticks, 2 * block.ticks]


def test_less_than_a_listed_step_is_charged_as_the_type() -> None:
    """More noise or rarer sampling: the same ticks; less noise: a price of its own, and more of them."""
    rule = opened()
    quieter = PoissonGaussian(COVID.probability, COVID.noise_multiplier * 2, COVID.steps)
    louder = PoissonGaussian(COVID.probability, COVID.noise_multiplier * Fraction(9, 10), COVID.steps)
    assert cost(rule, quieter) == cost(rule, COVID)
    assert cost(rule, louder).finite[0] > cost(rule, COVID).finite[0]
    assert rule.segments(louder, RELATION)[0].unit == COVID.steps


def test_what_is_not_listed_has_a_price_in_ticks() -> None:
    """Runs that fit, seen: a Gaussian of noise 5 nearly as often as under Rényi's rule, and small pure losses too."""
    rule = opened((1, 1))
    runs = {
        one: fit(rule, one) for one in (Gaussian(Fraction(5)), Laplace(Fraction(10)), Pure(Fraction(1, 10), RELATION))
    }
    assert runs[Gaussian(Fraction(5))] >= 12
    assert runs[Laplace(Fraction(10))] == runs[Pure(Fraction(1, 10), RELATION)] == 37


def test_the_delta_of_a_black_box_goes_to_the_slack() -> None:
    """Its pure part costs ticks as a pure loss does; without slack there is no room for it."""
    box, pure = BlackBox(Fraction(1, 10**5), Fraction(1, 10), RELATION), Pure(Fraction(1, 10), RELATION)
    kept, without = opened((1, 1), DELTA_ONE // 10_000), opened((1, 1))
    assert cost(kept, box).finite == (cost(kept, pure).finite[0], -(-DELTA_ONE // 10**5))
    assert fit(kept, box) == 9
    assert fit(without, box) == 0


@pytest.mark.parametrize("run", [Group(2, COVID), Group(3, Gaussian(Fraction(9)))], ids=repr)
def test_groups_are_refused(run: Mechanism) -> None:
    """What several records of one unit lose together is another law."""
    with pytest.raises(NotPriced, match="group"):
        opened().segments(run, RELATION)


def test_a_recorded_price_is_checked_and_not_searched_for() -> None:
    """Any number of ticks that pays is accepted, and one less than the least is not; a type's price must be whole."""
    rule, gauss = opened(), Gaussian(Fraction(5))
    (own,) = rule.segments(gauss, RELATION)
    ticks = own.price[0] or 0
    assert rule.covers((own,), gauss, RELATION)
    assert rule.covers((Segment(1, (ticks + 3, 0)),), gauss, RELATION)
    assert rule.covers((Segment(1, (None, 0)),), gauss, RELATION)
    assert not rule.covers((Segment(1, (ticks // 2, 0)),), gauss, RELATION)
    (listed,) = rule.segments(COVID, RELATION)
    assert rule.covers((listed,), COVID, RELATION)
    assert not rule.covers((listed._replace(price=(rule.types[0].ticks - 1, 0)),), COVID, RELATION)
    assert not rule.covers((listed._replace(unit=2 * listed.unit),), COVID, RELATION)
    assert not rule.covers((listed, listed), COVID, RELATION)


def test_a_recorded_capacity_is_checked() -> None:
    """As it was issued, and not much more."""
    rule = opened((5, 4))
    for epsilon in (EPSILON, Fraction(3, 2)):
        cap = rule.cap(epsilon)
        assert rule.keeps(cap)
        more = (cap.capacity[0] or 0) + 2
        assert not rule.keeps(type(cap)(epsilon, (more, 0)))
    assert not rule.keeps(type(cap)(EPSILON, (1, 1)))


SAMPLED = "must be of Poisson-sampled Gaussian steps, and holds a step of"
KINDS = "must be of 1 to 8 kinds of Poisson-sampled Gaussian steps"
NINE = Composed(tuple(PoissonGaussian(Fraction(1, 99 + n), Fraction(1), 9) for n in range(9)))
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"load": None}, "load", KINDS),
    ({"load": Laplace(Fraction(3))}, "load", f"{SAMPLED} laplace"),
    (
        {"load": Composed((COVID, BlackBox(Fraction(1, 10**5), Fraction(1, 9), RELATION)))},
        "load",
        f"{SAMPLED} black_box",
    ),
    ({"load": Composed((COVID, Group(2, MNIST)))}, "load", f"{SAMPLED} group"),
    ({"load": NINE}, "load", KINDS),
    ({"load": PoissonGaussian(Fraction(1), Fraction(1, 50), 1)}, "epsilon", r"has no room for one step of noise 0\.02"),
    ({"relation": "REPLACE_ONE"}, "relation", "has no proven dominating pair"),
    ({"delta": Fraction(1, 2 * 10**6)}, "delta", "must be at least 1e-6 beyond the slack"),
    ({"slack": DELTA_ONE // 1484}, "delta", "must be at least 1e-6 beyond the slack"),
    ({"prices": (1,)}, "prices", "must be 2, one for each kind of step"),
    ({"prices": (1, 65)}, "prices", "must be 1 to 64 ticks each"),
    ({"prices": (0, 1)}, "prices", "must be 1 to 64 ticks each"),
    ({"delta": Fraction(0)}, "rule", "for a budget with δ = 0"),
]


@pytest.mark.parametrize(("changes", "field", "rule"), BAD, ids=repr)
def test_what_it_cannot_open_with_is_refused_by_name(changes: dict[str, Any], field: str, rule: str) -> None:
    """The error names what was declared, and what it must be."""
    good: dict[str, Any] = {"delta": DELTA, "caps": (EPSILON,), "load": BUNDLE, "relation": RELATION, "slack": 0}
    with pytest.raises(Malformed, match=rule) as error:
        choose_rule("catalogue", Opening(**{**good, **changes}))
    assert error.value.field == field


def test_prices_under_which_a_kind_never_runs_are_named() -> None:
    """Seven ticks, and 64 for a block of the second kind; what is offered has room for each."""
    load = Composed((Gaussian(Fraction(3)), MNIST))
    requested = Opening(DELTA, (EPSILON,), load, RELATION, 0, (1, 64))
    rule = Catalogue.choose(requested)
    with pytest.raises(Malformed, match=r"no room for one block: it costs 64 ticks, and there are 7$") as error:
        rule.require_blocks(rule.capacity)
    assert error.value.field == "prices[1]"
    rule.require_blocks(64)
    for one in corners(requested._replace(prices=None)):
        Catalogue.choose(requested._replace(prices=one.prices)).require_blocks(one.capacity)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("types", []),
        ("types", [{"noise_multiplier": "1", "probability": "0.1", "steps": 0, "ticks": 1}]),
        ("types", [{"noise_multiplier": "1", "probability": "0.1", "steps": 1, "ticks": 65}]),
        ("types", [{"noise_multiplier": "1", "probability": "2", "steps": 1, "ticks": 1}]),
        ("types", [{"noise_multiplier": "0", "probability": "0.1", "steps": 1, "ticks": 1}]),
        ("types", [{"noise_multiplier": "1", "probability": "0.1", "steps": 1, "ticks": 0}]),
        ("types", [{"noise_multiplier": "1", "probability": f"0.{n}", "steps": 1, "ticks": 1} for n in range(1, 10)]),
        ("capacity", 0),
        ("capacity", 1_025),
        ("slack", -1),
        ("delta", "0.0000001"),
    ],
    ids=repr,
)
def test_hostile_terms_are_refused_by_name(field: str, value: Json) -> None:
    """One change to good terms; the error names the field."""
    with pytest.raises(Malformed, match=rf"^terms.{field}"):
        read_rule(dump({**opened().to_json(), field: value}).decode())


# An adversary, written apart from the rule, on mechanisms whose losses lie on the potential's lattice.


def within(ticks: int) -> Callable[[Loss], bool]:
    """What a count of ticks admits."""
    return lambda loss: loss.finite[0] <= ticks


def always(epsilon: float) -> Callable[[Loss], float]:
    """An ε that is told whatever was charged."""
    return lambda _: epsilon


def attacked(seed: int) -> tuple[float, float, float]:
    """Random types in blocks of one or two steps, runs of several blocks, two at a time, stopped and refunded."""
    source = random.Random(seed)  # noqa: S311 - the same catalogues every time
    library = [random_pair(source) for _ in range(source.randint(1, 3))]
    sizes = [source.randint(1, 2) for _ in library]
    prices = [source.randint(1, 4) for _ in library]
    ticks = source.randint(4, 9)
    delta = Fraction(1, 100)
    blocks = [(laws(pair.times(size)), price) for pair, size, price in zip(library, sizes, prices, strict=True)]
    potential = Potential(BUDGET, delta, blocks)
    assert potential.step * POINTS == pytest.approx(log(BASE), rel=1e-9)
    runs = [Run(place, sizes[place] * source.randint(1, 2)) for place in range(len(library))]
    charges = tuple(
        tuple(Loss((prices[run.mechanism] * -(-ran // sizes[run.mechanism]),), (0,)) for ran in range(run.steps + 1))
        for run in runs
    )
    game = Game.explore(Charging(charges, within(ticks)), runs, together=2)
    # A cap of a few steps below the budget, so that a short game reaches it.
    told = source.choice([1.5, 2.5, 4.0]) * log(BASE)
    reached = game.reached(library, always(told))
    single = [Run(place, sizes[place]) for place in range(len(library))]
    plain = tuple((Loss((0,), (0,)), *(Loss((prices[at],), (0,)),) * sizes[at]) for at in range(len(library)))
    alone = Game.explore(Charging(plain, within(ticks)), single).reached(library, always(told))
    return max(reached, alone), potential.at(ticks, float(BUDGET) - told), ticks * float(delta) * 2**-19


def test_the_adversary_reaches_the_potential_and_never_passes_it() -> None:
    """Over random catalogues: never more than V, and at least 0.99 of it."""
    for seed in range(40):
        reached, value, tolerance = attacked(seed)
        assert reached <= value * (1 + 1e-9)
        assert reached >= 0.99 * (value - tolerance) - 1e-12


def test_what_is_not_listed_is_paid_in_full() -> None:
    """Mechanisms of no type, at their prices, mixed with the types in any order: still never more than V."""
    priced = 0
    for seed in range(40):
        source = random.Random(1_000 + seed)  # noqa: S311 - the same catalogues every time
        listed, other = random_pair(source), random_pair(source)
        delta, ticks, price = Fraction(1, 100), source.randint(5, 8), source.randint(1, 2)
        potential = Potential(BUDGET, delta, [(laws(listed), price)])
        own = potential.price(laws(other), ticks)
        if own is None:
            continue
        priced += 1
        assert potential.pays(laws(other), own, ticks)
        runs, prices = [Run(0, 1), Run(1, 1)], [Loss((price,), (0,)), Loss((own,), (0,))]
        game = Game.explore(Charging.per_step(runs, prices, within(ticks)), runs, together=2)
        for steps in (0.5, 2.5, 6.0):
            told = steps * log(BASE)
            value = potential.at(ticks, float(BUDGET) - told)
            assert game.reached([listed, other], always(told)) <= value * (1 + 1e-9)
    assert priced >= 12


def test_a_price_that_is_too_low_is_beaten() -> None:
    """One tick less than the least that pays, and some strategy passes V at some place: the price is no mere habit."""
    beaten = 0
    for seed in range(30):
        source = random.Random(2_000 + seed)  # noqa: S311 - the same catalogues every time
        listed, other = random_pair(source), random_pair(source)
        potential = Potential(BUDGET, Fraction(1, 10**4), [(laws(listed), 2)])
        own = potential.price(laws(other), 8)
        if own is None or own == 1:
            continue
        runs, prices = [Run(0, 1), Run(1, 1)], [Loss((2,), (0,)), Loss((own - 1,), (0,))]
        for ticks in range(own - 1, 9):
            game = Game.explore(Charging.per_step(runs, prices, within(ticks)), runs)
            for steps in range(12):
                told = steps * log(BASE)
                reached = game.reached([listed, other], always(told))
                beaten += reached > potential.at(ticks, float(BUDGET) - told) * (1 + 1e-6)
    assert beaten > 10


def test_a_type_would_cost_as_much_at_a_price_of_its_own() -> None:
    """The price of anything is the least that pays for it wherever it runs; a type's own is exactly that."""
    for seed in range(10):
        pair = random_pair(random.Random(seed))  # noqa: S311 - the same every time
        assert Potential(BUDGET, Fraction(1, 100), [(laws(pair), 3)]).price(laws(pair), 20) == 3


def at_checkpoints(potential: Potential, ticks: int, delta: Fraction) -> Callable[[Loss], float]:
    """The odometer's ε: of the next checkpoint, at its share of δ."""

    def told(loss: Loss) -> float:
        if not loss.finite[0]:
            return 0.0
        reached = checkpoint(loss.finite[0], ticks)
        found = potential.bound(reached.at, delta * reached.weight)
        assert found is not None
        return found

    return told


def test_the_odometer_is_never_beaten() -> None:
    """Told at the end, whichever way the analyst went: within δ, at checkpoints that share it."""
    for seed in range(12):
        source = random.Random(3_000 + seed)  # noqa: S311 - the same catalogues every time
        library, prices = [random_pair(source), random_pair(source)], [1, source.randint(1, 3)]
        ticks, delta = 8, Fraction(1, 20)
        blocks = [(laws(pair), price) for pair, price in zip(library, prices, strict=True)]
        potential = Potential(BUDGET, delta, blocks)

        runs = [Run(0, 1), Run(1, 1)]
        charges = [Loss((price,), (0,)) for price in prices]
        game = Game.explore(Charging.per_step(runs, charges, within(ticks)), runs)
        assert game.reached(library, at_checkpoints(potential, ticks, delta)) <= float(delta) * (1 + 1e-9)


def test_the_bound_of_the_potential_is_its_least_epsilon() -> None:
    """At the ε that is told the potential is within δ, and one point of the lattice less it is not."""
    source = random.Random(7)  # noqa: S311 - the same catalogue every time
    delta = Fraction(1, 20)
    potential = Potential(BUDGET, delta, [(laws(random_pair(source)), 1)])
    for ticks in (1, 2, 5):
        for share in (Fraction(1), Fraction(1, 2), Fraction(1, 10), Fraction(1, 1000)):
            told = potential.bound(ticks, delta * share)
            assert told is not None
            assert potential.at(ticks, float(BUDGET) - told) <= delta * share
            less = potential.at(ticks, float(BUDGET) - told + potential.step * 1.5)
            assert less > delta * share or told <= 1e-9
            assert told >= (potential.bound(ticks, delta) or 0.0)
    assert potential.bound(2, Fraction(1)) == 0.0
    assert potential.bound(2, Fraction(0)) is None


def test_beyond_what_prices_hold_up_to_no_epsilon_is_reported() -> None:
    """Up to twice the capacity, each checkpoint at its own part of δ by the same potential; then none."""
    rule = opened()
    told = [rule.odometer(Loss((ticks, 0), (0, 0))) for ticks in (rule.capacity, 2 * rule.capacity)]
    whole = [float(found) for found in told]
    assert whole[0] < whole[1]
    assert whole[0] >= float(structs.replace(rule, odometers=None).odometer(Loss((rule.capacity, 0), (0, 0))))
    with pytest.raises(ArithmeticError, match="no finite"):
        rule.odometer(Loss((2 * rule.capacity + 1, 0), (0, 0)))


def test_the_lattice_has_the_budget_on_it() -> None:
    """ε is a whole number of points, for budgets small and large."""
    for epsilon in (Fraction(1, 100), Fraction(3), Fraction(64)):
        points = float(epsilon) / lattice_step(epsilon)
        assert points == pytest.approx(round(points), abs=1e-9)
        assert points >= 192
