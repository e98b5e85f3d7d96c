"""The life of a charge: pending, then posted or voided; and the releases that hang on it.

A charge is laid on all its partitions or on none. Every account it touches is asked by its partition's rule;
one that has no room refuses the whole, and the refusal names every such account and how much would fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ledger.domain.commands import MakeCharge, Post, ReleaseKey, ReleaseModel, Settle
from ledger.domain.facts import GLOBAL, Charge, Facts, Organisation, Partition, holder_of
from ledger.domain.gate import Caps, Check, Gate, Request, Verdict
from ledger.domain.lineage_graph import coalitions_of
from ledger.domain.outcomes import ChargeState, Code
from ledger.filters import NoRoom
from ledger.mechanisms.loss import Segment
from ledger.transitions.alerts import crossed
from ledger.transitions.guards import Decision, PendingCommand, Rejected, require_permit, require_role
from ledger.transitions.headroom import CODE, Limit, Room, silent
from ledger.transitions.mergers_and_transfers import check_named
from ledger.transitions.pricing import COMPUTED, Bound, PriceSource, prices_of
from ledger.wire import canonical_json as c

DEADLINE_MS_MAX: Final = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class Laid:
    """A charge on every account that it touches, before any of them is asked for room."""

    body: MakeCharge
    author: Organisation
    partitions: tuple[Partition, ...]
    caps: tuple[tuple[str, Caps], ...]
    prices: tuple[tuple[str, tuple[Segment, ...]], ...]
    limits: list[Limit]

    def rooms(self, facts: Facts) -> list[Room]:
        """Every account before and after."""
        by_partition = dict(self.prices)
        return [Room.of(facts, limit, by_partition[limit.partition], self.body.plan.steps) for limit in self.limits]

    def derived(self) -> c.Object:
        """What its entry records of it; but for the alerts."""
        return {
            "author": self.author.node,
            "limits": [limit.to_json() for limit in self.limits],
            "plan": self.body.plan.digest,
            "prices": {ref: [one.to_json() for one in segments] for ref, segments in self.prices},
        }

    def alerts(self, facts: Facts, numbers: PriceSource) -> list[c.Json]:
        """What it crosses."""
        steps, author = self.body.plan.steps, self.author.node
        return crossed(facts, self.partitions, dict(self.caps), dict(self.prices), steps, author, numbers)


def charge(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """Reserve a whole run's loss on every account it touches, or refuse it with every reason."""
    del index
    prices = prices_of(pending)
    laid = lay(facts, pending, now, gate, prices)
    own = holder_of(laid.author.node)
    # Every account says yes, or nothing is charged: the refusal names all that have no room.
    if full := [room.check(own) for room in laid.rooms(facts) if not room.enough]:
        raise _no_room(full)
    alerts = laid.alerts(facts, prices)
    return Decision(Code.PENDING, derived={**laid.derived(), **({"alerts": alerts} if alerts else {})})


def lay(facts: Facts, pending: PendingCommand, now: int, gate: Gate, numbers: PriceSource) -> Laid:
    """Everything that is decided of a charge but whether there is room. Raises: Malformed, Rejected."""
    body = pending.body
    assert isinstance(body, MakeCharge)
    author = require_role(facts, pending, "TDC")
    partitions = _partitions(facts, body)
    _fresh_clean_room(facts, body)
    check_named(facts, body, author.node)
    if not now < body.deadline <= now + DEADLINE_MS_MAX:
        rule = "must lie after now and within thirty days of it"
        raise Rejected(Code.MALFORMED, f"body.deadline: {rule}", "body.deadline")
    prices = tuple((one.ref, numbers.price(one, body)) for one in partitions)
    told = tuple((one.ref, numbers.epsilon(one, body)) for one in partitions)
    verdict = require_permit(gate, Request(pending.command, body, now, epsilon=told), facts)
    limits = limits_on(facts, partitions, verdict, author, numbers)
    return Laid(body, author, partitions, verdict.caps, prices, limits)


def _partitions(facts: Facts, body: MakeCharge) -> tuple[Partition, ...]:
    if body.contract not in facts.contracts:
        raise Rejected(Code.NOT_FOUND, f"there is no contract {body.contract}", "body.contract")
    for place, ref in enumerate(body.partitions):
        if ref not in facts.partitions:
            raise Rejected(Code.NOT_FOUND, f"there is no partition {ref}", f"body.partitions[{place}]")
    return tuple(facts.partitions[ref] for ref in body.partitions)


def _fresh_clean_room(facts: Facts, body: MakeCharge) -> None:
    if body.clean_room.signing.thumbprint in facts.keys:
        detail = "the clean room's signing key is in use: one clean room, one run"
        raise Rejected(Code.CONFLICT, detail, "body.clean_room.signing")


def limits_on(
    facts: Facts,
    partitions: tuple[Partition, ...],
    verdict: Verdict,
    author: Organisation,
    numbers: PriceSource = COMPUTED,
) -> list[Limit]:
    """Every cap that binds a charge by this author. Raises: Rejected, if one has no room for anything."""
    own = [_limit(bound, numbers) for bound in _bounds(partitions, dict(verdict.caps), author)]
    return [*own, *_coalition_limits(facts, partitions, author.node, numbers)]


def _bounds(partitions: tuple[Partition, ...], caps: dict[str, Caps], author: Organisation) -> Iterator[Bound]:
    holder = holder_of(author.node)
    for partition in partitions:
        named = caps[partition.ref]
        if named.everyone is not None:
            yield Bound(partition, GLOBAL, named.everyone)
        yield Bound(partition, holder, named.lineage, source=named.lineage_source)
        if named.share is not None:
            yield Bound(partition, holder, partition.epsilon, named.share, named.share_source)


def _limit(bound: Bound, numbers: PriceSource) -> Limit:
    try:
        return Limit(bound.partition.ref, bound.holder, numbers.cap(bound), bound.share, bound.source)
    except NoRoom as closed:
        check = Check("cap_closed", passed=False, text=f"{bound.partition.ref}: {closed}")
        raise Rejected(Code.POLICY_DENIED, check.text, "", {"checks": [check.to_json()]}) from None


def _coalition_limits(
    facts: Facts, partitions: tuple[Partition, ...], author: int, numbers: PriceSource
) -> Iterator[Limit]:
    """The caps of every coalition that follows the author; never beyond a partition's own budget."""
    for coalition in coalitions_of(facts.nodes, author):
        epsilon, holder = facts.nodes[coalition].epsilon, holder_of(coalition)
        assert epsilon is not None
        for partition in partitions:
            try:
                cap = numbers.cap(Bound(partition, holder, min(epsilon, partition.epsilon)))
            except NoRoom:
                full = Check(CODE, passed=False, text=silent(partition.ref, enough=False), source=holder)
                raise _no_room([full]) from None
            yield Limit(partition.ref, holder, cap)


def _no_room(full: list[Check]) -> Rejected:
    detail = "; ".join(check.text for check in full)
    return Rejected(Code.BUDGET_EXHAUSTED, detail, "", {"checks": [check.to_json() for check in full]})


def key_release(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """From this entry on the data keys count as released, arrived or not."""
    del index
    body = pending.body
    assert isinstance(body, ReleaseKey)
    found = _of_clean_room(facts, pending, body.charge)
    _still_pending(found)
    if found.key_release is not None:
        raise Rejected(
            Code.CONFLICT,
            f"the keys of charge {found.id} were released by {found.key_release}",
            "body.charge",
        )
    if body.evidence not in facts.documents:
        raise Rejected(Code.NOT_FOUND, f"no evidence {body.evidence} was stored", "body.evidence")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED)


def post(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """Settle for the steps that ran, on the clean room's word: at most what was pending."""
    del index
    body = pending.body
    assert isinstance(body, Post)
    found = _of_clean_room(facts, pending, body.charge)
    _still_pending(found)
    if body.steps > found.steps:
        raise Rejected(Code.MALFORMED, f"body.steps: at most the {found.steps} that were charged", "body.steps")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.POSTED)


def void(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """Settle for nothing, by the TDC or the clean room, as long as no key was released."""
    del index
    body = pending.body
    assert isinstance(body, Settle)
    found = _known(facts, body.charge)
    if pending.command.key_id != found.key_id:
        author = require_role(facts, pending, "TDC")
        if author.did != found.actor:
            raise Rejected(Code.NOT_AUTHORISED, f"charge {found.id} is not {author.did}'s", "actor")
    _still_pending(found)
    if found.key_release is not None:
        detail = f"the keys of charge {found.id} were released: post what ran, zero steps included"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.VOIDED)


def lapse(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """A deadline passed: posted in full if the key was released, voided if not."""
    del index, gate
    body = pending.body
    assert isinstance(body, Settle)
    found = _known(facts, body.charge)
    _still_pending(found)
    if now <= found.deadline:
        raise Rejected(Code.CONFLICT, f"the deadline of charge {found.id} has not passed", "body.charge")
    return Decision(Code.VOIDED if found.key_release is None else Code.POSTED)


def model_release(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """The trained model leaves the clean room, or does not: after what ran was posted."""
    del index
    body = pending.body
    assert isinstance(body, ReleaseModel)
    found = _of_clean_room(facts, pending, body.charge)
    if found.state is not ChargeState.POSTED or found.key_release is None:
        detail = f"charge {found.id} is {found.state}: a model leaves after its run was posted"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED)


def _known(facts: Facts, name: str) -> Charge:
    found = facts.charges.get(name)
    if found is None:
        raise Rejected(Code.NOT_FOUND, f"there is no charge {name}", "body.charge")
    return found


def _of_clean_room(facts: Facts, pending: PendingCommand, name: str) -> Charge:
    found = _known(facts, name)
    if pending.command.key_id != found.key_id:
        raise Rejected(Code.NOT_AUTHORISED, f"only the clean room of charge {name} may ask for this", "key_id")
    return found


def _still_pending(found: Charge) -> None:
    if found.state is not ChargeState.PENDING:
        raise Rejected(Code.CONFLICT, f"charge {found.id} is {found.state} already", "body.charge")
