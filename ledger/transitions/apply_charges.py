"""The entries of runs: what a charge, its key release and its settlement say, and how they change the state.

Nearly all entries of a book are of these kinds. What one says is read from the entry alone, as plain values that a
worker process can return; it is applied here, for the writer and for replay alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ledger.domain.commands import MakeCharge, Post, ReleaseKey
from ledger.domain.entries import Entry
from ledger.domain.facts import GLOBAL, Account, Charge, SigningKey, State, holder_of
from ledger.domain.lineage_graph import knowers
from ledger.domain.outcomes import ChargeState, Code
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, Segment, loss_of, parse_segments
from ledger.mechanisms.plan import RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed


class Charged(NamedTuple):
    """What a charge's entry says. ``prices``: each partition with its price as recorded, in canonical bytes."""

    id: str
    contract: str
    actor: str
    author: int
    partitions: tuple[str, ...]
    plan: str
    steps: int
    key_id: str
    signing: str
    sealing: str
    deadline: int
    prices: tuple[tuple[str, bytes], ...]
    recipients: tuple[str, ...]
    base: tuple[str, ...]
    pipeline: str | None


class Released(NamedTuple):
    """A key release and the charge it is for."""

    id: str
    charge: str


class Settled(NamedTuple):
    """What a charge is settled for; ``steps`` is None where the entry names no count."""

    charge: str
    steps: int | None
    outcome: str


Said = Charged | Released | Settled
Prices = tuple[tuple[str, tuple[Segment, ...]], ...]
"""Each partition of a charge with the pieces it is charged by."""
Places = tuple[tuple[str, str], ...]
"""Accounts, by partition and holder."""


def _charged(entry: Entry) -> Charged:
    body = entry.command_body
    assert isinstance(body, MakeCharge)
    recorded: Any = entry.body
    prices = tuple((ref, c.spelled(recorded["prices"][ref])) for ref in body.partitions)
    return charged(entry.id, entry.actor, recorded["author"], body, body.plan, prices)


def charged(  # noqa: PLR0913, PLR0917 - what an entry says, part by part
    name: str, actor: str, author: int, body: MakeCharge, plan: RunPlan, prices: tuple[tuple[str, bytes], ...]
) -> Charged:
    """What applying a charge takes of its entry."""
    signing = body.clean_room.signing
    return Charged(
        id=name,
        contract=body.contract,
        actor=actor,
        author=author,
        partitions=body.partitions,
        plan=plan.digest,
        steps=plan.steps,
        key_id=signing.thumbprint,
        signing=signing.x,
        sealing=body.clean_room.sealing.x,
        deadline=body.deadline,
        prices=prices,
        recipients=body.recipients,
        base=body.base,
        pipeline=body.pipeline,
    )


def _released(entry: Entry) -> Released:
    body = entry.command_body
    assert isinstance(body, ReleaseKey)
    return Released(entry.id, body.charge)


def _posted(entry: Entry) -> Settled:
    body = entry.command_body
    assert isinstance(body, Post)
    _check_outcome(entry, Code.POSTED)
    return Settled(body.charge, body.steps, entry.code.word)


def _closed(entry: Entry) -> Settled:
    named = entry.request["charge"]
    assert isinstance(named, str)
    _check_outcome(entry, Code.POSTED, Code.VOIDED)
    return Settled(named, None, entry.code.word)


def _check_outcome(entry: Entry, *codes: Code) -> None:
    if entry.code not in codes:
        raise Malformed("body.outcome", f"must be {' or '.join(one.word for one in codes)}")


READERS: Final[dict[str, Callable[[Entry], Said]]] = {
    "charge": _charged,
    "key_release": _released,
    "post": _posted,
    "void": _closed,
    "lapse": _closed,
}


class Sums:
    """What runs add to accounts, as counts of equal losses, to be put down together."""

    def __init__(self, state: State) -> None:
        """Nothing yet."""
        self._state = state
        self._counts: dict[tuple[int, int, int], _Count] = {}

    def add(self, places: Places, segments: tuple[Segment, ...], steps: int, posted: int, pending: int) -> None:
        """So many losses of the first ``steps`` steps more, at each place."""
        # By what they are and not by what they say, which is long; the count holds them, so no other gets their ids.
        key = id(places), id(segments), steps
        found = self._counts.get(key)
        if found is None:
            self._counts[key] = _Count(places, segments, steps, posted, pending)
        else:
            found.posted += posted
            found.pending += pending

    def put(self) -> None:
        """Put them down. Raises: AssertionError, where more would be taken away than there is."""
        # What is added first: on the way no sum is less than what it holds in the end.
        for count in sorted(self._counts.values(), key=lambda one: -one.pending):
            loss = loss_of(count.segments, count.steps)
            for place in count.places:
                ref, holder, posted, pending = self._state.accounts.get(place) or _empty(self._state, *place)
                more = Account(ref, holder, _moved(posted, loss, count.posted), _moved(pending, loss, count.pending))
                self._state.accounts[place] = more
        self._counts.clear()


@dataclass(slots=True)
class _Count:
    places: Places
    segments: tuple[Segment, ...]
    steps: int
    posted: int
    pending: int


def _moved(total: Loss, loss: Loss, count: int) -> Loss:
    if count == 0:
        return total
    many = loss if count in {1, -1} else loss.times(abs(count))
    return total + many if count > 0 else total - many


def make(state: State, said: Said, index: int, sums: Sums) -> None:
    """Apply what the entry at ``index`` says; what accounts gain goes to ``sums``.

    Raises:
        KeyError, AssertionError: where that cannot be.
    """
    if isinstance(said, Charged):
        _charge(state, said, index, sums)
    elif isinstance(said, Settled):
        _settle(state, said, sums)
    else:
        state.charges[said.charge] = state.charges[said.charge]._replace(key_release=said.id)


def _charge(state: State, said: Charged, index: int, sums: Sums) -> None:
    priced = _prices(said.prices)
    state.charges[said.id] = Charge(
        id=said.id,
        contract=said.contract,
        actor=said.actor,
        author=said.author,
        partitions=said.partitions,
        plan=said.plan,
        steps=said.steps,
        steps_posted=None,
        state=ChargeState.PENDING,
        key_id=said.key_id,
        sealing=said.sealing,
        key_release=None,
        deadline=said.deadline,
        prices=priced,
        recipients=said.recipients,
        base=said.base,
        index=index,
        pipeline=said.pipeline,
    )
    key = SigningKey(key_id=said.key_id, owner=said.actor, x=said.signing, charge=said.id, index=index)
    state.keys[said.key_id] = key
    state.contracts[said.contract] = state.contracts[said.contract].counting(1)
    for places, segments in _touched(state, said.author, index, priced):
        sums.add(places, segments, said.steps, 0, 1)


def _settle(state: State, said: Settled, sums: Sums) -> None:
    """Move what ran from pending to posted; the rest of it goes back to headroom."""
    found = state.charges[said.charge]
    assert found.state is ChargeState.PENDING, f"charge {found.id} is settled twice"
    posts = said.outcome == Code.POSTED.word
    steps = (found.steps if said.steps is None else said.steps) if posts else 0
    for places, segments in _touched(state, found.author, found.index, found.prices):
        sums.add(places, segments, found.steps, 0, -1)
        if steps:
            sums.add(places, segments, steps, 1, 0)
    state.charges[found.id] = found.settled(*((ChargeState.POSTED, steps) if posts else (ChargeState.VOIDED, None)))
    if not posts:
        state.contracts[found.contract] = state.contracts[found.contract].counting(-1)


def _touched(state: State, author: int, index: int, prices: Prices) -> Iterator[tuple[Places, tuple[Segment, ...]]]:
    """Per partition: everyone's account and those of all who may know this charge; and its price."""
    nodes = knowers(state.nodes, author, index)
    return ((_places(ref, nodes), segments) for ref, segments in prices)


@lru_cache(maxsize=4_096)
def _places(ref: str, nodes: frozenset[int]) -> Places:
    return (ref, GLOBAL), *((ref, holder_of(node)) for node in sorted(nodes))


def _empty(state: State, ref: str, holder: str) -> Account:
    zero = Loss.zero(len(read_rule(state.partitions[ref].terms).coordinates))
    return Account(ref, holder, zero, zero)


@lru_cache(maxsize=4_096)
def _prices(recorded: tuple[tuple[str, bytes], ...]) -> Prices:
    return tuple((ref, parse_segments(spelled)) for ref, spelled in recorded)
