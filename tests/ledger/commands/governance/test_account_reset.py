"""Decrees against a model that remembers every step: what counts is what was not settled when one was entered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.accounts.account_loss import counted_loss
from ledger.domain.facts import GLOBAL, Account, holder_of
from ledger.domain.outcomes import ChargeState
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from tests.factories.documents import dense_plan
from tests.factories.memory import PermissiveWorld, ref_of
from tests.factories.people import BANKS, HOSPITAL, SRO

STEPS: Final = 200
"""Of one run; two of them fit the partition, and many more of parts of one."""
REF: Final = ref_of("one")
TWO: Final = BANKS[:2]


def founded() -> PermissiveWorld:
    """One small partition and a contract for each of two banks, made once."""
    world = PermissiveWorld.settled()
    world.lineage = parse_number("6", "")
    assert world.open("one", "6").code.word == "permitted"
    for bank in TWO:
        world.contract(bank)
    return world


FOUNDED: Final = founded()


@dataclass
class Remembered:
    """Per charge who made it, what was settled and whether it is open; per holder which settled runs were let go."""

    runs: dict[str, tuple[str, int | None, bool]] = field(default_factory=dict)
    forgiven: dict[str, frozenset[str]] = field(default_factory=dict)

    def counting(self, holder: str, bank: str | None, segments: tuple[Segment, ...], width: int) -> Loss:
        """What an account's holder stands at; everyone's where no bank is named."""
        total = Loss.zero(width)
        for name, (who, posted, pending) in self.runs.items():
            if bank in {None, who}:
                if pending:
                    total += loss_of(segments, STEPS)
                elif posted is not None and name not in self.forgiven.get(holder, frozenset()):
                    total += loss_of(segments, posted)
        return total


def decree(world: PermissiveWorld, holder: str) -> str:
    """The word that an SRO's order gets."""
    body: c.Object = {"holder": holder, "partition": REF, "reason": "by order"}
    return world.decide("decree", f"decree-{world.index}", SRO, body).code.word


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["charge", "charge", "charge", "post", "post", "void", "decree"]),
        st.sampled_from([None, None, *TWO]),
        st.integers(0, 20),
        st.sampled_from([0, STEPS // 2, STEPS, STEPS]),
    ),
    min_size=6,
    max_size=14,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS)
def test_what_counts_after_decrees_is_what_was_not_settled_before_them(
    events: list[tuple[str, str | None, int, int]],
) -> None:
    """Admission, every account's counted loss and the lifetime, after each event and after a merger at the end."""
    world = FOUNDED.fork()
    seen, rule = Remembered(), read_rule(world.state.partitions[REF].terms)
    digests = {one.consumer: name for name, one in world.state.contracts.items()}
    cap, width = rule.cap(parse_number("6", "")), len(rule.coordinates)
    holders: dict[str | None, str] = {
        None: GLOBAL,
        **{bank: holder_of(world.state.organisations[bank].node) for bank in TWO},
    }
    segments: tuple[Segment, ...] = ()
    for verb, bank, which, steps in events:
        open_runs = [name for name, one in seen.runs.items() if one[2]]
        if verb == "charge":
            name, who = f"run-{world.index}", bank or TWO[0]
            decided = world.decide_charge(name, who, digests[who], ("one",), dense_plan(STEPS))
            if decided.code.word == "pending":
                segments = dict(world.state.charges[name].prices)[REF]
                seen.runs[name] = (who, None, True)
            else:
                assert segments, "the first run fits"
                more = loss_of(segments, STEPS)
                at = [seen.counting(holders[one], one, segments, width) + more for one in (None, who)]
                assert not all(rule.admits(one, cap) for one in at)
        elif verb == "decree":
            own = [name for name, (who, posted, _) in seen.runs.items() if posted and bank in {None, who}]
            assert decree(world, holders[bank]) == ("permitted" if own else "conflict")
            if own:
                seen.forgiven[holders[bank]] = frozenset(own)
        elif open_runs:
            name = open_runs[which % len(open_runs)]
            who = seen.runs[name][0]
            assert (world.post(name, steps) if verb == "post" else world.decide_void(name)).code.refused is False
            seen.runs[name] = (who, steps if verb == "post" else None, False)
        for one, holder in holders.items():
            account = world.state.accounts.get((REF, holder)) or Account(
                REF, holder, Loss.zero(width), Loss.zero(width)
            )
            assert counted_loss(world.state, account) == seen.counting(holder, one, segments, width)
            assert account.loss == Remembered(seen.runs).counting(holder, one, segments, width)
            assert rule.admits(counted_loss(world.state, account), cap)
    _merged(world, Remembered(seen.runs).counting("", None, segments, width))


def _merged(world: PermissiveWorld, lifetime: Loss) -> None:
    """A decree on a parent's account is none on that of the body they become."""
    assert world.merge(BANKS[2], TWO).code.word == "permitted"
    holder = holder_of(world.state.organisations[BANKS[2]].node)
    account = world.state.accounts.get((REF, holder))
    assert (lifetime.empty if account is None else counted_loss(world.state, account) == lifetime) is True


def test_only_an_sro_decrees_and_only_on_what_was_settled() -> None:
    """Pending counts on, whatever is ordered; a TDP, or the account of nobody, is refused."""
    world = FOUNDED.fork()
    digests = {one.consumer: name for name, one in world.state.contracts.items()}
    assert world.decide_charge("a", TWO[0], digests[TWO[0]], ("one",), dense_plan(STEPS)).code.word == "pending"
    assert decree(world, GLOBAL) == "conflict"
    assert world.state.charges["a"].state is ChargeState.PENDING
    body: c.Object = {"holder": GLOBAL, "partition": REF, "reason": "by order"}
    assert world.decide("decree", "by-hospital", HOSPITAL, body).code.word == "not_authorised"
    nowhere: c.Object = {**body, "partition": ref_of("nowhere")}
    assert world.decide("decree", "nowhere", SRO, nowhere).code.word == "not_found"
