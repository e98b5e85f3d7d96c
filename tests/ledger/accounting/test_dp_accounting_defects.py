"""What dp_accounting 0.6.0 gets wrong, and that ours refuses it by name or is right.

Each test shows first that the pinned library still does it: the day it no longer does, a guard may go.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    get_epsilon_gaussian,
)
from dp_accounting.dp_event import ZCDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounting.renyi import price
from ledger.wire.malformed import Malformed
from tests.factories.mechanisms import parse_mechanism

Json = dict[str, Any]
ADD_OR_REMOVE, REPLACE_ONE, ZERO_OUT = "ADD_OR_REMOVE_ONE", "REPLACE_ONE", "REPLACE_SPECIAL"
DELTA: Final = Fraction(1, 100_000)
NAT: Final = 2**40

GAUSSIAN: Final[Json] = {"kind": "gaussian", "noise_multiplier": "1", "v": 1}
LAPLACE: Final[Json] = {"kind": "laplace", "noise_multiplier": "1", "v": 1}
RESPONSE: Final[Json] = {"buckets": 2, "kind": "randomised_response", "noise": "0.5", "v": 1}
POISSON: Final[Json] = {
    "kind": "poisson_gaussian",
    "noise_multiplier": "1",
    "probability": "0.01",
    "steps": 100,
    "v": 1,
}
NO_REPLACEMENT: Final[Json] = {
    "kind": "sampled_without_replacement",
    "noise_multiplier": "1",
    "population": 1000,
    "sample": 10,
    "steps": 1,
    "v": 1,
}
ZCDP: Final[Json] = {"kind": "zcdp", "relation": ADD_OR_REMOVE, "rho": "0.5", "v": 1, "xi": "0"}
PURE: Final[Json] = {"epsilon": "1", "kind": "pure", "relation": ADD_OR_REMOVE, "v": 1}
BLACK_BOX: Final[Json] = {"delta": "0.000001", "epsilon": "1", "kind": "black_box", "relation": ADD_OR_REMOVE, "v": 1}
FULL_BATCH: Final[Json] = {"epochs": 3, "kind": "full_batch_epochs", "noise_multiplier": "1", "v": 1}


def self_composed(mechanism: Json, count: Any) -> Json:  # noqa: ANN401 - what is no integer is tried too
    """``count`` times the same."""
    return {"count": count, "kind": "self_composed", "mechanism": mechanism, "v": 1}


def composed(*mechanisms: Json) -> Json:
    """One after another."""
    return {"kind": "composed", "mechanisms": list(mechanisms), "v": 1}


def ours(mechanism: Json, relation: str = ADD_OR_REMOVE, delta: Fraction = DELTA) -> float:
    """The ε that we tell."""
    return float(report_epsilon(parse_mechanism(mechanism), delta, relation).epsilon)


def renyi(event: DpEvent, relation: str = ADD_OR_REMOVE) -> float:
    """The ε that the library's Rényi accountant tells."""
    return float(RdpAccountant(neighboring_relation=NeighboringRelation[relation]).compose(event).get_epsilon(DELTA))


def pld(event: DpEvent, relation: str = ADD_OR_REMOVE, count: int = 1) -> float:
    """The ε that the library's PLD accountant tells."""
    return float(PLDAccountant(NeighboringRelation[relation]).compose(event, count).get_epsilon(float(DELTA)))


NO_NUMBERS = ["NaN", "nan", "Infinity", "inf", "-inf", "-1", "1e-5", "1.0", "2/4", "1_000", " 1", ""]
NUMBERS = [
    (GAUSSIAN, "noise_multiplier"),
    (LAPLACE, "noise_multiplier"),
    ({**GAUSSIAN, "kind": "discrete_gaussian"}, "noise_multiplier"),
    (FULL_BATCH, "noise_multiplier"),
    (POISSON, "noise_multiplier"),
    (POISSON, "probability"),
    (NO_REPLACEMENT, "noise_multiplier"),
    (RESPONSE, "noise"),
    (ZCDP, "rho"),
    (ZCDP, "xi"),
    (PURE, "epsilon"),
    (BLACK_BOX, "epsilon"),
    (BLACK_BOX, "delta"),
    ({"kind": "repeat_and_select", "mean": "10", "mechanism": GAUSSIAN, "shape": "0", "v": 1}, "mean"),
]
COUNTS = [
    (POISSON, "steps"),
    (NO_REPLACEMENT, "steps"),
    (NO_REPLACEMENT, "population"),
    (NO_REPLACEMENT, "sample"),
    (FULL_BATCH, "epochs"),
    (RESPONSE, "buckets"),
    (self_composed(GAUSSIAN, 5), "count"),
    ({"k": 2, "kind": "group", "mechanism": GAUSSIAN, "v": 1}, "k"),
]


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (GaussianDpEvent(math.nan), ADD_OR_REMOVE),
        (ZCDpEvent(math.nan), ADD_OR_REMOVE),
        (RandomizedResponseDpEvent(math.nan, 2), REPLACE_ONE),
        (GaussianDpEvent(math.inf), ADD_OR_REMOVE),
    ],
    ids=["gaussian", "zcdp", "randomised-response", "infinite-noise"],
)
def test_library_takes_no_number_for_no_loss(event: DpEvent, relation: str) -> None:
    """NaN and infinity cost ε = 0."""
    assert renyi(event, relation) == 0


def test_library_takes_no_number_for_some_loss() -> None:
    """Sampling without replacement prices a noise of NaN as if it were a noise."""
    assert 0 < renyi(SampledWithoutReplacementDpEvent(1000, 10, GaussianDpEvent(math.nan)), REPLACE_ONE) < 1


@pytest.mark.parametrize(
    "value",
    [*NO_NUMBERS, math.nan, math.inf, 1, 1.5, None, True, ["1"]],
)
@pytest.mark.parametrize(("mechanism", "field"), NUMBERS, ids=[f"{m['kind']}-{field}" for m, field in NUMBERS])
def test_what_is_no_number_is_refused(mechanism: Json, field: str, value: object) -> None:
    """Every field that holds a number names itself when it holds none, or another spelling of one."""
    parse_mechanism(mechanism)
    with pytest.raises(Malformed) as refusal:
        parse_mechanism({**mechanism, field: value})
    assert refusal.value.field == field


@pytest.mark.parametrize(
    ("mechanism", "field"),
    [(mechanism, field) for mechanism, field in NUMBERS if field not in {"xi", "delta"}],
    ids=[f"{m['kind']}-{field}" for m, field in NUMBERS if field not in {"xi", "delta"}],
)
def test_zero_is_refused(mechanism: Json, field: str) -> None:
    """No noise, no sample, no loss: none is a mechanism."""
    with pytest.raises(Malformed) as refusal:
        parse_mechanism({**mechanism, field: "0"})
    assert refusal.value.field == field


def test_library_takes_a_negative_count_for_a_refund() -> None:
    """One Gaussian and minus one of it cost ε = 0; half a one costs less than one."""
    one = GaussianDpEvent(1.0)
    assert renyi(ComposedDpEvent([one, SelfComposedDpEvent(one, -1)])) == 0
    assert renyi(ComposedDpEvent([SelfComposedDpEvent(one, 0.5)])) < renyi(one) - 1


def test_library_takes_no_noise_no_times_for_no_loss() -> None:
    """Zero times infinity is NaN, which costs ε = 0, with a warning that a service does not see."""
    with pytest.warns(RuntimeWarning, match="invalid value encountered in multiply"):
        assert renyi(ComposedDpEvent([SelfComposedDpEvent(GaussianDpEvent(0.0), 0)])) == 0


@pytest.mark.parametrize("value", [-1, 0, 0.5, 1.0, math.nan, math.inf, True, None, "1", "-1", [1]])
@pytest.mark.parametrize(("mechanism", "field"), COUNTS, ids=[f"{m['kind']}-{field}" for m, field in COUNTS])
def test_what_is_no_count_is_refused(mechanism: Json, field: str, value: object) -> None:
    """Every field that counts names itself unless it holds an integer of at least one."""
    parse_mechanism(mechanism)
    with pytest.raises(Malformed) as refusal:
        parse_mechanism({**mechanism, field: value})
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: composed(GAUSSIAN, inner),
        lambda inner: self_composed(inner, 2),
        lambda inner: self_composed(self_composed(inner, 2), 2),
        lambda inner: composed(composed(GAUSSIAN, inner), GAUSSIAN),
        lambda inner: {"k": 2, "kind": "group", "mechanism": inner, "v": 1},
        lambda inner: {"kind": "repeat_and_select", "mean": "10", "mechanism": inner, "shape": "1", "v": 1},
    ],
    ids=["composed", "self-composed", "twice-self-composed", "twice-composed", "group", "repeat-and-select"],
)
@pytest.mark.parametrize("inner", [self_composed(GAUSSIAN, -1), self_composed(GAUSSIAN, 0), {**GAUSSIAN, "v": 2}])
def test_a_fault_is_found_however_deep(wrap: Callable[[Json], Json], inner: Json) -> None:
    """What the library checks at the top alone, we check at every depth."""
    with pytest.raises(Malformed):
        parse_mechanism(wrap(inner))


def test_library_undercounts_an_integer_noise_inside_poisson() -> None:
    """A noise of 1 instead of 1.0 makes an ε of 81 one of 0.96."""
    wrong = renyi(PoissonSampledDpEvent(0.01, SelfComposedDpEvent(GaussianDpEvent(1), 100)))
    right = renyi(PoissonSampledDpEvent(0.01, SelfComposedDpEvent(GaussianDpEvent(1.0), 100)))
    assert wrong < 1
    assert right > 80


def test_an_integer_noise_inside_poisson_is_a_number_like_others() -> None:
    """Price and ε at a noise of 1 are those of 1.0, between those of its neighbours on either side."""
    orders = (2, 5, 8)
    low, middle, high = ({**POISSON, "noise_multiplier": noise} for noise in ("0.999999", "1", "1.000001"))
    assert ours(high) <= ours(middle) <= ours(low) <= ours(high) + 1e-4
    step = {**POISSON, "steps": 1}
    accountant = RdpAccountant(orders=list(orders))
    accountant.compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)))
    for units, rho in zip(price(parse_mechanism(step), ADD_OR_REMOVE, orders), accountant.rdp, strict=True):
        assert units is not None
        assert units / NAT == pytest.approx(float(rho), rel=1e-6, abs=1e-11)


@pytest.mark.parametrize("inner", [GAUSSIAN, self_composed(GAUSSIAN, 100)], ids=["one", "hundred"])
def test_nothing_nests_inside_a_sample(inner: Json) -> None:
    """A Poisson sample holds one Gaussian of its own: a nested mechanism is refused."""
    for form in ({**POISSON, "mechanism": inner}, {**POISSON, "noise_multiplier": inner}):
        with pytest.raises(Malformed):
            parse_mechanism(form)


@pytest.mark.parametrize("noise", ["0.7", "1", "2", "10"])
def test_a_replaced_record_doubles_the_gaussian_sensitivity(noise: str) -> None:
    """The library's Rényi accountant ignores the relation; ours tells at least the exact ε at half the noise."""
    exact = get_epsilon_gaussian(float(noise) / 2, float(DELTA))
    assert renyi(GaussianDpEvent(float(noise)), REPLACE_ONE) == renyi(GaussianDpEvent(float(noise)))
    assert renyi(GaussianDpEvent(float(noise)), REPLACE_ONE) < exact
    assert exact <= ours({**GAUSSIAN, "noise_multiplier": noise}, REPLACE_ONE) <= exact * 1.01
    (once,) = price(parse_mechanism({**GAUSSIAN, "noise_multiplier": noise}), ADD_OR_REMOVE, (6,))
    (replaced,) = price(parse_mechanism({**GAUSSIAN, "noise_multiplier": noise}), REPLACE_ONE, (6,))
    assert once is not None
    assert replaced is not None
    assert replaced / NAT == pytest.approx(4 * once / NAT, rel=1e-6)


def test_a_replaced_record_doubles_the_laplace_sensitivity() -> None:
    """Exactly 2 + 2 log(1 - δ) at scale 1, of which the library's Rényi accountant tells half."""
    exact = 2 + 2 * math.log1p(-float(DELTA))
    assert renyi(LaplaceDpEvent(1.0), REPLACE_ONE) < 1.01
    assert exact <= ours(LAPLACE, REPLACE_ONE) <= exact * 1.01
    (replaced,) = price(parse_mechanism(LAPLACE), REPLACE_ONE, (6,))
    (half_scale,) = price(parse_mechanism({**LAPLACE, "noise_multiplier": "0.5"}), ADD_OR_REMOVE, (6,))
    assert replaced is not None
    assert half_scale is not None
    assert replaced / NAT == pytest.approx(half_scale / NAT, rel=1e-6)


def test_sampling_all_without_replacement_is_no_better_than_not_sampling() -> None:
    """The library leaves the doubling to its caller: the whole population in one sample costs it half the noise."""
    exact = get_epsilon_gaussian(0.5, float(DELTA))
    assert renyi(SampledWithoutReplacementDpEvent(1000, 1000, GaussianDpEvent(1.0)), REPLACE_ONE) < exact / 2
    whole = {**NO_REPLACEMENT, "sample": 1000}
    assert ours(whole, REPLACE_ONE) >= exact


@pytest.mark.parametrize("count", [2, 5, 16])
def test_every_randomised_response_is_counted(count: int) -> None:
    """The library's PLD accountant prices n-fold randomised response as one; ours as n single ones."""
    event = RandomizedResponseDpEvent(0.5, 2)
    single = pld(event, REPLACE_ONE)
    assert pld(event, REPLACE_ONE, count) == single
    assert pld(SelfComposedDpEvent(event, count), REPLACE_ONE) == single
    one_by_one = pld(ComposedDpEvent([event] * count), REPLACE_ONE)
    reported = ours(self_composed(RESPONSE, count), REPLACE_ONE)
    assert reported == pytest.approx(ours(composed(*[RESPONSE] * count), REPLACE_ONE), rel=1e-6)
    assert reported == pytest.approx(one_by_one, rel=0.01)
    assert reported > single


@pytest.mark.parametrize(
    ("mechanism", "relation"),
    [
        (GAUSSIAN, ADD_OR_REMOVE),
        pytest.param(GAUSSIAN, REPLACE_ONE, marks=pytest.mark.soak),
        (LAPLACE, ZERO_OUT),
        ({**GAUSSIAN, "kind": "discrete_gaussian"}, ADD_OR_REMOVE),
        (RESPONSE, ZERO_OUT),
        (ZCDP, ADD_OR_REMOVE),
        (PURE, ADD_OR_REMOVE),
        ({**POISSON, "steps": 20}, ZERO_OUT),
        (NO_REPLACEMENT, REPLACE_ONE),
        (FULL_BATCH, ZERO_OUT),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else value,
)
def test_n_fold_equals_n_times(mechanism: Json, relation: str) -> None:
    """Every mechanism, three times by count and three times one by one: the same ε, and more than once."""
    by_count, one_by_one = ours(self_composed(mechanism, 3), relation), ours(composed(*[mechanism] * 3), relation)
    assert by_count == pytest.approx(one_by_one, rel=0.002)
    assert by_count > ours(mechanism, relation)


def test_library_keeps_what_it_refused() -> None:
    """A refused composition stays in both accountants' ledgers, and the part before the fault in their ε."""
    refused = ComposedDpEvent([GaussianDpEvent(1.0), GaussianDpEvent(-1.0)])
    for accountant in (RdpAccountant(), PLDAccountant()):
        with pytest.raises(ValueError, match=r"(?i)negative|not a positive"):
            accountant.compose(refused)
        assert accountant.ledger == refused
        assert accountant.get_epsilon(float(DELTA)) > 4


REFUSED: Final[list[Json]] = [
    composed(GAUSSIAN, {**GAUSSIAN, "noise_multiplier": "-1"}),
    composed(GAUSSIAN, self_composed(GAUSSIAN, -1)),
    composed(GAUSSIAN, {**POISSON, "probability": "1.5"}),
    composed(GAUSSIAN, {"kind": "unheard_of", "v": 1}),
    composed(GAUSSIAN, {**NO_REPLACEMENT, "sample": 2000}),
]


@pytest.mark.parametrize("refused", REFUSED, ids=["noise", "count", "probability", "kind", "sample"])
def test_a_refusal_leaves_nothing_behind(refused: Json) -> None:
    """What is told before a refusal is told after it, and what was never told before is the fresh, exact value."""
    known, orders = parse_mechanism(POISSON), (2, 8)
    before = report_epsilon(known, DELTA, ADD_OR_REMOVE), price(known, ADD_OR_REMOVE, orders)
    with pytest.raises(Malformed):
        report_epsilon(parse_mechanism(refused), DELTA, ADD_OR_REMOVE)
    noise = 3 + REFUSED.index(refused)
    exact = get_epsilon_gaussian(float(noise), float(DELTA))
    assert exact <= ours({**GAUSSIAN, "noise_multiplier": str(noise)}) <= exact * 1.001
    assert (report_epsilon(known, DELTA, ADD_OR_REMOVE), price(known, ADD_OR_REMOVE, orders)) == before


def test_pricing_twice_is_pricing_once() -> None:
    """Nothing adds up between calls: the tenth answer is the first."""
    mechanism = parse_mechanism(composed(GAUSSIAN, self_composed(RESPONSE, 2)))
    first = report_epsilon(mechanism, DELTA, ZERO_OUT)
    assert all(report_epsilon(mechanism, DELTA, ZERO_OUT) == first for _ in range(9))


class _Anything(NamedTuple):
    module_name: str
    class_name: str
    numerator: int


def test_library_makes_whatever_it_is_told_to() -> None:
    """``from_named_tuple`` imports any module and calls any class in it."""
    made: Any = DpEvent.from_named_tuple(_Anything("fractions", "Fraction", 7))
    assert made == Fraction(7)
    assert type(made) is Fraction


@pytest.mark.parametrize(
    "form",
    [
        {"class_name": "Fraction", "module_name": "fractions", "numerator": 7},
        {"class_name": "GaussianDpEvent", "module_name": "dp_accounting.dp_event", "noise_multiplier": 1},
        {**GAUSSIAN, "class_name": "Fraction"},
        {**GAUSSIAN, "kind": "fractions.Fraction"},
        {**GAUSSIAN, "kind": "GaussianDpEvent"},
        {**GAUSSIAN, "kind": ["gaussian"]},
        {"kind": "NonPrivateDpEvent", "v": 1},
        {},
    ],
)
def test_only_our_own_vocabulary_is_read(form: Json) -> None:
    """A class by name, an unknown kind and a field too many are refused unread."""
    with pytest.raises(Malformed):
        parse_mechanism(form)


def test_from_named_tuple_is_never_called() -> None:
    """No line of the ledger calls it, nor reads an event by pickle."""
    root = Path(__file__).parents[3]
    for source in sorted((root / "ledger").rglob("*.py")):
        text = source.read_text()
        assert not re.search(r"\bfrom_named_tuple\(|^\s*(import|from) pickle\b", text, re.MULTILINE), source


def test_library_forgets_the_names_in_json() -> None:
    """A Gaussian and a Laplace differ in a class name alone, no field is named, and a composition has no hash."""
    composition = ComposedDpEvent([GaussianDpEvent(1.0)])
    assert json.loads(json.dumps(composition.to_named_tuple()))[2] == [["dp_accounting.dp_event", "GaussianDpEvent", 1]]
    with pytest.raises(TypeError, match="unhashable"):
        hash(composition)
    for positional in (["dp_accounting.dp_event", "GaussianDpEvent", 1], [["gaussian", "1"]]):
        with pytest.raises(Malformed):
            parse_mechanism(positional)


def test_integer_orders_are_finite_where_the_library_gives_up() -> None:
    """At orders between integers the library says infinite for a loss of a hundredth; ours are integers."""
    accountant = RdpAccountant(orders=[1.5, 2])
    accountant.compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)))
    between, integer = (float(rho) for rho in accountant.rdp)
    assert between == math.inf
    assert 0 < integer < 0.02
    dense = {**POISSON, "probability": "0.1", "steps": 1}
    (units,) = price(parse_mechanism(dense), ADD_OR_REMOVE, (2,))
    assert units is not None
    assert integer <= units / NAT <= integer * 1.000001


def test_a_loss_is_never_negative() -> None:
    """The library says slightly less than nothing for a tiny step; ours costs at least one unit."""
    accountant = RdpAccountant(orders=[2])
    accountant.compose(PoissonSampledDpEvent(1e-9, GaussianDpEvent(10_000.0)))
    assert float(accountant.rdp[0]) < 0
    tiny = {**POISSON, "noise_multiplier": "10000", "probability": "0.000000001", "steps": 1}
    (units,) = price(parse_mechanism(tiny), ADD_OR_REMOVE, (2,))
    assert units is not None
    assert units >= 1


def test_no_delta_is_asked_below_the_mass_that_composing_loses() -> None:
    """Two Laplace of finite ε are infinite to the library at δ = 1e-15; ours does not answer there."""
    accountant = PLDAccountant().compose(LaplaceDpEvent(1.0)).compose(LaplaceDpEvent(1.0))
    assert accountant.get_epsilon(1e-15) == math.inf
    for delta in (Fraction(1, 10**15), Fraction(1, 10**12), Fraction(-1, 10**5)):
        with pytest.raises(Malformed) as refusal:
            report_epsilon(parse_mechanism(composed(LAPLACE, LAPLACE)), delta, ADD_OR_REMOVE)
        assert refusal.value.field == "delta"


def test_pure_privacy_is_reported_at_no_delta() -> None:
    """One Laplace of scale 1 is infinite to the library at δ = 0; ours tells 1, and 2 where a record is replaced."""
    assert PLDAccountant().compose(LaplaceDpEvent(1.0)).get_epsilon(0) == math.inf
    assert ours(LAPLACE, ADD_OR_REMOVE, Fraction(0)) == 1
    assert ours(LAPLACE, REPLACE_ONE, Fraction(0)) == 2


def test_a_replaced_record_in_a_sample_has_no_price() -> None:
    """The library's accountants disagree whether it has one; the pair it takes is not proven worst once composed."""
    event = PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0))
    relation = NeighboringRelation.REPLACE_ONE
    assert not RdpAccountant(neighboring_relation=relation).supports(event)
    assert PLDAccountant(relation).supports(event)
    mechanism = parse_mechanism(POISSON)
    with pytest.raises(ValueError, match=REPLACE_ONE):
        report_epsilon(mechanism, DELTA, REPLACE_ONE)
    with pytest.raises(ValueError, match=REPLACE_ONE):
        price(mechanism, REPLACE_ONE, (2,))


@pytest.mark.parametrize("mechanism", [ZCDP, PURE, BLACK_BOX], ids=lambda mechanism: mechanism["kind"])
def test_a_loss_holds_under_its_own_relation(mechanism: Json) -> None:
    """The library's Rényi accountant prices zCDP alike whatever the relation; ours only under the one it names."""
    event = ZCDpEvent(0.5)
    assert renyi(event, REPLACE_ONE) == renyi(event, ADD_OR_REMOVE)
    assert ours(mechanism) > 0
    with pytest.raises(ValueError, match=ADD_OR_REMOVE):
        ours(mechanism, REPLACE_ONE)


@pytest.mark.soak  # It is of what we do not do.
def test_shuffled_epochs_gain_nothing_from_sampling() -> None:
    """What the library makes of the same batches as Poisson samples is below the truth by half and more."""
    batches = SelfComposedDpEvent(PoissonSampledDpEvent(0.001, GaussianDpEvent(0.5)), 1000)
    exact = get_epsilon_gaussian(0.5, float(DELTA))
    assert pld(batches, ZERO_OUT) < exact / 2
    assert exact <= ours({**FULL_BATCH, "epochs": 1, "noise_multiplier": "0.5"}, ZERO_OUT) <= exact * 1.001


def test_a_coarse_grid_is_refined() -> None:
    """A million tiny steps: the library tells 0.51 by its grid of a thousandth, where Rényi says 0.08."""
    event = PoissonSampledDpEvent(0.001, GaussianDpEvent(50.0))
    coarse = PLDAccountant(value_discretization_interval=1e-3).compose(event, 10**6).get_epsilon(1e-6)
    assert coarse > 0.5
    run = {**POISSON, "noise_multiplier": "50", "probability": "0.001", "steps": 10**6}
    assert 0.07 < ours(run, ZERO_OUT, Fraction(1, 10**6)) < 0.08
