"""Coalition questions against brute force over all subsets."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.facts import Account, Charge, Organisation, Partition, holder_of
from ledger.domain.lineage_graph import Arrow, Node, NodeKind
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import ChargeState
from ledger.filters import Cap, read_rule
from ledger.filters.renyi import Renyi
from ledger.lineage.coalitions import Answer, Listing, exposure_of, smallest_coalitions, smallest_over
from ledger.mechanisms.loss import Loss, Segment
from ledger.wire.exact_numbers import parse_number
from tests.core.test_lineage_model import KINDS, Play, check_account, events, names_known

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
        state.organisations[did] = Organisation(did, did, ("TDC",), node, node, ((0, node),))
        state.nodes[node] = Node(node, 0, NodeKind.ORGANISATION, did, tuple(Arrow(run) for run in sorted(runs)))
        loss = Loss((*(sum(weights[run][order] for run in runs) for order in (0, 1)), 0), (0, 0, 0))
        state.accounts[REF, holder_of(node)] = Account(REF, holder_of(node), loss, Loss.zero(3))
    return state


def over(knows: list[set[int]], weights: list[tuple[int, int]], members: tuple[int, ...]) -> bool:
    """Whether these are over at both orders, each run counted once."""
    runs = set().union(*(knows[one] for one in members))
    return all(sum(weights[run][order] for run in runs) > ROOM for order in (0, 1))


def asked(state: MemoryState) -> Answer:
    """The question, of everybody."""
    return smallest_over(state, REF, Cap(parse_number("8", ""), (ROOM, ROOM, 0)), list(state.organisations))


def least(knows: list[set[int]], weights: list[tuple[int, int]]) -> int | None:
    """The size of the least coalition that is over, by looking at all of them."""
    for size in range(1, len(knows) + 1):
        if any(over(knows, weights, members) for members in combinations(range(len(knows)), size)):
            return size
    return None


RUNS = 12
KNOWS = st.lists(st.sets(st.integers(0, RUNS - 1), max_size=5), min_size=1, max_size=8)
WEIGHTS = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), min_size=RUNS, max_size=RUNS)


@settings(deadline=None, max_examples=200)
@given(KNOWS, WEIGHTS)
def test_the_least_coalition_is_that_of_brute_force(knows: list[set[int]], weights: list[tuple[int, int]]) -> None:
    """Its size, that it is over, and its share, which is that of the union."""
    state, answer, size = market(knows, weights), None, least(knows, weights)
    assert read_rule(state.partitions[REF].terms) == RULE
    answer = asked(state)
    assert answer.exact
    assert len(answer.members) == (size or 0)
    assert answer.bound == (size or len(knows) + 1)
    named = answer.members or tuple(state.organisations)
    places = tuple(list(state.organisations).index(did) for did in named)
    assert over(knows, weights, places) == (size is not None)
    loss = exposure_of(state, REF, named)
    runs = set().union(*(knows[place] for place in places))
    assert loss.finite == (*(sum(weights[run][order] for run in runs) for order in (0, 1)), 0)
    assert answer.share == RULE.share(loss, Cap(parse_number("8", ""), (ROOM, ROOM, 0)))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sets(st.integers(0, RUNS - 1), max_size=4), min_size=1, max_size=6),
    WEIGHTS,
    st.integers(0, 2**30),
)
def test_beyond_twenty_the_answer_is_greedy_and_its_bound_holds(
    knows: list[set[int]], weights: list[tuple[int, int]], seed: int
) -> None:
    """Each of six bodies' runs dealt out to four: the greedy coalition is over, and none below the bound is."""
    many = [{run for run in runs if (seed >> run) % 4 != part} for runs in knows for part in range(4)]
    answer, size = asked(market(many, weights)), None
    if len(many) <= 8 or not answer.members:
        size = least(many, weights) if len(many) <= 8 else None
        assert (size or 0) == len(answer.members)
        return
    places = tuple(int(did[13:15]) for did in answer.members)
    assert over(many, weights, places)
    assert answer.bound <= len(answer.members)
    assert not any(over(many, weights, one) for one in combinations(range(len(many)), min(answer.bound - 1, 3)))
    for place in places:
        assert answer.exact or not over(many, weights, tuple(one for one in places if one != place))


def test_greedy_says_so_and_search_does_better() -> None:
    """The heaviest body overlaps with the two that are enough: greed takes three, and up to twenty a search two."""
    knows: list[set[int]] = [{0, 2}, {0, 1}, {2, 3}, {4}]
    weights = [(300, 300), (201, 201), (300, 300), (201, 201), (350, 350)] + [(1, 1)] * 22
    for singles, size, exact in ((0, 2, True), (16, 2, True), (17, 3, False), (22, 3, False)):
        answer = asked(market([*knows, *({5 + place} for place in range(singles))], weights))
        assert (len(answer.members), answer.exact, answer.bound) == (size, exact, 2), singles


def test_a_question_records_nothing_and_counts_one_lineage_once() -> None:
    """Two bodies at one node are one lineage; nobody over, nobody named; nothing changes."""
    state = market([{0}, {1}], [(400, 400), (500, 500)])
    first = state.organisations["did:web:bank-00.example"]
    state.organisations["did:web:bank-09.example"] = Organisation(
        "did:web:bank-09.example", "", (), first.node, 9, ((0, first.node),)
    )
    before = (dict(state.accounts), dict(state.nodes))
    answer = asked(state)
    assert (answer.members, answer.exact, answer.bound) == ((), True, 3)
    assert answer.share * ROOM == 900
    assert (state.accounts, state.nodes) == before


def listed(state: MemoryState, work: int = 100_000, most: int = 100) -> Listing:
    """All of the smallest, of everybody."""
    return smallest_coalitions(
        state, REF, Cap(parse_number("8", ""), (ROOM, ROOM, 0)), list(state.organisations), work, most
    )


@settings(deadline=None, max_examples=200)
@given(KNOWS, WEIGHTS, st.integers(0, 60))
def test_every_smallest_coalition_is_listed_or_the_listing_says_how_far_it_came(
    knows: list[set[int]], weights: list[tuple[int, int]], work: int
) -> None:
    """Those of brute force, each with its share; and with too little work only such as are, none below the bound."""
    state, size = market(knows, weights), least(knows, weights)
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
        assert share == RULE.share(exposure_of(state, REF, members), Cap(parse_number("8", ""), (ROOM, ROOM, 0)))
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
