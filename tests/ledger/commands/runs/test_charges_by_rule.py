"""Charges over partitions with different rules, units and relations: each charged by its own, all or none."""

from fractions import Fraction
from typing import Any

import pytest

from ledger.accounting.renyi import price
from ledger.domain.facts import GLOBAL
from ledger.domain.outcomes import Code
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss
from ledger.mechanisms.mechanism import Group, PoissonGaussian
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import DELTA_ONE, NAT
from tests.factories.documents import dense_plan
from tests.factories.memory import PermissiveWorld, ref_of
from tests.factories.people import BANKS

BANK = BANKS[0]
LOAD = dense_plan(40)
LAPLACE: c.Object = {"kind": "laplace", "noise_multiplier": "4", "v": 1}
BOX: c.Object = {
    "delta": "0.0000001", "epsilon": "0.5", "kind": "black_box", "relation": "REPLACE_SPECIAL", "v": 1
}  # fmt: skip
PURE: c.Object = {"epsilon": "0.5", "kind": "pure", "relation": "REPLACE_SPECIAL", "v": 1}
PARTITIONS: dict[str, dict[str, c.Json]] = {
    "renyi": {},
    "slack": {"slack": "0.000001"},
    "reference": {"rule": "reference", "load": LOAD},
    "gaussian": {"rule": "gaussian"},
    "pure": {"delta": "0", "epsilon": "2"},
    "users": {"unit": "user", "unit_records_max": 3},
    "replaced": {"relation": "REPLACE_ONE"},
}


@pytest.fixture(scope="module")
def base() -> tuple[PermissiveWorld, str]:
    """One partition of each kind, and a contract."""
    world = PermissiveWorld.settled()
    world.lineage = Fraction(2)
    for name, changes in PARTITIONS.items():
        decided = world.open(name, **{"epsilon": "3", **changes})  # type: ignore[arg-type] # fields by name
        assert decided.code is Code.PERMITTED, (name, decided)
    return world, world.contract(BANK)


@pytest.fixture
def world(base: tuple[PermissiveWorld, str]) -> PermissiveWorld:
    """A copy to charge."""
    made = base[0].fork()
    made.everyone = True
    return made


def mechanism(inner: c.Object) -> c.Object:
    """A plan that is no DP-SGD."""
    return {"kind": "mechanism", "mechanism": inner, "v": 1}


def run(world: PermissiveWorld, contract: str, name: str, where: tuple[str, ...], plan: c.Object) -> Any:  # noqa: ANN401 - Decided
    """A charge."""
    return world.decide_charge(name, BANK, contract, where, plan)


def pending(world: PermissiveWorld, partition: str) -> Loss:
    """What everyone together has pending."""
    found = world.exposure(partition, GLOBAL)
    assert found is not None
    return found[1]


def test_each_partition_charges_by_its_own_rule(world: PermissiveWorld, base: tuple[PermissiveWorld, str]) -> None:
    """Forty sampled steps: at orders, as forty, as one certificate, and for users as a group of three."""
    where = ("renyi", "reference", "gaussian", "users")
    assert run(world, base[1], "run", where, dense_plan(40, noise="16")).code is Code.PENDING
    orders = {name: tuple(read_rule(world.state.partitions[ref_of(name)].terms).coordinates) for name in where}
    step = PoissonGaussian(Fraction(1, 10), Fraction(16), 1)
    for name, priced in (("renyi", step), ("users", Group(3, step))):
        at = tuple(int(one.name.split()[1]) for one in orders[name][:-1])
        expected = tuple(None if one is None else 40 * one for one in price(priced, "REPLACE_SPECIAL", at))
        found = pending(world, name)
        assert tuple(found.at(place) for place in range(len(at))) == expected
    assert pending(world, "reference") == Loss((40,), (0,))
    square, tau = pending(world, "gaussian").finite
    assert square > 0
    assert tau > 0
    assert world.post("run", 10).code is Code.POSTED
    assert world.exposure("reference", GLOBAL) == (Loss((10,), (0,)), Loss((0,), (0,)))
    assert world.exposure("gaussian", GLOBAL) == (Loss((square, tau), (0, 0)), Loss((0, 0), (0, 0)))


def test_a_charge_is_for_as_many_records_of_a_unit_as_its_joins_let_in(
    world: PermissiveWorld, base: tuple[PermissiveWorld, str]
) -> None:
    """Five rows of one unit: a group of five, in the partition of single records and in that of users of three."""
    several = {"pipeline": "5" * 64, "unit_records_max": 5}
    where, plan = ("renyi", "users"), dense_plan(40, noise="32")
    decided = world.decide_charge("run", BANK, base[1], where, plan, **several)  # type: ignore[arg-type]  # JSON
    assert decided.code is Code.PENDING
    step = Group(5, PoissonGaussian(Fraction(1, 10), Fraction(32), 1))
    for name in where:
        names = read_rule(world.state.partitions[ref_of(name)].terms).coordinates[:-1]
        at = tuple(int(one.name.split()[1]) for one in names)
        expected = tuple(None if one is None else 40 * one for one in price(step, "REPLACE_SPECIAL", at))
        assert tuple(pending(world, name).at(place) for place in range(len(at))) == expected
    assert world.state.charges["run"].pipeline == "5" * 64
    refused = world.decide_charge("other", BANK, base[1], ("reference",), LOAD, unit_records_max=2)
    assert refused.code is Code.NOT_PRICED


def test_a_run_over_users_sees_each_once(world: PermissiveWorld, base: tuple[PermissiveWorld, str]) -> None:
    """Priced as one, where a run over records is for three; for as many as joins let in; of records, not at all."""
    over_users: c.Object = {**dense_plan(40, noise="32"), "unit": "user"}
    step = PoissonGaussian(Fraction(1, 10), Fraction(32), 1)
    names = read_rule(world.state.partitions[ref_of("users")].terms).coordinates[:-1]
    at = tuple(int(one.name.split()[1]) for one in names)
    before = [0] * len(at)
    for name, more, priced in (("run", {}, step), ("joined", {"unit_records_max": 2}, Group(2, step))):
        assert world.decide_charge(name, BANK, base[1], ("users",), over_users, **more).code is Code.PENDING
        found = [pending(world, "users").at(place) or 0 for place in range(len(at))]
        expected = [0 if one is None else 40 * one for one in price(priced, "REPLACE_SPECIAL", at)]
        assert [after - one for one, after in zip(before, found, strict=True)] == expected
        before = found
    refused = run(world, base[1], "records", ("renyi",), over_users)
    assert (refused.code, refused.field) == (Code.MALFORMED, "body.plan.unit")


def test_a_reference_over_users(world: PermissiveWorld, base: tuple[PermissiveWorld, str]) -> None:
    """Users are counted where the load draws and clips them; what draws records is refused there."""
    load: c.Object = {**LOAD, "unit": "user"}
    users: dict[str, c.Json] = {"unit": "user", "unit_records_max": 3}
    opened = world.open("counted", epsilon="3", rule="reference", load=load, **users)
    assert opened.code is Code.PERMITTED
    assert run(world, base[1], "over-users", ("counted",), load).code is Code.PENDING
    assert pending(world, "counted") == Loss((40,), (0,))
    assert run(world, base[1], "over-records", ("counted",), LOAD).code is Code.NOT_PRICED


def test_one_partition_without_room_refuses_all(world: PermissiveWorld, base: tuple[PermissiveWorld, str]) -> None:
    """The refusal names the account without room; nothing is charged anywhere, and the id stays refused."""
    long = dense_plan(40_000)
    decided = run(world, base[1], "run", ("renyi", "reference"), long)
    assert decided.code is Code.BUDGET_EXHAUSTED
    assert world.exposure("renyi", GLOBAL) is None
    assert world.exposure("reference", GLOBAL) is None
    assert ref_of("reference") in decided.detail
    assert "steps would fit" in decided.detail
    fit = int(decided.detail.split(f"{ref_of('reference')} is ")[1].split(" of the run's")[0].rsplit(" ", 1)[1])
    assert run(world, base[1], "less", ("reference",), dense_plan(fit)).code in {Code.PENDING, Code.BUDGET_EXHAUSTED}


REFUSED: list[tuple[str, c.Object, str]] = [
    ("reference", mechanism(LAPLACE), "laplace under REPLACE_SPECIAL has no proven price in the rule reference"),
    ("reference", dense_plan(1, noise="1.9"), "not dominated"),
    ("reference", dense_plan(1, probability="0.2"), "not dominated"),
    ("pure", LOAD, "poisson_gaussian under REPLACE_SPECIAL has no proven price in the rule pure"),
    ("pure", mechanism(BOX), "black_box"),
    ("replaced", LOAD, "poisson_gaussian under REPLACE_ONE"),
    ("replaced", mechanism(PURE), "holds under REPLACE_SPECIAL, and not under REPLACE_ONE"),
    ("users", mechanism({"k": 60, "kind": "group", "mechanism": LAPLACE, "v": 1}), "k: must lie between 1 and 64"),
]


@pytest.mark.parametrize(("where", "plan", "reason"), REFUSED, ids=repr)
def test_what_has_no_proven_price_is_refused_by_name(
    world: PermissiveWorld, base: tuple[PermissiveWorld, str], where: str, plan: c.Object, reason: str
) -> None:
    """It is recorded with its reason where the mechanism is a known one; nothing is charged."""
    decided = run(world, base[1], "run", (where,), plan)
    assert decided.code in {Code.NOT_PRICED, Code.MALFORMED}
    assert reason in decided.detail
    assert decided.code.recorded == (decided.code is Code.NOT_PRICED)
    assert world.exposure(where, GLOBAL) is None


def test_a_black_box_needs_slack(world: PermissiveWorld, base: tuple[PermissiveWorld, str]) -> None:
    """Where none is kept there is no room; where some is, its δ is taken from it and its curve from the orders."""
    assert run(world, base[1], "none", ("renyi",), mechanism(BOX)).code is Code.BUDGET_EXHAUSTED
    assert run(world, base[1], "some", ("slack",), mechanism(BOX)).code is Code.PENDING
    assert pending(world, "slack").finite[-1] == -(-DELTA_ONE // 10**7)
    assert all(one for one in pending(world, "slack").finite[:-1])
    for count in range(9):
        decided = run(world, base[1], f"more-{count}", ("slack",), mechanism(BOX))
    assert decided.code is Code.BUDGET_EXHAUSTED
    world.post("some", 0)
    assert run(world, base[1], "again", ("slack",), mechanism(BOX)).code in {Code.PENDING, Code.BUDGET_EXHAUSTED}


def test_pure_losses_add_up_to_the_budget(world: PermissiveWorld, base: tuple[PermissiveWorld, str]) -> None:
    """A budget of 2 with δ = 0 takes eight quarters of Laplace, and not a ninth; one that is void comes back."""
    for count in range(8):
        assert run(world, base[1], f"run-{count}", ("pure",), mechanism(LAPLACE)).code is Code.PENDING
    assert pending(world, "pure") == Loss((2 * NAT,), (0,))
    assert run(world, base[1], "ninth", ("pure",), mechanism(LAPLACE)).code is Code.BUDGET_EXHAUSTED
    assert world.decide_void("run-3").code is Code.VOIDED
    assert run(world, base[1], "instead", ("pure",), mechanism(LAPLACE)).code is Code.PENDING


def test_pieces_settle_in_order(world: PermissiveWorld, base: tuple[PermissiveWorld, str]) -> None:
    """Of a mechanism of two pieces, what began is posted: the first whole, of the second what ran."""
    two: c.Object = {
        "kind": "composed",
        "mechanisms": [PURE, {"count": 3, "kind": "self_composed", "mechanism": LAPLACE, "v": 1}],
    }
    assert run(world, base[1], "run", ("pure",), mechanism({**two, "v": 1})).code is Code.PENDING
    assert pending(world, "pure").finite[0] == 5 * NAT // 4
    assert world.post("run", 5).code is Code.MALFORMED
    assert world.post("run", 2).code is Code.POSTED
    found = world.exposure("pure", GLOBAL)
    assert found is not None
    assert found[0].finite[0] == 3 * NAT // 4
    assert found[1].empty


OPENED: list[tuple[dict[str, c.Json], str]] = [
    ({"unit": "user"}, "unit_records_max"),
    ({"unit_records_max": 2}, "unit_records_max"),
    ({"unit": "user", "unit_records_max": 0}, "unit_records_max"),
    ({"unit": "user", "unit_records_max": 65}, "unit_records_max"),
    ({"slack": "1.0"}, "slack"),
    ({"slack": "0.00001"}, "slack"),
    ({"slack": 0}, "slack"),
    ({"rule": "reference"}, "load"),
    ({"rule": "reference", "load": mechanism(LAPLACE)}, "load"),
    ({"rule": "reference", "load": LOAD, "relation": "REPLACE_ONE"}, "relation"),
    ({"rule": "reference", "load": LOAD, "unit": "user", "unit_records_max": 1}, "unit"),
    ({"rule": "reference", "load": {**LOAD, "unit": "user"}}, "load.unit"),
    ({"load": {**LOAD, "unit": "user"}}, "load.unit"),
    ({"rule": "reference", "load": LOAD, "slack": "0.000001"}, "slack"),
    ({"rule": "gaussian", "delta": "0"}, "rule"),
    ({"delta": "0", "slack": "0.000001"}, "slack"),
    ({"relation": "REPLACE_ONE", "load": LOAD}, "load"),
]


@pytest.mark.parametrize(("changes", "field"), OPENED, ids=repr)
def test_a_partition_that_no_rule_can_keep_is_refused_by_field(
    world: PermissiveWorld, changes: dict[str, c.Json], field: str
) -> None:
    """The fault names what was declared, and nothing opens."""
    before = dict(world.state.partitions)
    try:
        decided = world.open("other", **{"epsilon": "3", **changes})  # type: ignore[arg-type] # fields by name
    except ValueError as fault:
        assert f"body.{field}" in str(fault)  # noqa: PT017 - refused as it is read, before anything is decided
    else:
        assert (decided.code, decided.field) == (Code.MALFORMED, f"body.{field}")
    assert world.state.partitions == before
