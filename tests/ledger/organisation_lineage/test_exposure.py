"""Exposure against a naive model: each lineage holds a set of runs, a merger is a union, a total is a sum."""

from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.organisation_graph import ancestors, descendants
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss
from tests.factories.documents import dense_plan
from tests.factories.memory import PermissiveWorld, ref_of
from tests.factories.people import BANKS

PARTITIONS = ("one", "two")
PLANS = (("2", "0.1"), ("0.3", "1"), ("0.15", "1"))
"""The last is infinite at the greater orders."""
BASE = PermissiveWorld.settled()
CONTRACTS: dict[str, str] = {}
BASE.lineage = BASE.lineage.__class__(1)
for _partition in PARTITIONS:
    assert BASE.open(_partition).code.word == "permitted"
BASE.everyone, BASE.lineage = False, BASE.lineage.__class__(127)
for _bank in BANKS:
    CONTRACTS[_bank] = BASE.contract(_bank)
COORDINATES = read_rule(BASE.state.partitions[ref_of("one")].terms).coordinates
ORDERS = tuple(int(one.name.split()[1]) for one in COORDINATES[:-1])


def fresh() -> PermissiveWorld:
    """A copy of the world."""
    return BASE.fork()


@dataclass
class Model:
    """Runs by name, and per group of banks (by the node it stands for) the names of the runs it knows."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    knows: dict[int, set[str]] = field(default_factory=dict)
    stands: dict[str, int] = field(default_factory=dict)

    def total(self, names: set[str], partition: str) -> tuple[list[int], list[int]]:
        """Finite sum and infinite count per order, over distinct runs."""
        finite, infinite = [0] * len(ORDERS), [0] * len(ORDERS)
        for name in names:
            run = self.runs[name]
            if partition not in run["partitions"] or run["steps"] == 0:
                continue
            for place, unit in enumerate(run["price"]):
                if unit is None or unit * run["steps"] > 256 << 40:
                    infinite[place] += 1
                else:
                    finite[place] += unit * run["steps"]
        return finite, infinite


def check(world: PermissiveWorld, model: Model) -> None:
    """Every account, of lineages that are and that were, and everyone's."""
    for partition in PARTITIONS:
        for node, names in [*model.knows.items(), (-1, set(model.runs))]:
            account = world.state.accounts.get((ref_of(partition), GLOBAL if node < 0 else holder_of(node)))
            found = account.loss if account else Loss.zero(len(ORDERS) + 1)
            finite, infinite = model.total(names, partition)
            assert found == Loss((*finite, 0), (*infinite, 0))


def run(world: PermissiveWorld, model: Model, bank: str, where: tuple[str, ...], size: tuple[int, int]) -> None:
    """A bank runs a plan; if it fits, its group knows it."""
    name, (which, steps) = f"run-{world.index}", size
    noise, probability = PLANS[which]
    decided = world.decide_charge(name, bank, CONTRACTS[bank], where, dense_plan(steps, noise, probability))
    if decided.code.refused:
        return
    price = world.state.charges[name].prices[0][1][0].price[:-1]
    model.runs[name] = {"partitions": where, "steps": steps, "price": price, "open": True}
    model.knows[model.stands[bank]].add(name)


def merge(world: PermissiveWorld, model: Model, into: str, parents: tuple[str, ...]) -> None:
    """Banks become one; all that each group knew is known to the new one."""
    nodes = {model.stands[one] for one in (into, *parents)}
    index, decided = world.index, world.merge(into, parents)
    assert decided.code.refused == (len(nodes) == 1)
    if decided.code.refused:
        return
    model.knows[index] = set().union(*(model.knows[node] for node in nodes))
    for bank, node in model.stands.items():
        model.stands[bank] = index if node in nodes else node


BANK = st.sampled_from(BANKS)
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("run"),
            BANK,
            st.sampled_from([("one",), ("two",), PARTITIONS]),
            st.tuples(st.sampled_from([0, 0, 1, 2]), st.sampled_from([1, 3])),
        ),
        st.tuples(st.just("post"), st.integers(0, 20), st.integers(0, 3)),
        st.tuples(st.just("void"), st.integers(0, 20)),
        st.tuples(st.just("merge"), BANK, st.lists(BANK, min_size=1, max_size=2, unique=True)),
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=50)
@given(EVENTS)
def test_exposure_is_the_sum_over_distinct_runs(events: list[Any]) -> None:
    """Whatever is run, posted, voided and merged in whatever order: the accounts are the naive model's."""
    world, model = fresh(), Model(stands={bank: BASE.state.organisations[bank].node for bank in BANKS})
    model.knows = {node: set() for node in model.stands.values()}
    for kind, *rest in events:
        waiting = [name for name, one in model.runs.items() if one["open"]]
        if kind == "run":
            run(world, model, *rest)
        elif kind == "merge":
            merge(world, model, rest[0], tuple(rest[1]))
        elif waiting:
            name = waiting[rest[0] % len(waiting)]
            steps = min(rest[1], model.runs[name]["steps"]) if kind == "post" else 0
            decided = world.post(name, steps) if kind == "post" else world.decide_void(name)
            assert not decided.code.refused
            model.runs[name] |= {"open": False, "steps": steps}
        check(world, model)


def three_runs() -> PermissiveWorld:
    """Banks a, b and c ran once each."""
    world = fresh()
    for bank, steps in zip(BANKS, (1, 2, 3), strict=False):
        assert not world.decide_charge(
            f"of-{bank[8:14]}", bank, CONTRACTS[bank], ("one",), dense_plan(steps)
        ).code.refused
    return world


def known(world: PermissiveWorld, bank: str) -> Loss:
    """What a bank's lineage may know of partition one now."""
    account = world.state.accounts.get((ref_of("one"), holder_of(world.state.organisations[bank].node)))
    return account.loss if account else Loss.zero(len(ORDERS) + 1)


def test_the_order_of_mergers_does_not_matter() -> None:
    """Three banks become one in any order, two by two: the same exposure, which is that of the union."""
    whole = known(three_runs(), BANKS[0]) + known(three_runs(), BANKS[1]) + known(three_runs(), BANKS[2])
    for one, other, last in permutations(BANKS[:3]):
        world = three_runs()
        assert not world.merge(one, (other,)).code.refused
        assert not world.merge(last, (one,)).code.refused
        assert [known(world, bank) for bank in BANKS[:3]] == [whole] * 3


def test_merging_again_changes_nothing() -> None:
    """Refused as one lineage already, also with themselves and with all members named."""
    world = three_runs()
    assert not world.merge(BANKS[0], (BANKS[1],)).code.refused
    before = known(world, BANKS[0])
    for parents in ((BANKS[1],), (BANKS[0],), (BANKS[0], BANKS[1])):
        assert world.merge(BANKS[0], parents).code.word == "conflict"
    assert known(world, BANKS[0]) == before


def test_a_shared_ancestor_is_counted_once() -> None:
    """A merges with b, then with c: a's runs reach the last node along two ways and count once."""
    world = three_runs()
    assert not world.merge(BANKS[0], (BANKS[1],)).code.refused
    assert not world.merge(BANKS[2], (BANKS[0], BANKS[1])).code.refused
    assert known(world, BANKS[2]).finite[0] == known(three_runs(), BANKS[0]).finite[0] * 6


def test_an_exposure_only_grows_by_a_merger_and_is_at_most_the_sum() -> None:
    """Monotone, and never more than the parents had together."""
    world = three_runs()
    one, other = known(world, BANKS[0]), known(world, BANKS[1])
    assert not world.merge(BANKS[0], (BANKS[1],)).code.refused
    both = known(world, BANKS[1])
    for place in range(len(ORDERS)):
        assert max(one.finite[place], other.finite[place]) <= both.finite[place]
        assert both.finite[place] <= one.finite[place] + other.finite[place]


def test_a_charge_made_before_a_merger_settles_in_every_account() -> None:
    """Posted for less after the merger, the refund reaches the old lineage and the merged one alike."""
    world = three_runs()
    old = world.state.organisations[BANKS[2]].node
    assert not world.merge(BANKS[0], (BANKS[2],)).code.refused
    assert world.post(f"of-{BANKS[2][8:14]}", 1).code.word == "posted"
    step = known(three_runs(), BANKS[0])
    assert world.state.accounts[ref_of("one"), holder_of(old)].loss == step
    assert known(world, BANKS[2]) == step + step


def test_arrows_reach_back_and_forth() -> None:
    """Ancestors and descendants are each other's inverse, oneself included."""
    world = three_runs()
    for parents in ((BANKS[0], BANKS[1]), (BANKS[2], BANKS[0])):
        assert not world.merge(parents[0], parents[1:]).code.refused
    nodes = world.state.nodes
    for one in nodes:
        assert one in ancestors(nodes, one) & descendants(nodes, (one,))
        for other in nodes:
            assert (other in ancestors(nodes, one)) == (one in descendants(nodes, (other,)))
