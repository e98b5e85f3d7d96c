"""A charge: one run's loss laid on all its partitions or on none, pending until it is settled.

Every account that it touches is checked by its partition's rule. If one has no room, the whole charge is refused, and
the refusal names every such account and how much would fit.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from msgspec import Struct, structs

from ledger.accounts.headroom import CODE, GroupLimit, Room, beyond_count, runs_within_count
from ledger.accounts.limits import no_room
from ledger.commands.command_kind import CommandKind
from ledger.commands.context import Context
from ledger.commands.runs.charge_entry import MakeCharge, Reserved, effect, shared_terms
from ledger.commands.runs.charge_reader import read_request
from ledger.commands.runs.priced_charge import DEADLINE_MS_MAX, PricedCharge, price
from ledger.commands.verdict_cache import VerdictCache
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Facts, holder_of
from ledger.domain.gate import Check, Verdict
from ledger.domain.outcomes import Code
from ledger.domain.partition_ranges import in_words
from ledger.domain.roles import TDC
from ledger.wire import canonical_json as c


class CachedCharge(NamedTuple):
    """One admitted charge; those with the same :func:`verdict_key` have its price, verdict and recorded values.

    Attributes:
        derived: what its entry records beside the request.
        answered: what its answer adds to the entry.
        derived_bytes: ``derived`` and the outcome in canonical bytes.
    """

    priced: PricedCharge
    derived: c.Object
    answered: c.Object
    derived_bytes: bytes


def decide(context: Context[MakeCharge]) -> Decision:
    """Reserve a whole run's loss on every account that it touches, or refuse it with every reason."""
    cache: VerdictCache[CachedCharge] | None = context.kept
    if cache is None:
        return _admit(context, price(context))
    key, body = verdict_key(context), context.body
    cached = cache.get(key)
    own = OwnTerms(body.contract, body.deadline, body.clean_room.signing.thumbprint)
    valid = cached is not None and still_holds(context.facts, cached.priced.verdict, own, context.now)
    if cached is not None and valid and _has_room(context, cache, cached):
        decided = _admission(context, *cached)
        if cache.is_sampled():
            _compare(context, decided)
        return decided
    cache.forget_room()
    priced = price(context)
    decided = _admit(context, priced)
    # A charge that chooses a rule has chosen it only once its entry is there.
    if priced.verdict.until is not None and not context.body.base and not priced.chooses_rule(context.facts):
        derived = priced.derived()
        cache.keep(key, CachedCharge(priced, derived, priced.answered(), _canonical(derived)))
    return decided


def _has_room(context: Context[MakeCharge], cache: VerdictCache[CachedCharge], cached: CachedCharge) -> bool:
    """Whether every account has room for one more such charge: counted since the one before it, or looked up."""
    facts, priced = context.facts, cached.priced
    if not priced.body.ranges and cache.takes_room(cached):
        return True
    if _beyond_count(context, priced) is not None:
        return False
    if priced.body.ranges:
        # To count how many fit would take longer than to check whether one does.
        cache.forget_room()
        return not priced.full(facts)
    rooms = [*priced.rooms(facts)]
    if not all(room.enough for room in rooms):
        return False
    cache.note_room(cached, lambda: _runs_that_fit(context, rooms))
    return True


def _runs_that_fit(context: Context[MakeCharge], rooms: list[Room]) -> int:
    """How many more such runs certainly fit in these accounts."""
    losses = {room.limit.partition: room.run for room in rooms}
    within = runs_within_count(context.facts.accounts, losses, context.now)
    return min(within, min((room.runs for room in rooms), default=0))


def _beyond_count(context: Context[MakeCharge], priced: PricedCharge) -> str | None:
    return beyond_count(context.facts.accounts, (partition.ref for partition in priced.partitions), context.now)


def _admit(context: Context[MakeCharge], priced: PricedCharge) -> Decision:
    """Admit a priced charge, or refuse it for lack of room."""
    # All or nothing: the refusal names every account that has no room.
    if full := priced.full(context.facts):
        raise no_room([check for limit in full for check in _checks(context.facts, priced, limit)])
    if (ref := _beyond_count(context, priced)) is not None:
        text = f"the charges on {ref} have too great a sum at one coordinate: open another partition"
        raise no_room([Check(CODE, passed=False, text=text)])
    return _admission(context, priced, priced.derived(), priced.answered())


def _checks(facts: Facts, priced: PricedCharge, full: GroupLimit) -> list[Check]:
    """A refusal's checks: one for each account without room, or for a charge with ranges one for each holder."""
    own, segments = holder_of(priced.author.node), dict(priced.prices)
    first = next(group[0].ref for group in priced.groups if full.partitions[0] in {member.ref for member in group})
    rooms = [*full.rooms(facts, segments[first], priced.body.plan.steps)]
    if not priced.body.ranges:
        return [room.check(facts.accounts, own) for room in rooms]
    refs = [partition.ref for partition in priced.partitions]
    fullest = max(rooms, key=lambda room: room.used).check(facts.accounts, own)
    text = f"no room on {len(rooms)} of {len(refs)} partitions: {in_words(refs, full.partitions)}; {fullest.text}"
    return [Check(fullest.code, passed=False, text=text, source=fullest.source)]


def _admission(
    context: Context[MakeCharge],
    priced: PricedCharge,
    derived: c.Object,
    answered: c.Object,
    derived_bytes: bytes = b"",
) -> Decision:
    if alerts := priced.alerts(context.facts, context.prices):
        return Decision(Code.PENDING, derived={**derived, "alerts": alerts}, answered=answered)
    return Decision(Code.PENDING, derived=derived, spelled=derived_bytes, answered=answered)


def _canonical(derived: c.Object) -> bytes:
    """The canonical bytes of a pending charge's entry without its request."""
    return c.dump({**derived, "outcome": Code.PENDING.word})


def verdict_key(context: Context[MakeCharge]) -> Hashable:
    """Everything in a charge that its price and its verdict depend on: charges with equal keys share both."""
    command = context.command
    return (
        command.actor,
        command.key_id,
        # Equal digests are compared faster than equal plans.
        context.body.plan.digest,
        shared_terms(context.body),
    )


class OwnTerms(Struct, frozen=True):
    """What differs between charges that share a verdict, and is compared with the time and the state each time."""

    contract: str
    deadline: int
    key_id: str


def still_holds(facts: Facts, verdict: Verdict, own: OwnTerms, now: int) -> bool:
    """Whether a cached verdict permits this charge now (ms), but for the room in its accounts."""
    return (
        verdict.until is not None
        and now < verdict.until
        and now < own.deadline <= now + DEADLINE_MS_MAX
        and (verdict.runs_max is None or facts.contracts[own.contract].runs < verdict.runs_max)
        and own.key_id not in facts.keys
    )


def _compare(context: Context[MakeCharge], decided: Decision) -> None:
    """Decide a charge without the cache too. Raises: AssertionError, if the decisions differ."""
    try:
        full = _admit(context, price(context))
    except Rejected as refusal:
        full = refusal.decided
    cached = f"charge {context.command.id} was admitted by a cached verdict"
    assert structs.replace(full, spelled=decided.spelled) == decided, f"{cached}, and is not without it"
    assert not decided.spelled or decided.spelled == _canonical(full.derived), f"{cached}, and its bytes differ"


CHARGE: Final = CommandKind(
    "charge", MakeCharge, decide, (TDC,), "/v1/charges", effect=effect, recorded=Reserved, read_bytes=read_request
)
