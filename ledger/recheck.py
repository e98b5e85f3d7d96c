"""Check one entry anew: what was decided must be what the same facts and the recorded verdict lead to.

Everything the book itself decided is decided again; what the policy decided is, too, where its gate is given, and
is taken as recorded where not. Numbers that came out of floats are checked as bounds, never as equalities: a recorded
price is at least, a recorded capacity at most, what computing it here gives; and the ε of a run, which only policies
ask for, may differ by ``TOLD_SLACK``, so that another machine's arithmetic does not turn a verdict that was close.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from ledger import canonical as c
from ledger.commands import EnterDocument, MakeCharge, OpenPartition, parse_ref
from ledger.decide import decide, signing_key
from ledger.decision import Asked
from ledger.decrees import standing
from ledger.entering import signers
from ledger.entries import Entry
from ledger.gate import Caps, Gate, Header, Request, Verdict
from ledger.loss import Segment
from ledger.malformed import Malformed
from ledger.organisation_key import SignerKey
from ledger.outcomes import Code
from ledger.registry import GLOBAL, Facts, State, holder_of
from ledger.rules import Cap, Rule, read_rule
from ledger.runs import read_prices
from ledger.units import parse_number

Witness = Callable[[str, bytes, SignerKey], None]
"""A detached JWS, the bytes it is over, and the key that it must verify with."""
TOLD_SLACK: Final = Fraction(1, 10**9)
"""How far the ε of a run may differ, relatively and absolutely: it is told in billionths, rounded up."""
ZERO: Final = Fraction(0)


def check_before(  # noqa: PLR0913, PLR0917 - what stands, what is claimed and where, and who decides and verifies
    facts: Facts, entry: Entry, index: int, log_x: str, witness: Witness, gate: Gate | None = None
) -> None:
    """Check an entry against the facts before it.

    Args:
        log_x: the log's public key, which alone signs a lapse.
        witness: is given every signature over an entry's command, to verify now or later.
        gate: decides again what the policy decided; without one, its verdicts are taken as recorded.

    Raises:
        Malformed, Refusal, KeyError: whatever is the matter.
    """
    command = entry.command
    asked = Asked(command, entry.asked, command.to_bytes(), entry.signature)
    key = signing_key(facts, asked, log_x)
    witness(entry.signature, asked.raw, key)
    asked = replace(asked, verified_by=key.x)
    refused = entry.code.refused
    if isinstance(asked.body, EnterDocument) and refused:
        signers(facts, asked.body)
    if gate is None and refused:
        return
    deciding = _recorded_gate(entry) if gate is None else _lenient(gate, refused=refused)
    decided = decide(facts, asked, entry.time, index, deciding, log_x)
    if decided.code is not entry.code:
        raise Malformed("body.outcome", f"is {entry.code.word}, but {decided.code.word} follows: {decided.detail}")
    if refused:
        return
    if isinstance(asked.body, OpenPartition):
        _check_terms(asked.body, entry)
    else:
        _compare(decided.derived, entry)


def _lenient(gate: Gate, *, refused: bool) -> Gate:
    """The gate, told the ε of a run a little to the recorded verdict's side: it came out of floats."""
    sign = 1 if refused else -1

    def ask(request: Request, facts: Facts) -> Verdict:
        exact = gate(request, facts)
        if exact.permit is not refused:
            return exact
        told = tuple((ref, max(one + sign * (one * TOLD_SLACK + TOLD_SLACK), ZERO)) for ref, one in request.epsilon)
        return gate(replace(request, epsilon=told), facts)

    return ask


def _recorded_gate(entry: Entry) -> Gate:
    def gate(request: Request, facts: Facts) -> Verdict:
        del request
        header = entry.body.get("header")
        return Verdict(permit=True, checks=(), header=_header(header) if header else None, caps=_caps(entry, facts))

    return gate


def _header(recorded: Any) -> Header:  # noqa: ANN401 - JSON as recorded
    return Header(**{**recorded, "providers": tuple(recorded["providers"])})


def _caps(entry: Entry, facts: Facts) -> tuple[tuple[str, Caps], ...]:
    body = entry.asked
    if isinstance(body, OpenPartition):
        named: Any = entry.body["caps"]
        epsilons = [parse_number(cap["epsilon"], "body.caps.epsilon") for cap in named]
        return ((body.ref, Caps(epsilons[0], epsilons[-1])),)
    caps: dict[str, dict[str, Fraction]] = {}
    alerts = _alerts(entry)
    limits: Any = entry.body.get("limits", [])
    # The caps of coalitions are the book's own, and are decided again.
    asked = {GLOBAL, holder_of(facts.organisations[entry.actor].node)} if limits else set()
    for limit in (one for one in limits if one["holder"] in asked):
        epsilon = parse_number(limit["cap"]["epsilon"], "body.limits.cap.epsilon")
        kind = GLOBAL if limit["holder"] == GLOBAL else "lineage"
        if "share" in limit:
            kind, epsilon = "share", parse_number(limit["share"], "body.limits.share")
        caps.setdefault(limit["partition"], {})[kind] = epsilon
    return tuple(
        (ref, Caps(found.get(GLOBAL), found["lineage"], found.get("share"), alerts.get(ref, ())))
        for ref, found in caps.items()
    )


def _alerts(entry: Entry) -> dict[str, tuple[Fraction, ...]]:
    """Per partition the shares that were told: each must have been crossed, by whom it was told of and no other."""
    told: Any = entry.body.get("alerts", [])
    shares: dict[str, set[Fraction]] = {}
    for one in told:
        shares.setdefault(one["partition"], set()).add(parse_number(one["share"], "body.alerts.share"))
    return {ref: tuple(sorted(found)) for ref, found in shares.items()}


def _compare(derived: c.Object, entry: Entry) -> None:
    for name, value in derived.items():
        recorded = entry.body.get(name)
        if name == "prices":
            _check_prices(value, recorded)
        elif name == "limits":
            _check_limits(value, recorded)
        elif recorded != value:
            raise Malformed(f"body.{name}", "is not what follows from the entries before")


def _check_prices(ours: Any, recorded: Any) -> None:  # noqa: ANN401 - JSON
    if ours.keys() != recorded.keys():
        raise Malformed("body.prices", "names other partitions than the charge")
    for ref in ours:
        for mine, theirs in zip(read_prices(ours[ref]), read_prices(recorded[ref]), strict=True):
            if (mine.steps, mine.unit) != (theirs.steps, theirs.unit) or not _at_least(theirs, mine):
                raise Malformed("body.prices", f"of {ref} is below what the plan costs")


def _at_least(theirs: Segment, mine: Segment) -> bool:
    pairs = zip(theirs.price, mine.price, strict=True)
    return all(high is None or (low is not None and high >= low) for high, low in pairs)


def _check_limits(ours: Any, recorded: Any) -> None:  # noqa: ANN401 - JSON
    for mine, theirs in zip(ours, recorded, strict=True):
        if (mine["partition"], mine["holder"]) != (theirs["partition"], theirs["holder"]):
            raise Malformed("body.limits", "name other accounts than the charge touches")
        if mine["cap"]["epsilon"] != theirs["cap"]["epsilon"] or mine.get("share") != theirs.get("share"):
            raise Malformed("body.limits.cap.epsilon", "is not what follows from the entries before")
        _check_cap(theirs["cap"], mine["cap"])


def _check_cap(theirs: Any, mine: Any) -> None:  # noqa: ANN401 - JSON
    pairs = list(zip(theirs["capacity"], mine["capacity"], strict=True))
    if any(bound is not None and (own is None or bound > own) for bound, own in pairs):
        raise Malformed("body.limits.cap", "allows more than the budget does")


def _check_terms(body: OpenPartition, entry: Entry) -> None:
    rule = read_rule(c.dump(entry.body["terms"]).decode())
    terms = rule.to_json()
    wanted = {"delta": body.delta, "kind": body.rule if rule.delta else "pure", "epsilon": body.epsilon}
    for name, value in wanted.items():
        if terms.get(name, value) != value:
            raise Malformed(f"body.terms.{name}", "is not what the partition asked for")
    caps: Any = entry.body["caps"]
    if not caps or caps[0]["epsilon"] != body.epsilon:
        raise Malformed("body.caps", "does not begin with the budget")
    for cap in caps:
        _check_cap(cap, rule.cap(parse_number(cap["epsilon"], "body.caps.epsilon")).to_json())


def check_fits(state: State, entry: Entry) -> None:
    """An applied charge leaves every account it was limited by within the recorded capacity. Raises: Malformed."""
    if entry.code is not Code.PENDING:
        return
    body = entry.asked
    assert isinstance(body, MakeCharge)
    author = state.charges[entry.id].author
    limits: Any = entry.body["limits"]
    asked = {(limit["partition"], limit["holder"]) for limit in limits}
    for ref in body.partitions:
        if (parse_ref(ref, "body.partitions"), holder_of(author)) not in asked:
            raise Malformed("body.limits", f"do not bind the author's lineage on {ref}")
    for limit in limits:
        partition = state.partitions[limit["partition"]]
        if _cap(limit["cap"]).epsilon > partition.epsilon:
            raise Malformed("body.limits.cap.epsilon", f"is above the budget of {partition.ref}")
        rule: Rule = read_rule(partition.terms)
        account = state.accounts[limit["partition"], limit["holder"]]
        if not rule.admits(standing(state, account), _cap(limit["cap"])):
            raise Malformed("body.outcome", f"is pending, but {limit['holder']} of {limit['partition']} had no room")


def _cap(recorded: Any) -> Cap:  # noqa: ANN401 - JSON as recorded
    return _read_cap(c.spelled(recorded))


@lru_cache(maxsize=4_096)
def _read_cap(spelled: bytes) -> Cap:
    recorded: Any = c.parse(spelled, len(spelled))
    return Cap(parse_number(recorded["epsilon"], "body.limits.cap.epsilon"), tuple(recorded["capacity"]))
