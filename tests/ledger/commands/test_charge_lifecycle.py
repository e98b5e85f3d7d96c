"""The life of a charge: the tables in memory, and what only the transitions alone can show."""

import pytest

from ledger.domain.facts import GLOBAL, holder_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from tests.factories.charge_tables import TABLES, ChargeTable
from tests.factories.documents import dense_plan
from tests.factories.memory import MemoryDriver, World, ref_of, settled_world, snapshot
from tests.factories.people import BANKS, DAY_MS, HOSPITAL

BANK, OTHER_BANK = BANKS[0], BANKS[1]
STEPS = 40


class Life(World):
    """A world with two partitions and a contract for the bank."""

    digest: str = ""

    @classmethod
    def begin(cls) -> "Life":
        """Partitions ``one`` and ``two``, one contract for the bank."""
        base = settled_world()
        life = cls(state=base.state, index=base.index)
        for partition in ("one", "two"):
            assert life.open(partition).code.word == "permitted"
        life.digest = life.contract(BANK)
        return life


@pytest.fixture(scope="module")
def driver() -> MemoryDriver:
    """One book in memory for all tables."""
    driver = MemoryDriver()
    driver.found()
    return driver


@pytest.mark.parametrize("table", TABLES)
def test_the_life_of_a_charge(driver: MemoryDriver, table: str) -> None:
    """Each row's outcome is the one its last columns say, and the accounts follow."""
    ChargeTable(driver, table).run()


def test_the_order_of_entries_decides_not_a_clock() -> None:
    """A charge past its deadline is posted as long as no lapse is an entry; a book would enter the lapse first."""
    life = Life.begin()
    assert life.charge("a", BANK, life.digest, ("one",), dense_plan(STEPS)).code.word == "pending"
    life.now += 2 * DAY_MS
    assert life.post("a", 5).code.word == "posted"
    assert life.lapse("a").code.word == "conflict"


def test_a_lapse_is_the_log_s_own_command_and_of_a_charge_that_exists() -> None:
    """Signed by the bank it is refused, whatever its time; a charge that nobody made has none."""
    life = Life.begin()
    assert life.charge("a", BANK, life.digest, ("one",), dense_plan(STEPS)).code.word == "pending"
    for _ in range(2):
        assert life.submit("lapse", "lapse-a", BANK, {"charge": "a"}).code.word == "signature_invalid"
        life.now += 2 * DAY_MS
    assert life.lapse("z").code.word == "not_found"
    assert life.lapse("a").code.word == "voided"


def test_a_budget_that_is_used_up_names_every_account_and_the_steps_that_fit() -> None:
    """Both accounts are named with the share used; exactly the steps told fit, and one more does not."""
    life = Life.begin()
    life.lineage = parse_number("2.5", "")
    assert life.open("small", "3").code.word == "permitted"
    refused = life.charge("a", BANK, life.digest, ("small",), dense_plan(4_000))
    assert refused.code.word == "budget_exhausted"
    assert "the global account of" in refused.detail
    assert "the account of this lineage of" in refused.detail
    checks = refused.derived["checks"]
    assert isinstance(checks, list)
    node = life.state.organisations[BANK].node
    assert [one["source"] for one in checks if isinstance(one, dict)] == [GLOBAL, holder_of(node)]
    fit = min(
        int(part.split(" of the run's ")[0].split()[-1]) for part in refused.detail.split(" steps would fit")[:-1]
    )
    assert 0 < fit < 4_000
    assert life.charge("b", BANK, life.digest, ("small",), dense_plan(fit + 1)).code.word == "budget_exhausted"
    assert life.charge("c", BANK, life.digest, ("small",), dense_plan(fit)).code.word == "pending"
    assert life.charge("d", BANK, life.digest, ("small",), dense_plan(1)).code.word == "budget_exhausted"
    assert life.post("c", fit - 1).code.word == "posted"
    assert life.charge("e", BANK, life.digest, ("small",), dense_plan(1)).code.word == "pending"


def test_two_partitions_are_charged_or_neither_is() -> None:
    """One without room refuses the whole, names only itself, and leaves the other's account alone."""
    life = Life.begin()
    assert life.open("small", "3").code.word == "permitted"
    before = snapshot(life.state)
    refused = life.charge("a", BANK, life.digest, ("one", "small"), dense_plan(4_000))
    assert refused.code.word == "budget_exhausted"
    assert ref_of("small") in refused.detail
    assert ref_of("one") not in refused.detail
    assert life.state == before


def test_a_price_that_is_infinite_everywhere_is_never_admitted() -> None:
    """Hardly any noise: no order has a finite price, and no step fits."""
    life = Life.begin()
    refused = life.charge("a", BANK, life.digest, ("one",), dense_plan(1, noise="0.03", probability="1"))
    assert refused.code.word in {"budget_exhausted", "malformed"}
    assert not life.state.charges


def test_a_cap_too_small_for_any_order_is_a_denial() -> None:
    """Told with the least ε that has room."""
    life = Life.begin()
    life.lineage = parse_number("0.001", "")
    refused = life.charge("a", BANK, life.digest, ("one",), dense_plan(1))
    assert refused.code.word == "policy_denied"
    assert "the least that has some is" in refused.detail


def test_a_gate_that_denies_leaves_nothing() -> None:
    """Recorded with its reasons; no charge, no account, no key."""
    life = Life.begin()
    life.deny = ("too_late",)
    before, index = snapshot(life.state), life.index
    refused = life.charge("a", BANK, life.digest, ("one",), dense_plan(STEPS))
    assert refused.code.word == "policy_denied"
    assert "too_late on purpose" in refused.detail
    assert life.state == before
    assert life.index == index + 1


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
    life = Life.begin()
    decided = life.open("other", **{"epsilon": "3", **changes})  # type: ignore[arg-type] # fields by name
    assert (decided.code.word, decided.field) == ("malformed", field)


def test_what_was_done_is_not_done_again() -> None:
    """A partition opened or retired twice, an organisation or a key registered twice."""
    life = Life.begin()
    assert life.open("one").code.word == "conflict"
    for expected in ("permitted", "conflict"):
        retired = life.submit("retirement", f"retire-{life.index}", HOSPITAL, {"partition": ref_of("one")})
        assert retired.code.word == expected
    assert life.state.partitions[ref_of("one")].retired
    assert life.register(BANK, "TDC").code.word == "conflict"
