"""A catalogue of small runs, number by number: its corners, its prices in ticks, its caps and its checkpoints."""

from __future__ import annotations

from fractions import Fraction

import pytest
from msgspec import structs

from ledger.filters import Cap, Catalogue, NoRoom, Opening
from ledger.filters.catalogue_prices import choose_prices, corners, whole_prices
from ledger.filters.step_types import StepType
from ledger.mechanisms.loss import Loss, Segment
from ledger.mechanisms.mechanism import BlackBox, Composed, Gaussian, Laplace, Mechanism, PoissonGaussian, SelfComposed
from ledger.mechanisms.price_proofs import NotPriced
from ledger.wire.exact_numbers import DELTA_ONE
from ledger.wire.malformed import Malformed

RELATION = "REPLACE_SPECIAL"
DELTA, EPSILON, SLACK = Fraction(1, 1_000), Fraction(2), DELTA_ONE // 10_000
ONE = PoissonGaussian(Fraction(1, 20), Fraction(2), 40)
OTHER = PoissonGaussian(Fraction(1, 10), Fraction(4), 30)


def opening(load: Mechanism, slack: int = 0, prices: tuple[int, ...] | None = None) -> Opening:
    """For one kind of run or several."""
    return Opening(DELTA, (EPSILON,), load, RELATION, slack, prices)


MIXED = Composed((BlackBox(Fraction(1, 10**6), Fraction(1, 16), RELATION), Laplace(Fraction(16))))
TYPES = (StepType(Fraction(2), Fraction(1, 20), 32, 1), StepType(Fraction(4), Fraction(1, 10), 60, 2))


def opened(slack: int = SLACK) -> Catalogue:
    """A budget of 19 ticks."""
    return Catalogue(DELTA, EPSILON, slack, 19, TYPES, 2)


def test_its_corners_are_as_written_down() -> None:
    """From the one that admits most of the first kind to that which admits least."""
    kinds = (
        PoissonGaussian(Fraction(1, 5), Fraction(3), 30),
        PoissonGaussian(Fraction(1, 10), Fraction(2), 40),
    )
    wide = Opening(Fraction(1, 100), (Fraction(3),), Composed(kinds), RELATION)
    found = [one.to_json() for one in corners(wide)]
    assert [[one[name] for name in ("alone", "loads", "prices", "ticks")] for one in found] == [
        [[9, 11], 5, [9, 10], 695],
        [[9, 9], 4, [3, 4], 233],
        [[9, 7], 4, [3, 5], 233],
        [[7, 12], 4, [6, 5], 364],
        [[6, 12], 4, [3, 2], 145],
    ]
    assert {tuple(one["blocks"]) for one in found if isinstance(one["blocks"], list)} == {(4, 7)}


def test_more_than_two_kinds_take_shorter_ways_to_as_many_loads() -> None:
    """One round, at most eight ticks a block for three kinds, and the best ratios once more at up to twelve.

    They are ranked on a coarser lattice; what is offered is of the rule's own.
    """
    kinds = (
        PoissonGaussian(Fraction(1, 5), Fraction(3), 30),
        PoissonGaussian(Fraction(1, 10), Fraction(2), 40),
        PoissonGaussian(Fraction(1, 4), Fraction(5), 20),
    )
    found = [one.to_json() for one in corners(Opening(Fraction(1, 100), (Fraction(3),), Composed(kinds), RELATION))]
    assert [[one[name] for name in ("alone", "loads", "prices", "ticks")] for one in found[:3]] == [
        [[9, 12, 20], 4, [6, 6, 7], 437],
        [[9, 12, 16], 3, [2, 2, 3], 145],
        [[9, 11, 25], 4, [9, 10, 9], 694],
    ]
    assert len(found) == 9


@pytest.mark.parametrize(
    ("load", "slack", "steps", "ticks", "alone"),
    [
        (ONE, 0, 8, 80, (16,)),
        (OTHER, 0, 10, 72, (24,)),
        (Composed((OTHER, structs.replace(OTHER, steps=50))), 0, 10, 72, (9,)),
        # A run of one block; of one step, of which there may be more than 256 blocks; and one step that is all.
        (structs.replace(ONE, steps=8), 0, 8, 80, (80,)),
        (structs.replace(ONE, noise_multiplier=Fraction(3, 2), steps=1), 0, 1, 311, (311,)),
        (PoissonGaussian(Fraction(1), Fraction(3, 2), 1), 0, 1, 1, (1,)),
        # The slack is no part of what ticks may use.
        (ONE, SLACK, 8, 79, (15,)),
        (ONE, 5 * SLACK, 7, 81, (13,)),
    ],
)
def test_a_single_kind_has_blocks_of_a_tick(
    load: Mechanism, slack: int, steps: int, ticks: int, alone: tuple[int, ...]
) -> None:
    """About eighty fit, and the shortest run is whole blocks."""
    found = choose_prices(opening(load, slack))
    assert [(one.steps, one.ticks) for one in found.types] == [(steps, 1)]
    assert (found.capacity, found.alone, found.loads) == (ticks, alone, alone[0])
    rule = Catalogue.choose(opening(load, slack))
    assert (rule.types, rule.capacity) == (found.types, found.capacity)
    assert (rule.delta, rule.epsilon, rule.slack, rule.odometers) == (DELTA, EPSILON, slack, 2)


def test_a_slack_that_leaves_little_leaves_one_odometer() -> None:
    """Two of them would have less than a millionth each."""
    rule = Catalogue.choose(opening(ONE, DELTA_ONE // 1_000 - DELTA_ONE * 3 // 2_000_000))
    assert (rule.capacity, rule.odometers) == (64, None)


@pytest.mark.parametrize(
    ("ratios", "most", "prices"),
    [
        ([1, 1], 12, (1, 1)),
        ([2, 1], 12, (2, 1)),
        ([1, 0.5], 12, (2, 1)),
        ([3.5, 1], 12, (7, 2)),
        # Within a twentieth one tick each will do.
        ([1, 1.04], 12, (1, 1)),
        ([1, 1.06], 12, (9, 10)),
        # No price is below a tick, and none above the most: the nearest ones then.
        ([100, 1], 12, (12, 1)),
        ([100, 1], 4, (4, 1)),
        ([0.001, 0.003], 12, (1, 3)),
    ],
)
def test_prices_are_the_smallest_whole_numbers_in_about_these_ratios(
    ratios: list[float], most: int, prices: tuple[int, ...]
) -> None:
    """The fewer ticks a block costs, the smaller is the table that each charge and replay looks into."""
    assert whole_prices(ratios, most) == prices


def test_the_prices_that_are_chosen_admit_the_most_loads() -> None:
    """Of two kinds that are all but equal one tick each, and not the larger capacity of finer prices."""
    alike = structs.replace(ONE, noise_multiplier=Fraction(201, 100))
    assert choose_prices(opening(Composed((ONE, alike)))).prices == (1, 1)


def test_blocks_of_several_kinds_are_longer() -> None:
    """At most 256 of each, so that prices of several ticks have room."""
    short = Composed((structs.replace(ONE, steps=1), structs.replace(OTHER, steps=1)))
    found = choose_prices(opening(short, prices=(1, 1)))
    assert [one.steps for one in found.types] == [3, 3]
    assert (found.capacity, found.alone, found.loads) == (214, (214, 214), 107)


@pytest.mark.parametrize("prices", [(1,), (1, 1, 1), (0, 1), (1, 65), ()])
def test_declared_prices_are_one_for_each_kind(prices: tuple[int, ...]) -> None:
    """Of 1 to 64 ticks."""
    with pytest.raises(Malformed) as refused:
        choose_prices(opening(Composed((ONE, OTHER)), prices=prices))
    assert refused.value.field == "prices"


def test_the_dearest_price_may_be_declared() -> None:
    """Of one kind, so that most of its ticks are of no use."""
    found = choose_prices(opening(ONE, prices=(64,)))
    assert (found.prices, found.alone) == ((64,), (found.capacity // (5 * 64),))


@pytest.mark.parametrize(
    ("load", "field"),
    [
        (None, "load"),
        (Composed((ONE, Laplace(Fraction(3)))), "load"),
        (Composed(tuple(structs.replace(ONE, noise_multiplier=Fraction(2 + at)) for at in range(9))), "load"),
        (PoissonGaussian(Fraction(1, 2), Fraction(1, 100), 1), "epsilon"),
        (Composed(tuple(PoissonGaussian(Fraction(1, 2), Fraction(10 + at, 1_000), 1) for at in range(8))), "epsilon"),
    ],
)
def test_a_load_without_types_is_named(load: Mechanism | None, field: str) -> None:
    """None, one of other steps, of nine kinds, one of which no step fits, and one of eight such kinds."""
    with pytest.raises(Malformed) as refused:
        choose_prices(Opening(DELTA, (EPSILON,), load, RELATION))
    assert refused.value.field == field


def test_prices_that_leave_no_room_are_named() -> None:
    """A block that costs more than the budget has."""
    with pytest.raises(Malformed) as refused:
        choose_prices(Opening(DELTA, (Fraction(1, 100),), structs.replace(ONE, steps=1), RELATION, 0, (64,)))
    assert refused.value.field in {"prices", "epsilon"}


@pytest.mark.parametrize(
    ("mechanism", "segment"),
    [
        (ONE, Segment(40, (1, 0), 32)),
        (structs.replace(ONE, steps=5), Segment(5, (1, 0), 5)),
        (OTHER, Segment(30, (2, 0), 30)),
        # Less than either kind: as the one that costs fewer ticks.
        (structs.replace(ONE, noise_multiplier=Fraction(4), steps=70), Segment(70, (1, 0), 32)),
        (structs.replace(ONE, noise_multiplier=Fraction(4), steps=20), Segment(20, (1, 0), 20)),
        (Laplace(Fraction(8)), Segment(1, (2, 0))),
        (Gaussian(Fraction(5)), Segment(1, (3, 0))),
        (BlackBox(Fraction(1, 10**6), Fraction(1, 8), RELATION), Segment(1, (2, 4_503_599_628))),
        (SelfComposed(2, BlackBox(Fraction(1, 10**6), Fraction(1, 16), RELATION)), Segment(2, (1, 9_007_199_255), 2)),
        # Parts of one step of a run: their δ is the slack's too.
        (SelfComposed(2, MIXED), Segment(2, (1, 9_007_199_255), 2)),
    ],
)
def test_its_prices_are_as_written_down(mechanism: Mechanism, segment: Segment) -> None:
    """In blocks of a type, or of the whole piece; each is accepted, and half of it or one unit of δ less is not."""
    rule = opened()
    assert rule.segments(mechanism, RELATION) == (segment,)
    assert rule.covers((segment,), mechanism, RELATION)
    ticks, units = segment.price
    assert ticks is not None
    assert units is not None
    less = [segment._replace(price=(ticks // 2, units))] if ticks > 1 else []
    less += [segment._replace(price=(ticks, units - 1))] if units else []
    wrong = [segment._replace(steps=segment.steps + 1), segment._replace(unit=segment.unit + 1)]
    assert not any(rule.covers((one,), mechanism, RELATION) for one in (*less, *wrong))
    assert not rule.covers((), mechanism, RELATION)
    # What is infinite is no less than anything, as a whole.
    assert rule.covers((segment._replace(price=(None, units), unit=segment.steps),), mechanism, RELATION)


def test_what_pays_nowhere_has_no_price() -> None:
    """A loss beyond the whole budget; and what is no proof in this rule."""
    with pytest.raises(NotPriced):
        opened().segments(Laplace(Fraction(1, 2)), RELATION)
    with pytest.raises(NotPriced):
        opened().segments(ONE, "REPLACE_ONE")
    with pytest.raises(NotPriced):
        opened().covers((), ONE, "REPLACE_ONE")


def test_a_cap_has_the_ticks_that_keep_it() -> None:
    """And no cap has more than the budget's; one without a single block names the least ε that has one."""
    rule = opened()
    caps = {Fraction(2): 19, Fraction(3): 19, Fraction(1): 5, Fraction(1, 2): 1}
    assert {epsilon: rule.cap(epsilon).capacity for epsilon in caps} == {
        epsilon: (ticks, SLACK) for epsilon, ticks in caps.items()
    }
    with pytest.raises(NoRoom) as refused:
        rule.cap(Fraction(1, 4))
    assert float(refused.value.least) == pytest.approx(0.375, abs=1e-6)
    assert rule.cap(refused.value.least + Fraction(1, 50)).capacity[0] == 1


@pytest.mark.parametrize(
    ("epsilon", "capacity", "kept"),
    [
        (EPSILON, (19, SLACK), True),
        (EPSILON, (20, SLACK), False),
        (EPSILON, (19, SLACK + 1), False),
        (EPSILON, (20, SLACK + 1), False),
        (EPSILON, (None, None), True),
        (EPSILON, (0, SLACK), True),
        (Fraction(3), (19, None), True),
        (Fraction(1), (5, SLACK), True),
        (Fraction(1), (6, SLACK), False),
    ],
)
def test_a_recorded_cap_is_kept_or_not(epsilon: Fraction, capacity: tuple[int | None, ...], kept: bool) -> None:  # noqa: FBT001 - drawn by name
    """By its ticks at its own ε, by its slack, and never beyond the budget's own."""
    assert opened().keeps(Cap(epsilon, capacity)) is kept
    assert opened(0).keeps(Cap(epsilon, (capacity[0], 0))) or not kept


def test_its_checkpoints_are_as_written_down() -> None:
    """At a tenth of half of δ; none beyond twice the budget, and none where the slack is overdrawn."""
    rule = opened()
    assert rule.price_line.most == 38
    reached = {1: 0.781_25, 2: 0.781_25, 5: 1.25, 10: 1.802_083_33, 19: 2.552_083_33, 38: 3.489_583_33}
    for ticks, epsilon in reached.items():
        assert float(rule.odometer(Loss((ticks, SLACK), (0, 0)))) == pytest.approx(epsilon, abs=1e-6)
    assert rule.odometer(Loss((0, SLACK), (0, 0))) == 0
    for loss in (Loss((39, 0), (0, 0)), Loss((1, SLACK + 1), (0, 0)), Loss((1, 0), (1, 0)), Loss((1, 0), (0, 1))):
        with pytest.raises(ArithmeticError):
            rule.odometer(loss)
