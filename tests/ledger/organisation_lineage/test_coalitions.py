"""Coalition questions against brute force over all subsets."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.charge_record import Charge
from ledger.domain.facts import Account, Organisation, Partition, holder_of
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import Arrow, Node, NodeKind
from ledger.domain.outcomes import ChargeState
from ledger.filters import Cap, read_rule
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss, Segment
from ledger.organisation_lineage.coalitions import SmallestCoalitions, exposure_of, smallest_coalitions
from ledger.wire.exact_numbers import parse_number
from tests.ledger.organisation_lineage.test_lineage_graph import KINDS, Play, check_account, events, names_known

REF = "did:web:hospital.example/scans/one"
RULE = Renyi(parse_number("0.00001", ""), (4, 8), (500, 500))
ROOM = 1_000


def market(knows: list[set[int]], weights: list[tuple[int, int]]) -> MemoryState:
    """Organisations that know these runs: each run authored by a body of its own, its model handed to who knows it."""
    state = MemoryState()
    terms = '{"delta":"0.00001","kind":"renyi","orders":[4,8],"slack":0,"v":1,"weights":[500,500]}'
    state.partitions[REF] = Partition(
        ref=REF,
        provider="did:web:hospital.example",
        dataset="scans",
        epsilon=parse_number("8", ""),
        delta=parse_number("0.00001", ""),
        relation="REPLACE_SPECIAL",
        unit="record",
        unit_records_max=1,
        records=1_000,
        data_key="k",
        terms=terms,
        opened=0,
        retired=False,
        index=0,
    )
    for run, price in enumerate(weights):
        index = 100 + run
        state.nodes[run] = Node(run, 0, NodeKind.ORGANISATION, f"did:web:author-{run}.example")
        state.charges[f"run-{run}"] = Charge(
            f"run-{run}", "", "", run, (REF,), "", 1, 1, ChargeState.POSTED, "", "", None, 0,
            ((REF, (Segment(1, (*price, 0)),)),), (), (), index,
        )  # fmt: skip
    for place, runs in enumerate(knows):
        node, did = 1_000 + place, f"did:web:bank-{place:02}.example"
        state.organisations[did] = Organisation(did, did, ("TDC",), node, ((0, node),), node)
        state.nodes[node] = Node(node, 0, NodeKind.ORGANISATION, did, tuple(Arrow(run) for run in sorted(runs)))
        loss = Loss((*(sum(weights[run][order] for run in runs) for order in (0, 1)), 0), (0, 0, 0))
        state.accounts[REF, holder_of(node)] = Account(REF, holder_of(node), loss, Loss.zero(3))
    return state


def over(knows: list[set[int]], weights: list[tuple[int, int]], members: tuple[int, ...]) -> bool:
    """Whether these are over at both orders, each run counted once."""
    runs = set().union(*(knows[one] for one in members))
    return all(sum(weights[run][order] for run in runs) > ROOM for order in (0, 1))


def least(knows: list[set[int]], weights: list[tuple[int, int]]) -> int | None:
    """The size of the least coalition that is over, by looking at all of them."""
    for size in range(1, len(knows) + 1):
        if any(over(knows, weights, members) for members in combinations(range(len(knows)), size)):
            return size
    return None


RUNS = 12
KNOWS = st.lists(st.sets(st.integers(0, RUNS - 1), max_size=5), min_size=1, max_size=8)
WEIGHTS = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), min_size=RUNS, max_size=RUNS)


def listed(state: MemoryState, work: int = 100_000, most: int = 100) -> SmallestCoalitions:
    """All of the smallest, of everybody."""
    return smallest_coalitions(
        state, REF, Cap(parse_number("8", ""), (ROOM, ROOM, 0)), list(state.organisations), work, most
    )


def test_a_question_records_nothing_and_counts_one_lineage_once() -> None:
    """Two bodies at one node are one lineage; nobody over, nobody named; nothing changes."""
    state = market([{0}, {1}], [(400, 400), (500, 500)])
    first = state.organisations["did:web:bank-00.example"]
    state.organisations["did:web:bank-09.example"] = Organisation(
        "did:web:bank-09.example", "", (), first.node, ((0, first.node),), 9
    )
    before = (dict(state.accounts), dict(state.nodes))
    assert listed(state) == SmallestCoalitions((), 2, complete=True)
    assert exposure_of(state, REF, list(state.organisations)).finite == (900, 900, 0)
    assert (state.accounts, state.nodes) == before


@settings(deadline=None, max_examples=200)
@given(KNOWS, WEIGHTS, st.integers(0, 60))
def test_every_smallest_coalition_is_listed_or_the_listing_says_how_far_it_came(
    knows: list[set[int]], weights: list[tuple[int, int]], work: int
) -> None:
    """Those of brute force, each with its share; and with too little work only such as are, none below the bound."""
    state, size = market(knows, weights), least(knows, weights)
    assert read_rule(state.partitions[REF].terms) == RULE
    dids = list(state.organisations)
    wanted = {
        tuple(dids[place] for place in members)
        for members in combinations(range(len(knows)), size or 0)
        if size and over(knows, weights, members)
    }
    full, short = listed(state), listed(state, work)
    assert {members for members, _ in full.coalitions} == wanted
    assert (full.complete, full.searched) == (True, size or len(knows))
    for members, share in full.coalitions:
        loss = exposure_of(state, REF, members)
        runs = set().union(*(knows[dids.index(did)] for did in members))
        assert loss.finite == (*(sum(weights[run][order] for run in runs) for order in (0, 1)), 0)
        assert share == RULE.share(loss, Cap(parse_number("8", ""), (ROOM, ROOM, 0)))
    assert {members for members, _ in short.coalitions} <= wanted
    assert size is None or short.searched <= size
    assert short.complete == (short.coalitions == full.coalitions and short.searched == full.searched)
    if len(wanted) > 1:
        few = listed(state, most=1)
        assert (len(few.coalitions), few.complete, few.searched) == (1, False, (size or 0) - 1)


def test_a_listing_among_hundreds_looks_at_no_more_than_it_may() -> None:
    """Three hundred bodies with a run each, of which any eleven are over: what was not searched is said."""
    many = [{run} for run in range(300)]
    found = listed(market(many, [(100, 100)] * 300), work=500)
    assert (found.searched, found.complete) == (10, False)
    assert all(len(members) == 11 for members, _ in found.coalitions)


def test_each_prefix_of_a_coalition_is_one_unit_of_work() -> None:
    """Four bodies of which any two are over: three begin a pair, six pairs are visited; one unit has to be left."""
    state = market([{run} for run in range(4)], [(600, 600)] * 4)
    assert [listed(state, work).complete for work in (1, 4, 9, 10, 11)] == [False, False, False, True, True]
    assert [listed(state, work).searched for work in (1, 9, 10)] == [1, 1, 2]
    assert [len(listed(state, work).coalitions) for work in (1, 2, 3, 9, 10)] == [0, 0, 1, 5, 6]


def test_as_many_as_may_be_listed_are_complete_and_those_of_most_use_come_first() -> None:
    """Six pairs where six may be listed; of fewer the pair that uses most is found first."""
    state = market([{run} for run in range(4)], [(510, 510), (700, 700), (520, 520), (600, 600)])
    for most, complete in ((5, False), (6, True), (7, True)):
        found = listed(state, most=most)
        assert (len(found.coalitions), found.complete) == (min(most, 6), complete)
    (first,) = listed(state, most=1).coalitions
    assert first == (("did:web:bank-01.example", "did:web:bank-03.example"), Fraction(13, 10))


@settings(deadline=None, max_examples=20)
@given(events(*KINDS, "publication"))
def test_a_named_coalition_is_the_union_of_what_its_members_know(sequence: list[Any]) -> None:
    """After any events: monotone, at most the sum of its parts, and exactly the sum over distinct runs."""
    play = Play()
    for kind, *numbers in sequence:
        play.event(kind, *numbers)
    facts, (one, other) = play.world.state, play.banks[:2]
    nodes = [facts.organisations[did].node for did in (one, other)]
    names = set().union(*(names_known(facts, node) for node in nodes))
    for ref in facts.partitions:
        both, parts = exposure_of(facts, ref, (one, other)), [exposure_of(facts, ref, (did,)) for did in (one, other)]
        facts.accounts[ref, "coalition"] = Account(ref, "coalition", both, Loss.zero(len(both.finite)))
        for place, total in enumerate(both.finite):
            assert max(part.finite[place] for part in parts) <= total <= sum(part.finite[place] for part in parts)
    for run in facts.charges.values():
        posted = run.steps_posted if run.steps_posted is not None else run.steps
        state = ChargeState.VOIDED if run.state is ChargeState.VOIDED else ChargeState.POSTED
        facts.charges[run.id] = _settled(run, state, posted)
    check_account(facts, "coalition", names)


def _settled(run: Charge, state: ChargeState, steps: int) -> Charge:
    return run._replace(state=state, steps_posted=steps if state is ChargeState.POSTED else None)
