"""The life of a charge: the tables in memory, and what only the transitions alone can show."""

import pytest

from ledger.domain.facts import GLOBAL, holder_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from tests.factories.charge_tables import TABLES, ChargeTable
from tests.factories.documents import dense_plan
from tests.factories.memory import MemoryWorld, PermissiveWorld, ref_of, snapshot
from tests.factories.people import BANKS, DAY_MS, HOSPITAL

BANK, OTHER_BANK = BANKS[0], BANKS[1]
STEPS = 40


def begun() -> tuple[PermissiveWorld, str]:
    """Partitions ``one`` and ``two``, and the bank's contract."""
    world = PermissiveWorld.settled()
    for partition in ("one", "two"):
        assert world.open(partition).code.word == "permitted"
    return world, world.contract(BANK)


@pytest.fixture(scope="module")
def world() -> MemoryWorld:
    """One book in memory for all tables."""
    world = MemoryWorld()
    world.found()
    return world


@pytest.mark.parametrize("table", TABLES)
def test_the_life_of_a_charge(world: MemoryWorld, table: str) -> None:
    """Each row's outcome is the one its last columns say, and the accounts follow."""
    chosen = ChargeTable(world, table)
    assert chosen.run() == chosen.rows()


def test_the_order_of_entries_decides_not_a_clock() -> None:
    """A charge past its deadline is posted as long as no lapse is an entry; a book would enter the lapse first."""
    world, contract = begun()
    assert world.decide_charge("a", BANK, contract, ("one",), dense_plan(STEPS)).code.word == "pending"
    world.clock.now += 2 * DAY_MS
    assert world.post("a", 5).code.word == "posted"
    assert world.decide_lapse("a").code.word == "conflict"


def test_a_lapse_is_the_log_s_own_command_and_of_a_charge_that_exists() -> None:
    """Signed by the bank it is refused, whatever its time; a charge that nobody made has none."""
    world, contract = begun()
    assert world.decide_charge("a", BANK, contract, ("one",), dense_plan(STEPS)).code.word == "pending"
    for _ in range(2):
        assert world.decide("lapse", "lapse-a", BANK, {"charge": "a"}).code.word == "signature_invalid"
        world.clock.now += 2 * DAY_MS
    assert world.decide_lapse("z").code.word == "not_found"
    assert world.decide_lapse("a").code.word == "voided"


def test_a_budget_that_is_used_up_names_every_account_and_the_steps_that_fit() -> None:
    """Both accounts are named with the share used; exactly the steps told fit, and one more does not."""
    world, contract = begun()
    world.lineage = parse_number("2.5", "")
    assert world.open("small", "3").code.word == "permitted"
    refused = world.decide_charge("a", BANK, contract, ("small",), dense_plan(4_000))
    assert refused.code.word == "budget_exhausted"
    assert "the global account of" in refused.detail
    assert "the account of this lineage of" in refused.detail
    checks = refused.derived["checks"]
    assert isinstance(checks, list)
    node = world.state.organisations[BANK].node
    assert [one["source"] for one in checks if isinstance(one, dict)] == [GLOBAL, holder_of(node)]
    fit = min(
        int(part.split(" of the run's ")[0].split()[-1]) for part in refused.detail.split(" steps would fit")[:-1]
    )
    assert 0 < fit < 4_000
    assert world.decide_charge("b", BANK, contract, ("small",), dense_plan(fit + 1)).code.word == "budget_exhausted"
    assert world.decide_charge("c", BANK, contract, ("small",), dense_plan(fit)).code.word == "pending"
    assert world.decide_charge("d", BANK, contract, ("small",), dense_plan(1)).code.word == "budget_exhausted"
    assert world.post("c", fit - 1).code.word == "posted"
    assert world.decide_charge("e", BANK, contract, ("small",), dense_plan(1)).code.word == "pending"


def test_two_partitions_are_charged_or_neither_is() -> None:
    """One without room refuses the whole, names only itself, and leaves the other's account alone."""
    world, contract = begun()
    assert world.open("small", "3").code.word == "permitted"
    before = snapshot(world.state)
    refused = world.decide_charge("a", BANK, contract, ("one", "small"), dense_plan(4_000))
    assert refused.code.word == "budget_exhausted"
    assert ref_of("small") in refused.detail
    assert ref_of("one") not in refused.detail
    assert world.state == before


def test_a_price_that_is_infinite_everywhere_is_never_admitted() -> None:
    """Hardly any noise: no order has a finite price, and no step fits."""
    world, contract = begun()
    refused = world.decide_charge("a", BANK, contract, ("one",), dense_plan(1, noise="0.03", probability="1"))
    assert refused.code.word in {"budget_exhausted", "malformed"}
    assert not world.state.charges


def test_a_cap_too_small_for_any_order_is_a_denial() -> None:
    """Told with the least ε that has room."""
    world, contract = begun()
    world.lineage = parse_number("0.001", "")
    refused = world.decide_charge("a", BANK, contract, ("one",), dense_plan(1))
    assert refused.code.word == "policy_denied"
    assert "the least that has some is" in refused.detail


def test_a_gate_that_denies_leaves_nothing() -> None:
    """Recorded with its reasons; no charge, no account, no key."""
    world, contract = begun()
    world.deny = ("too_late",)
    before, index = snapshot(world.state), world.index
    refused = world.decide_charge("a", BANK, contract, ("one",), dense_plan(STEPS))
    assert refused.code.word == "policy_denied"
    assert "too_late on purpose" in refused.detail
    assert world.state == before
    assert world.index == index + 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"epsilon": "0"}, "body.epsilon"),
        ({"epsilon": "129"}, "body.epsilon"),
        ({"epsilon": "0.0001"}, "body.epsilon"),
        ({"delta": "0.000000000001"}, "body.delta"),
        ({"delta": "1"}, "body.delta"),
    ],
)
def test_a_partition_that_cannot_be_kept_is_refused_by_field(changes: dict[str, c.Json], field: str) -> None:
    """A budget out of range, or one with no room at any order."""
    world, _ = begun()
    decided = world.open("other", **{"epsilon": "3", **changes})  # type: ignore[arg-type] # fields by name
    assert (decided.code.word, decided.field) == ("malformed", field)


def test_what_was_done_is_not_done_again() -> None:
    """A partition opened or retired twice, an organisation or a key registered twice."""
    world, _ = begun()
    assert world.open("one").code.word == "conflict"
    for expected in ("permitted", "conflict"):
        retired = world.decide("retirement", f"retire-{world.index}", HOSPITAL, {"partition": ref_of("one")})
        assert retired.code.word == expected
    assert world.state.partitions[ref_of("one")].retired
    assert world.register(BANK, "TDC").code.word == "conflict"
