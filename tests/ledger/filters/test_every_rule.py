"""One suite that every admission rule passes: monotone, exact at its capacity, refundable, read back as written."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ledger.filters import Cap, Opening, Rule, choose_rule, read_rule
from ledger.filters.odometer_checkpoints import WITHIN, checkpoint
from ledger.filters.rule import SLACK
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import BlackBox, Gaussian, Mechanism, PoissonGaussian, Pure
from ledger.mechanisms.price_proofs import NotPriced
from ledger.wire.canonical_json import dump
from ledger.wire.exact_numbers import DELTA_ONE
from ledger.wire.malformed import Malformed

DELTA, EPSILON = Fraction(1, 1000), Fraction(3)
STEP = PoissonGaussian(Fraction(1, 20), Fraction(2), 50)
RELATION = "REPLACE_SPECIAL"
BOX = BlackBox(Fraction(1, 100_000), Fraction(1, 4), RELATION)


@dataclass(frozen=True)
class Opened:
    """A rule, its cap, and a run that it prices."""

    rule: Rule
    run: Mechanism

    @property
    def cap(self) -> Cap:
        """Under the whole budget."""
        return self.rule.cap(EPSILON)

    def loss(self, steps: int | None = None) -> Loss:
        """Of the run, or of its first steps."""
        segments = self.rule.segments(self.run, RELATION)
        return loss_of(segments, sum(one.steps for one in segments) if steps is None else steps)


CHOSEN: Final[dict[str, tuple[str, Opening, Mechanism]]] = {
    "renyi": ("renyi", Opening(DELTA, (EPSILON,), None), STEP),
    "renyi, its load declared": ("renyi", Opening(DELTA, (EPSILON,), STEP), STEP),
    "renyi with slack": ("renyi", Opening(DELTA, (EPSILON,), None, slack=DELTA_ONE // 4000), BOX),
    "reference": ("reference", Opening(DELTA, (EPSILON,), STEP), STEP),
    "gaussian": ("gaussian", Opening(DELTA, (EPSILON,), None), STEP),
    "gaussian without sampling": ("gaussian", Opening(DELTA, (EPSILON,), None), Gaussian(Fraction(4))),
    "catalogue": ("catalogue", Opening(DELTA, (EPSILON,), STEP), STEP),
    "catalogue with slack": ("catalogue", Opening(DELTA, (EPSILON,), STEP, slack=DELTA_ONE // 4000), BOX),
    "pure": ("renyi", Opening(Fraction(0), (EPSILON,), None), Pure(Fraction(2, 7), RELATION)),
}
"""How each rule is chosen, and a run that it prices."""


@cache
def opened(name: str) -> Opened:
    """One of them, chosen when the first test asks for it: to choose one takes longer than to test it."""
    kind, opening, run = CHOSEN[name]
    return Opened(choose_rule(kind, opening), run)


EACH = pytest.mark.parametrize("name", CHOSEN)


def times(loss: Loss, count: int) -> Loss:
    """So many of it."""
    return Loss(tuple(at * count for at in loss.finite), tuple(at * count for at in loss.infinite))


@EACH
def test_as_many_runs_are_admitted_as_are_told(name: str) -> None:
    """From any number of runs on: what is told to fit fits, and one more does not."""
    one = opened(name)
    empty, run = Loss.zero(len(one.rule.coordinates)), one.loss()
    fit = one.rule.runs(empty, one.cap, run)
    assert fit >= 1
    for ran in {0, 1, fit // 2, fit}:
        assert one.rule.admits(times(run, ran), one.cap)
        assert one.rule.runs(times(run, ran), one.cap, run) == fit - ran
    assert not one.rule.admits(times(run, fit + 1), one.cap)
    assert one.rule.runs(times(run, fit + 1), one.cap, run) == 0


@EACH
def test_the_share_tells_how_full_an_account_is(name: str) -> None:
    """0 when empty, more with every run, at most 1 while admitted, above 1 when it has no room."""
    one = opened(name)
    run = one.loss()
    fit = one.rule.runs(times(run, 0), one.cap, run)
    shares = [one.rule.share(times(run, ran), one.cap) for ran in range(fit + 2)]
    assert shares[0] == 0
    assert shares == sorted(set(shares))
    assert shares[fit] <= 1 < shares[fit + 1]


@EACH
def test_what_did_not_run_comes_back(name: str) -> None:
    """A run cut after some steps leaves room for exactly what it did not spend, and never for more."""
    one = opened(name)
    run, steps = one.loss(), sum(segment.steps for segment in one.rule.segments(one.run, RELATION))
    fit = one.rule.runs(times(run, 0), one.cap, run)
    full = times(run, fit)
    for ran in {0, 1, steps // 2, steps}:
        cut = full - run + one.loss(ran)
        assert one.rule.admits(cut, one.cap)
        assert one.rule.admits(cut + run - one.loss(ran), one.cap)
        assert one.rule.runs(cut, one.cap, run) in ({1} if one.loss(ran).empty else {0, 1})
        assert not one.rule.admits(full + run - one.loss(ran) + one.loss(ran), one.cap)


@EACH
def test_terms_read_back(name: str) -> None:
    """The rule of an open partition is the one that was opened, with the same capacity."""
    rule = opened(name).rule
    again = read_rule(dump(rule.to_json()).decode())
    assert again == rule
    assert again.cap(EPSILON) == rule.cap(EPSILON)
    assert len(rule.cap(EPSILON).capacity) == len(rule.coordinates)


@EACH
@settings(deadline=None, max_examples=30)
@given(st.data())
def test_every_test_is_monotone(name: str, data: st.DataObject) -> None:
    """What is admitted stays so when less is lost, and the greater cap allows all that the smaller does."""
    one = opened(name)
    width = len(one.rule.coordinates)
    ceilings = [2 * (bound or 1) + 1 for bound in one.cap.capacity]
    more = Loss(tuple(data.draw(st.integers(0, top)) for top in ceilings), (0,) * width)
    less = Loss(tuple(data.draw(st.integers(0, at)) for at in more.finite), (0,) * width)
    assert one.rule.admits(less, one.cap) or not one.rule.admits(more, one.cap)
    assert one.rule.share(less, one.cap) <= one.rule.share(more, one.cap)
    small = one.rule.cap(Fraction(29, 10))
    for low, high in zip(small.capacity, one.cap.capacity, strict=True):
        assert low is None or (high is not None and low <= high)
    if one.rule.admits(more, small):
        assert one.rule.admits(more, one.cap)


@EACH
def test_an_infinite_charge_closes_what_it_is_infinite_at(name: str) -> None:
    """Everywhere infinite: no room, no run fits, and no ε is told; taken away, all is as before."""
    one = opened(name)
    width = len(one.rule.coordinates)
    spike = Loss((0,) * width, (1,) * width)
    assert not one.rule.admits(spike, one.cap)
    assert one.rule.share(spike, one.cap) >= 1
    assert one.rule.runs(spike, one.cap, one.loss()) == 0
    with pytest.raises(ArithmeticError):
        one.rule.odometer(spike + one.loss())
    assert one.rule.admits(spike + one.loss() - spike, one.cap)


@EACH
def test_the_odometer_never_falls_and_starts_at_nothing(name: str) -> None:
    """With every run it tells more or the same; while the account has room it is told in finite numbers."""
    one = opened(name)
    run = one.loss()
    fit = one.rule.runs(times(run, 0), one.cap, run)
    told = [one.rule.odometer(times(run, ran)) for ran in range(0, fit + 1, max(1, fit // 6))]
    assert told[0] == 0
    assert told == sorted(told)
    assert told[-1] > 0


SLACKS = [name for name in CHOSEN if name not in {"reference", "pure"}]


@pytest.mark.parametrize("name", SLACKS)
def test_nothing_is_proven_once_the_slack_is_overdrawn(name: str) -> None:
    """All of it may be used, as the odometer's δ leaves it aside; not one unit more, nor an infinite charge to it."""
    one = opened(name)
    slack, places = one.cap.capacity[-1], len(one.rule.coordinates)
    assert slack is not None
    assert one.rule.coordinates[-1] == SLACK
    ran = (1,) * (places - 1)
    assert one.rule.odometer(Loss((*ran, slack), (0,) * places)) >= 0
    for spent, infinite in ((slack + 1, 0), (slack, 1)):
        loss = Loss((*ran, spent), (*(0,) * (places - 1), infinite))
        assert not one.rule.admits(loss, one.cap)
        with pytest.raises(ArithmeticError, match="slack"):
            one.rule.odometer(loss)


@EACH
def test_two_odometers_have_half_of_delta_each(name: str) -> None:
    """The rule's own is as a partition with half of δ beyond the slack would report it, with the same checkpoints."""
    one = opened(name)
    if one.rule.delta == 0:
        assert one.rule.odometers is None
        return
    slack = one.rule.delta - one.rule.certain
    assert one.rule.odometer_delta == one.rule.certain / 2
    whole = structs.replace(one.rule, odometers=None)
    half = structs.replace(whole, delta=slack + one.rule.certain / 2)
    assert whole.odometer_delta == one.rule.certain
    for runs in (1, 3):
        loss = times(one.loss(), runs)
        assert whole.odometer(loss) < one.rule.odometer(loss) == pytest.approx(half.odometer(loss), rel=1e-3)


@EACH
def test_a_recorded_cap_is_kept_and_a_wider_one_is_not(name: str) -> None:
    """One more unit at any coordinate is refused, and so is every capacity at an ε that has no room."""
    one = opened(name)
    assert one.rule.keeps(one.cap)
    for place, bound in enumerate(one.cap.capacity):
        # Where the capacity is searched for, a check leaves it some room.
        more = (bound or 0) + max(1, (bound or 0) >> 10)
        wider = tuple(more if other == place else at for other, at in enumerate(one.cap.capacity))
        assert not one.rule.keeps(Cap(EPSILON, wider)), place
    assert not one.rule.keeps(Cap(Fraction(1, 10**6), one.cap.capacity))


def test_checkpoints_share_delta_once() -> None:
    """Fixed beforehand, ascending past every count, their shares of δ sum to at most one, beyond the budget too."""
    for capacity in (1, 2, 3, 7, 1000, 2435):
        seen = {checkpoint(count, capacity) for count in range(1, 40 * capacity)}
        later = {checkpoint(capacity << doublings, capacity) for doublings in range(1, 60)}
        places = sorted(seen | later, key=lambda one: one.at)
        assert sum(one.weight for one in places) <= 1
        assert all(checkpoint(count, capacity).at >= count for count in range(1, 40 * capacity))
        assert len([one for one in places if one.at <= capacity]) <= WITHIN
        assert checkpoint(capacity, capacity).at == capacity


BAD = [
    ("reference", "epsilon", "0"),
    ("reference", "probability", "2"),
    ("reference", "probability", "0"),
    ("reference", "noise_multiplier", "0"),
    ("reference", "noise_multiplier", 1),
    ("reference", "v", 2),
    ("reference", "odometers", 1),
    ("renyi", "odometers", 3),
    ("gaussian", "odometers", None),
    ("pure", "odometers", 2),
    ("reference", "extra", 1),
    ("gaussian", "slack", 0),
    ("gaussian", "slack", DELTA_ONE // 1000 + 1),
    ("gaussian", "menu", []),
    ("gaussian", "menu", [1, 1]),
    ("gaussian", "menu", [0]),
    ("gaussian", "menu", ["1"]),
    ("gaussian", "menu", [DELTA_ONE // 1000]),
    ("gaussian", "menu", list(range(1, 18))),
    ("gaussian", "delta", "0"),
    ("pure", "delta", "0.1"),
    ("pure", "v", 2),
    ("renyi", "delta", "0"),
    ("pure", "kind", "basic"),
    ("pure", "kind", None),
]


@pytest.mark.parametrize(("name", "field", "value"), BAD, ids=repr)
def test_hostile_terms_are_refused_by_name(name: str, field: str, value: object) -> None:
    """One change to good terms; the fault names the field."""
    terms: Any = {**opened(name).rule.to_json(), field: value}
    with pytest.raises(Malformed, match=rf"^terms.{field}"):
        read_rule(dump(terms).decode())


OPENINGS: list[tuple[str, dict[str, Any], str]] = [
    ("counting", {}, "rule"),
    ("reference", {"load": None}, "load"),
    ("reference", {"load": Gaussian(Fraction(2)), "relation": "REPLACE_ONE"}, "relation"),
    ("reference", {"load": Pure(Fraction(1), RELATION)}, "load"),
    ("reference", {"delta": Fraction(1, 10**10)}, "delta"),
    ("reference", {"slack": 5}, "slack"),
    ("gaussian", {"delta": Fraction(1, 10**10)}, "delta"),
    ("gaussian", {"slack": DELTA_ONE // 1000 + 1}, "slack"),
    ("renyi", {"slack": DELTA_ONE // 1000 + 1}, "slack"),
    ("renyi", {"delta": Fraction(0), "slack": 5}, "slack"),
    ("reference", {"delta": Fraction(0)}, "rule"),
    ("gaussian", {"delta": Fraction(0)}, "rule"),
]


@pytest.mark.parametrize(("kind", "changes", "field"), OPENINGS, ids=repr)
def test_what_a_rule_cannot_open_with_is_refused_by_name(kind: str, changes: dict[str, Any], field: str) -> None:
    """The fault names what was declared."""
    asked: dict[str, Any] = {"delta": DELTA, "caps": (EPSILON,), "load": STEP, "relation": RELATION, "slack": 0}
    with pytest.raises(Malformed) as fault:
        choose_rule(kind, Opening(**{**asked, **changes}))
    assert fault.value.field == field


def test_slack_is_for_black_boxes() -> None:
    """A black box takes its δ from the slack, with none there is no room, and what has no black box leaves it."""
    box = BlackBox(Fraction(1, 10_000), Fraction(1, 100), RELATION)
    without, kept = choose_rule("renyi", Opening(DELTA, (EPSILON,), None)), opened("renyi with slack").rule
    loss = loss_of(without.segments(box, RELATION), 1)
    assert loss.finite[-1] == -(-DELTA_ONE // 10_000)
    assert not without.admits(loss, without.cap(EPSILON))
    assert kept.runs(Loss.zero(len(kept.coordinates)), kept.cap(EPSILON), loss) == 2
    assert kept.runs(loss, kept.cap(EPSILON), loss) == 1
    assert kept.runs(times(loss, 2), kept.cap(EPSILON), loss) == 0
    assert loss_of(kept.segments(STEP, RELATION), 50).finite[-1] == 0
    with pytest.raises(NotPriced, match="black_box"):
        opened("reference").rule.segments(box, RELATION)
