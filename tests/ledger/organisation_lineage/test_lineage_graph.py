"""Any sequence of lineage events: the graph knows what plain sets know, and every account is the sum over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.charge_record import Charge
from ledger.domain.decision import Decision
from ledger.domain.facts import GLOBAL, Facts, holder_of
from ledger.domain.organisation_graph import END, SUCCESSION, NodeKind, knowers
from ledger.domain.outcomes import ChargeState
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.organisation_lineage.exposure import known_spans
from tests.factories.documents import NOW, dense_plan
from tests.factories.memory import PermissiveWorld, ref_of
from tests.factories.people import BANKS, LATE, SRO
from tests.ledger.organisation_lineage.run_sets import replayed

PARTITIONS: Final = ("one", "two")
BASE: Final = PermissiveWorld.settled()
BASE.lineage = Fraction(1)
for _partition in PARTITIONS:
    assert BASE.open(_partition).code.word == "permitted"
BASE.everyone, BASE.lineage = False, Fraction(127)
BASE.clock.now += 1
ZERO: Final = Loss.zero(len(read_rule(BASE.state.partitions[ref_of("one")].terms).coordinates))
CONTRACTS: Final = {bank: BASE.contract(bank) for bank in BANKS}


@dataclass
class Play:
    """A world, and the log of what happened in it, for the model to play."""

    world: PermissiveWorld = field(default_factory=BASE.fork)
    log: list[tuple[int, int, tuple[Any, ...]]] = field(default_factory=list)
    suspects: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    planned: bool = False

    def __post_init__(self) -> None:
        """Everyone is registered before the first event."""
        for one in BASE.state.organisations.values():
            self.log.append((NOW, one.node, ("register", one.did)))
        self.sets = replayed(self.log, [])

    @property
    def banks(self) -> list[str]:
        """Those registered, in order."""
        return [did for did in (*BANKS, LATE) if did in self.world.state.organisations]

    def did(self, place: int) -> str:
        """A bank by number."""
        return self.banks[place % len(self.banks)]

    def note(self, decided: Decision, *event: Any) -> bool:  # noqa: ANN401 - what the event names
        """What was permitted is played; whether it was."""
        if decided.code.refused:
            return False
        self.log.append((self.world.clock.now, self.world.index - 1, event))
        if event[0] == "collusion":
            self.sets = replayed(self.log, self.suspects)
        else:
            self.sets.play(self.world.index - 1, *event)
        return True

    def event(self, kind: str, one: int, other: int, more: int) -> None:
        """One event, as three numbers say."""
        self.world.clock.now += 1
        getattr(self, f"do_{kind}")(one, other, more)

    def do_charge(self, one: int, other: int, more: int) -> None:
        """A run on one partition or both, sometimes with its recipient named."""
        name, did = f"run-{self.world.index}", self.did(one)
        where = (("one",), ("two",), PARTITIONS)[other % 3]
        # A loud run is infinite at the higher orders; its ε takes a second for each number of steps.
        steps, noise, probability = ((4, "2", "0.1"), (4, "2", "0.1"), (2, "0.3", "1"))[more % 3]
        named: dict[str, Any] = {"recipients": [self.did(one + 1)]} if more % 2 else {}
        named = {"recipients": "everyone"} if more % 4 == 2 else named
        contract = CONTRACTS[BANKS[one % len(BANKS)]]
        decided = self.world.decide_charge(
            name, did, contract, where, dense_plan(1 + more % steps, noise, probability), **named
        )
        if decided.code.word != "budget_exhausted":
            assert self.note(decided, "charge", name, did), decided.detail

    def _pending(self, one: int) -> Charge | None:
        waiting = [run for run in self.world.state.charges.values() if run.state is ChargeState.PENDING]
        return waiting[one % len(waiting)] if waiting else None

    def do_post(self, one: int, other: int, more: int) -> None:
        """A run settles for some of its steps."""
        del more
        found = self._pending(one)
        assert found is None or not self.world.post(found.id, other % (found.steps + 1)).code.refused

    def do_void(self, one: int, other: int, more: int) -> None:
        """A run is given up, or lapses."""
        found = self._pending(one)
        if found and (other + more) % 2:
            assert not self.world.decide_void(found.id).code.refused
        elif found:
            now, self.world.clock.now = self.world.clock.now, found.deadline + 1
            assert self.world.decide_lapse(found.id).code.word == "voided"
            self.world.clock.now = now

    def do_merge(self, one: int, other: int, more: int) -> None:
        """A merger or an acquisition, refused exactly where it is one lineage already."""
        into, parents = self.did(one), tuple(dict.fromkeys((self.did(other), self.did(more))))
        body: Any = {"organisation": into, "parents" if more % 2 else "acquired": [*parents]}
        decided = self.world.decide("merger" if more % 2 else "acquisition", f"e-{self.world.index}", SRO, body)
        same = len({self.sets.stands[did] for did in (into, *parents)}) == 1
        assert self.note(decided, "merge", (into, *parents)) != same

    def do_split(self, one: int, other: int, more: int) -> None:
        """A split, refused where the child knows it all."""
        del more
        parent, child = self.did(one), self.did(other)
        body: Any = {"organisation": parent, "child": child}
        stands, knows = self.sets.stands, self.sets.knows
        known_all = stands[parent] != stands[child] and knows[stands[parent]] <= knows[stands[child]]
        decided = self.world.decide("split", f"e-{self.world.index}", SRO, body)
        assert self.note(decided, "split", parent, child) != (known_all or parent == child)

    def do_transfer(self, one: int, other: int, more: int) -> None:
        """A model handed over by anyone who knows it, refused where it brings nothing."""
        runs = list(self.world.state.charges.values())
        if not runs:
            return
        found, recipient = runs[one % len(runs)], self.did(other)
        givers = [did for did in self.banks if found.id in self.sets.knows[self.sets.stands[did]]]
        giver = givers[more % len(givers)]
        stood = {self.world.state.nodes[node].kind for _, node in self.world.state.organisations[giver].moves}
        declared = {recipient, "everyone"} & {*found.recipients}
        planned = giver == found.actor and bool(declared) and NodeKind.COLLUSION not in stood
        given = self.sets.ancestry[found.id] if planned else self.sets.knows[self.sets.stands[giver]]
        nothing = given <= self.sets.knows[self.sets.stands[recipient]]
        body: Any = {"charge": found.id, "giver": giver, "recipient": recipient}
        decided = self.world.decide("transfer", f"e-{self.world.index}", SRO, body)
        done = self.note(decided, "transfer", found.id, giver, recipient, planned)
        assert done != nothing, decided.detail
        self.planned |= planned and done

    def do_publication(self, one: int, other: int, more: int) -> None:
        """A model made public."""
        runs = list(self.world.state.charges.values())
        if not runs or (one + other + more) % 3:
            return
        found = runs[one % len(runs)]
        body: Any = {"charge": found.id}
        stood = {self.world.state.nodes[node].kind for _, node in self.world.state.organisations[found.actor].moves}
        planned = found.recipients == ("everyone",) and NodeKind.COLLUSION not in stood
        given = self.sets.ancestry[found.id] if planned else self.sets.knows[self.sets.stands[found.actor]]
        decided = self.world.decide("publication", f"e-{self.world.index}", SRO, body)
        if decided.code.refused:
            assert given <= self.sets.public
        done = self.note(decided, "publication", found.actor, found.id if planned else "")
        self.planned |= planned and done

    def do_coalition(self, one: int, other: int, more: int) -> None:
        """A coalition of two or three."""
        members = tuple(dict.fromkeys((self.did(one), self.did(one + 1), self.did(other))))
        body: Any = {"members": [*members], "epsilon": "127"}
        decided = self.world.decide("coalition", f"e-{self.world.index}", SRO, body)
        assert self.note(decided, "coalition", members), (decided.detail, more)

    def do_collusion(self, one: int, other: int, more: int) -> None:
        """Found now, since the time of some event."""
        first = max(found.moves[0][0] for found in self.world.state.organisations.values())
        dids = (self.did(one), self.did(one + 1))
        times = [time for time, _, _ in self.log if time >= first] or [self.world.clock.now]
        since = (*times, self.world.clock.now)[more % (len(times) + 1)]
        body: Any = {"organisations": [*dids], "effective": since}
        self.suspects.append((since, dids))
        if not self.note(
            self.world.decide("collusion", f"e-{self.world.index}", SRO, body), "collusion", len(self.suspects) - 1
        ):
            assert other >= 0
            self.suspects.pop()

    def do_register(self, one: int, other: int, more: int) -> None:
        """The last bank comes late."""
        del one, other, more
        if LATE not in self.world.state.organisations:
            assert self.note(self.world.register(LATE, "TDC"), "register", LATE)

    def check(self) -> None:
        """What each node knows is what the model says, and every account is the sum over it."""
        facts, collusions = self.world.state, len(self.suspects)
        standing = {one.node for one in facts.organisations.values()}
        assert {did: one.node for did, one in facts.organisations.items()} == self.sets.stands
        for node, at in facts.nodes.items():
            mine, naive = names_known(facts, node), self.sets.knows[node]
            if not collusions:
                assert mine == naive, node
            elif node in standing or at.kind not in SUCCESSION:
                assert mine >= naive, node
                assert mine == naive or collusions > 1 or self.planned, node
            check_account(facts, holder_of(node), mine)
        check_account(facts, GLOBAL, set(facts.charges))


def names_known(facts: Facts, node: int) -> set[str]:
    """The ids of the charges that a node knows, by its spans."""
    spans = known_spans(facts.nodes, node, END)
    return {
        one.id
        for one in facts.charges.values()
        if any(span.author == one.author and span.first <= one.index < span.before for span in spans)
    }


def check_account(facts: Facts, holder: str, names: set[str]) -> None:
    """The account of a holder is the plain sum over these charges, pending and posted apart."""
    for ref in facts.partitions:
        account = facts.accounts.get((ref, holder))
        posted = pending = ZERO
        for run in (facts.charges[name] for name in names):
            segments = dict(run.prices).get(ref)
            if segments is not None and run.state is ChargeState.PENDING:
                pending += loss_of(segments, run.steps)
            elif segments is not None:
                posted += loss_of(segments, run.steps_posted or 0)
        kept = (account.posted, account.pending) if account else (ZERO, ZERO)
        assert kept == (posted, pending), (holder, ref)


KINDS: Final = ("charge", "charge", "charge", "post", "void", "merge", "split", "transfer", "transfer", "coalition")
NUMBER: Final = st.integers(0, 11)


def events(*kinds: str) -> st.SearchStrategy[list[tuple[str, int, int, int]]]:
    """Sequences of events of these kinds."""
    return st.lists(st.tuples(st.sampled_from(kinds), NUMBER, NUMBER, NUMBER), min_size=4, max_size=18)


@pytest.mark.parametrize(
    "kinds",
    [
        KINDS,
        (*KINDS, "publication", "register"),
        (*KINDS, "collusion"),
        (*KINDS, "collusion", "publication"),
        ("charge", "charge", "coalition", "split", "split", "merge"),
    ],
    ids=" ".join,
)
def test_every_account_is_the_sum_over_what_plain_sets_know(kinds: tuple[str, ...]) -> None:
    """After each event, for every lineage that is or was, every model, every publication and every coalition."""

    @settings(deadline=None, max_examples=30)
    @given(events(*kinds))
    def hold(sequence: list[tuple[str, int, int, int]]) -> None:
        play = Play()
        for kind, *numbers in sequence:
            before = {node: names_known(play.world.state, node) for node in play.world.state.nodes}
            play.event(kind, *numbers)
            play.check()
            for node, names in before.items():
                assert names <= names_known(play.world.state, node), "what is known is never forgotten"

    hold()


@settings(deadline=None, max_examples=20)
@given(events(*KINDS, "publication", "collusion"))
def test_reach_and_knowers_are_each_others_inverse(sequence: list[tuple[str, int, int, int]]) -> None:
    """A node's spans hold a run exactly if the run's knowers hold the node."""
    play = Play()
    for kind, *numbers in sequence:
        play.event(kind, *numbers)
    nodes = play.world.state.nodes
    knows = {node: names_known(play.world.state, node) for node in nodes}
    for run in play.world.state.charges.values():
        assert {node for node, names in knows.items() if run.id in names} == knowers(nodes, run.author, run.index)
