"""Check one entry by deciding it again: its outcome must follow from the state before it and the recorded verdict.

Everything that the book itself decided is decided again. What the policy decided is decided again if its gate is
given; otherwise the recorded verdict is used. Numbers computed in floats are not searched for again, since another
machine's arithmetic ends a search elsewhere: the recorded prices and capacities are each checked by their own evidence
(:mod:`ledger.audit.recorded_prices`), and the writer left room for that check. They decide everything that follows:
who, where, which limits, which alerts, and whether there was room (:func:`check_fits`). The ε of a run, which only
policies read, may differ by ``EPSILON_SLACK``, so that a close verdict does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from msgspec import structs

from ledger.accounts.account_loss import counted_loss
from ledger.audit.recorded_prices import FOUND_ELSEWHERE, RecordedPrices, keeps, read_cap
from ledger.commands.context import Context, PendingCommand
from ledger.commands.decide import decide_unsigned, signing_key
from ledger.commands.entry import Entry
from ledger.commands.registration.document import EnterDocument, signers
from ledger.commands.registration.partition import PARTITION, OpenPartition, opening
from ledger.commands.registry import KINDS
from ledger.commands.runs.charge import CHARGE
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.commands.runs.priced_charge import PricedCharge, price
from ledger.commands.signing_keys.key_authority import require_key_in_force
from ledger.crypto.organisation_keys import SignerKey
from ledger.domain.charge_record import grouped
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import GLOBAL, Facts, holder_of
from ledger.domain.gate import APPEARANCES_MAX, Caps, Gate, Header, Request, Verdict
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import Code
from ledger.domain.partition_ranges import partitions_within
from ledger.filters import PureSum, Rule, read_rule
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number, parse_number
from ledger.wire.field_types import TIME_MAX
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert

Witness = Callable[[str, bytes, SignerKey], None]
"""A detached JWS, the bytes it is over, and the key that it must verify with."""
EPSILON_SLACK: Final = Fraction(1, 10**9)
"""How far the ε of a run may differ, relatively and absolutely: it is reported in billionths, rounded up."""
NEARLY_FULL: Final = Fraction(999, 1_000)
"""An account used to at least this share may have been refused a run that fits here: the loss was overstated."""
ZERO: Final = Fraction(0)
PERMIT: Final = Verdict(permit=True, checks=(), until=TIME_MAX)
"""A recorded verdict that is used as it is, for every entry with the same bytes."""


def check_before(  # noqa: PLR0913, PLR0917 - the state, what is claimed and where, and who decides and verifies
    facts: Facts, entry: Entry, index: int, log_x: str, witness: Witness, gate: Gate | None = None
) -> PricedCharge | None:
    """Check an entry against the facts before it; return the priced charge of a pending one.

    Args:
        log_x: the log's first public key, which alone signs a lapse until an entry replaces it.
        witness: receives every signature over an entry's command, to verify now or later.
        gate: decides again what the policy decided; without one, the recorded verdicts are used.

    Raises:
        Malformed, Rejected, KeyError: the first error.
    """
    command = entry.command
    pending = PendingCommand(command, entry.command_body, command.to_bytes(), entry.signature)
    key = signing_key(facts, pending, log_x)
    require_key_in_force(facts, command.key_id, entry.time, ends_suspension=KINDS[entry.kind].ends_suspension)
    witness(entry.signature, pending.raw, key)
    refused = entry.code.refused
    if isinstance(pending.body, EnterDocument) and refused:
        signers(facts, pending.body, entry.time)
    if gate is None and refused:
        return None
    deciding = _recorded_gate(entry) if gate is None else _lenient(gate, entry.code)
    try:
        if refused:
            _check_refused(facts, pending, index, deciding, entry)
        elif entry.kind == CHARGE.name:
            return _check_pending(CHARGE.context(facts, pending, entry.time, index, deciding), entry)
        elif entry.kind == PARTITION.name:
            _check_opened(PARTITION.context(facts, pending, entry.time, index, deciding), entry)
        else:
            numbers = structs.replace(pending, prices=FOUND_ELSEWHERE)
            decided = decide_unsigned(facts, numbers, entry.time, index, deciding)
            _check_code(decided, entry)
            _compare(decided.derived, entry)
            if entry.body.keys() - decided.derived.keys() - {"outcome", "request"}:
                raise Malformed("body", "records more than what follows from the entries before")
    except Rejected as refusal:
        _check_code(refusal.decided, entry)
    return None


def _check_code(decided: Decision, entry: Entry) -> None:
    if decided.code is not entry.code:
        raise Malformed("body.outcome", f"is {entry.code.word}, but {decided.code.word} follows: {decided.detail}")


def _check_refused(facts: Facts, pending: PendingCommand, index: int, gate: Gate, entry: Entry) -> None:
    """A refusal is decided by numbers computed here; a refusal for lack of room is accepted if hardly any is left."""
    decided = decide_unsigned(facts, pending, entry.time, index, gate)
    if (entry.code, decided.code) == (Code.BUDGET_EXHAUSTED, Code.PENDING):
        rooms = price(CHARGE.context(facts, pending, entry.time, index, gate)).rooms(facts)
        if max(room.used for room in rooms) >= NEARLY_FULL:
            return
    _check_code(decided, entry)


def _check_pending(context: Context[MakeCharge], entry: Entry) -> PricedCharge:
    """Decided by the recorded numbers; :func:`check_fits` checks whether there was room."""
    _check_code(Decision(Code.PENDING), entry)
    facts = context.facts
    numbers = RecordedPrices(entry, groups=_members(entry, facts))
    priced = price(structs.replace(context, prices=numbers))
    _compare(priced.derived(), entry)
    if entry.body.get("refund", "") != priced.refund:
        raise Malformed("body.refund", "is not what follows from the entries before")
    if entry.body.get("alerts", []) != priced.alerts(facts, numbers):
        _check_alerts(facts, priced, entry)
    if any(limit.limit.counts_rounded for limit in priced.limits) and priced.full(facts):
        raise Malformed("body.outcome", "is pending, but with the part of others rounded up there was no room")
    return priced


def _check_alerts(facts: Facts, priced: PricedCharge, entry: Entry) -> None:
    """An entry lists shares crossed under some capacity that a search may find, and all that are crossed under each.

    Only accounts that are watched and not capped have a capacity that is not recorded.
    """
    computed = (priced.alerts(facts, RecordedPrices(entry, elsewhere)) for elsewhere in (-1, 0, 1))
    crossed = [set(map(c.spelled, crossing)) for crossing in computed]
    recorded: Any = entry.body.get("alerts", [])
    alerts = list(map(c.spelled, recorded))
    if len(set(alerts)) != len(alerts) or not set.intersection(*crossed) <= set(alerts) <= set.union(*crossed):
        raise Malformed("body.alerts", "is not what follows from the entries before")


def _lenient(gate: Gate, code: Code) -> Gate:
    """The gate with the ε of a run moved a little towards the recorded verdict: it came from floats.

    It also permits what an earlier program permitted without a check that was added later (``Request.permitted``).
    """
    denied = code is Code.POLICY_DENIED
    sign = 1 if denied else -1

    def decide(request: Request, facts: Facts) -> Verdict:
        # What the gate permits with caps, the ledger may refuse.
        exact = gate(replace(request, permitted=not code.refused), facts)
        if exact.permit is not denied:
            return exact
        epsilon = tuple(
            (ref, max(epsilon + sign * (epsilon * EPSILON_SLACK + EPSILON_SLACK), ZERO))
            for ref, epsilon in request.epsilon
        )
        return gate(replace(request, epsilon=epsilon, permitted=not denied), facts)

    return decide


def _recorded_gate(entry: Entry) -> Gate:
    def gate(_request: Request, facts: Facts) -> Verdict:
        recorded = entry.body.get("header")
        header = None if recorded is None else convert(Header, recorded, "body.header")
        return replace(PERMIT, header=header, caps=_caps(entry, facts), refund=str(entry.body.get("refund", "")))

    return gate


def _caps(entry: Entry, facts: Facts) -> tuple[tuple[str, Caps], ...]:
    body = entry.command_body
    if isinstance(body, OpenPartition):
        recorded: Any = entry.body["caps"]
        epsilons = [parse_number(cap["epsilon"], "body.caps.epsilon") for cap in recorded]
        return ((body.ref, Caps(epsilons[0], epsilons[-1])),)
    caps: dict[str, dict[str, Fraction]] = {}
    members = _members(entry, facts)
    alerts = _alerts(entry, facts)
    limits: Any = entry.body.get("limits", [])
    # The caps of coalitions are the book's own, and are decided again.
    pending = {GLOBAL, holder_of(facts.organisations[entry.actor].node)} if limits else set()
    for limit in (limit for limit in limits if limit["holder"] in pending):
        epsilon = parse_number(limit["cap"]["epsilon"], "body.limits.cap.epsilon")
        kind = GLOBAL if limit["holder"] == GLOBAL else "lineage"
        if "share" in limit:
            kind, epsilon = "share", parse_number(limit["share"], "body.limits.share")
        caps.setdefault(limit["partition"], {})[kind] = epsilon
    return tuple(
        (
            ref,
            Caps(
                recorded_limits.get(GLOBAL),
                recorded_limits["lineage"],
                recorded_limits.get("share"),
                alerts.get(ref, ()),
                appearances=_appearances(facts, first, limits),
            ),
        )
        for first, recorded_limits in caps.items()
        for ref in members.get(first, (first,))
    )


def _appearances(facts: Facts, ref: str, limits: Sequence[Any]) -> int:
    """The least number of slices of a stream a person may be in, by which the recorded caps of coalitions follow.

    The book records their parts, and only policies read streams. One for a partition that is no slice.
    """
    partition, least = facts.partitions[ref], 1
    streams = facts.streams.get((partition.provider, partition.dataset), ())
    if not any(stream.index < partition.index for stream in streams):
        return least
    for limit in limits:
        number = str(limit["holder"]).rpartition(":")[2]
        node = facts.nodes.get(int(number)) if number.isdecimal() else None
        if limit["partition"] == ref and node is not None and node.epsilon is not None:
            parts = range(least, APPEARANCES_MAX + 1)
            recorded = parse_number(limit["cap"]["epsilon"], "body.limits.cap.epsilon")
            stated = node.epsilon, partition.epsilon
            found = (part for part in parts if Caps(None, recorded, appearances=part).of_coalition(*stated) <= recorded)
            least = next(found, least)
    return least


def _charged_to(entry: Entry, facts: Facts) -> tuple[str, ...]:
    """The partitions of a charge that names ranges, in its order; none of any other."""
    body = entry.command_body
    if not isinstance(body, MakeCharge) or not body.ranges:
        return ()
    return partitions_within(facts, body.partitions, body.ranges)


def _members(entry: Entry, facts: Facts) -> dict[str, tuple[str, ...]]:
    """The partitions of each group that a charge's entry records, by the first one. Raises: Malformed."""
    partitions: Any = _charged_to(entry, facts)
    recorded: Any = entry.body.get("groups", [])
    try:
        members = grouped(partitions, tuple((number, count) for number, count in recorded))
    except ValueError as error:
        raise Malformed("body.groups", str(error)) from None
    return {refs[0]: refs for refs in members}


def _alerts(entry: Entry, facts: Facts) -> dict[str, tuple[Fraction, ...]]:
    """Per partition the recorded shares: each must have been crossed by the recorded account and no other."""
    alerts: Any = entry.body.get("alerts", [])
    partitions = _charged_to(entry, facts) if alerts else ()
    shares: dict[str, set[Fraction]] = {}
    for alert in alerts:
        share, runs = parse_number(alert["share"], "body.alerts.share"), alert.get("places")
        refs = (
            (alert["partition"],)
            if runs is None
            else [ref for first, count in runs for ref in partitions[first : first + count]]
        )
        for ref in refs:
            shares.setdefault(ref, set()).add(share)
    return {ref: tuple(sorted(places)) for ref, places in shares.items()}


def _compare(derived: c.Object, entry: Entry) -> None:
    for name, value in derived.items():
        if entry.body.get(name) != value:
            raise Malformed(f"body.{name}", "is not what follows from the entries before")


def _check_opened(context: Context[OpenPartition], entry: Entry) -> None:
    """Terms of the requested budget, and no cap that allows more than its ε does."""
    body = context.body
    opening(context)
    _check_code(Decision(Code.PERMITTED), entry)
    recorded_terms = c.dump(entry.body["terms"]).decode()
    rule = read_rule(recorded_terms)
    terms = rule.to_json()
    delta, epsilon = format_number(body.delta), format_number(body.epsilon)
    expected = {"delta": delta, "kind": body.rule if rule.delta else PureSum.kind(), "epsilon": epsilon}
    for name, value in expected.items():
        if terms.get(name, value) != value:
            raise Malformed(f"body.terms.{name}", "is not what the partition requested")
    caps: Any = entry.body["caps"]
    if not caps or caps[0]["epsilon"] != epsilon:
        raise Malformed("body.caps", "does not begin with the budget")
    if not all(keeps(recorded_terms, cap) for cap in caps):
        raise Malformed("body.caps", "allows more than the budget does")


def check_fits(state: MemoryState, entry: Entry) -> None:
    """An applied charge leaves every account it was limited by within the recorded capacity. Raises: Malformed."""
    if entry.code is not Code.PENDING:
        return
    charge = state.charges[entry.id]
    limits: Any = entry.body["limits"]
    pending = {(limit["partition"], limit["holder"]) for limit in limits}
    members = {refs[0]: refs for refs, _ in charge.price_groups}
    for ref in members:
        if (ref, holder_of(charge.author)) not in pending:
            raise Malformed("body.limits", f"do not bind the author's lineage on {ref}")
    for limit in limits:
        cap = read_cap(limit["cap"])
        for ref in members[limit["partition"]]:
            partition = state.partitions[ref]
            if cap.epsilon > partition.epsilon:
                raise Malformed("body.limits.cap.epsilon", f"is above the budget of {ref}")
            rule: Rule = read_rule(partition.terms)
            account = state.accounts[ref, limit["holder"]]
            if not rule.admits(counted_loss(state, account), cap):
                raise Malformed("body.outcome", f"is pending, but {limit['holder']} of {ref} had no room")
