"""Set the log's time back after a clock was far ahead, signed by every SRO with an open partition.

Entries never go back in time, so a log whose clock was once in another decade would stay there: every contract ended,
every deadline wrong. A clock correction names the newest entry's time (``ahead``) and the time from which entries go on
(``time``). It is an entry like any other, made at ``ahead``; the entry after it may have any time from ``time`` on, and
from there times never decrease again. Each SRO signs its claim, which holds the id of the command: an id is used once,
and so is a signature.

**Nothing of the log's own that time has closed opens again**, and nothing recorded is touched. What depends on time,
one by one:

- *Accounts*: unchanged. No loss is taken back, and no decree undone.
- *Lapsed, posted and voided charges* stay what they are.
- *Deadlines of pending charges* move back by as much as the time does: each keeps the time that it had left, and one
  that has passed has still passed.
- *Partitions*: one that is retired stays retired. Each keeps the age that it had, so one that its policy's age limit
  has closed stays closed; new records open a new one.
- *Policies*: a version that came into force stays in force, and keeps its place in time beside the partitions that it
  binds; so the highest Level and the least caps since a partition opened stay as they are. A version that was to come
  into force later still does, at its own date.
- *Contracts*: one that has ended stays ended. Its parties sign a next version, with dates of the corrected time. One
  that is in force by its dates goes on; one whose start lies ahead again has not begun.
- *Keys*: one that is bound to a charge stays bound. An organisation's key that was revoked stays revoked, one that has
  retired stays retired, and one that is in force goes on. A contract that is revoked stays revoked.
- *Release notices*: a notice period that is not over by the corrected time runs on; a model that was announced at a
  later time is announced again.
- *Lineage*: what was recorded while the clock was ahead counts as later than any date that a report of collusion can
  name, until that time comes: more is joined by it, never less.
- *Dates inside documents*, of a contract's waivers and of a policy's attesters, are people's own and are not moved:
  each is compared with the time of the entry. One that had ended only by the clock that was ahead counts again until it
  comes. Who wants it ended enters a next version without it.
- *Attestations* bear the times of others, and each answers a fresh challenge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.crypto import detached_jws
from ledger.domain.charge_record import Charge
from ledger.domain.command import REASON_MAX
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Facts, Partition, PolicyVersion
from ledger.domain.key_terms import KeyTerms, key_refusal
from ledger.domain.outcomes import ChargeState, Code
from ledger.domain.roles import SRO
from ledger.wire.field_types import Name, Time, constant, distinct, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write

SIGNERS_MAX: Final = 32
EARLIEST_MS: Final = -62_000_000_000_000
"""A date of the year 5: no time moves further back, so that every date can be written."""
Signature = Annotated[str, text(detached_jws.SIGNATURE_BYTES_MAX)]


class ClockClaim(Record, frozen=True):
    """The claim that every SRO signs: the command without its signatures, under its id."""

    ahead: Time
    id: Name
    reason: Annotated[str, text(REASON_MAX)]
    time: Time
    kind: Literal["clock_correction"] = constant("clock_correction")


class CorrectClock(Record, frozen=True):
    """The time of entries goes back from ``ahead``, the newest entry's, to ``time``; SROs' detached JWS."""

    ahead: Time
    time: Time
    reason: Annotated[str, text(REASON_MAX)]
    signatures: Annotated[tuple[Signature, ...], distinct(SIGNERS_MAX)]

    def claim(self, command_id: str) -> bytes:
        """The bytes that every SRO signs."""
        return write(ClockClaim(self.ahead, command_id, self.reason, self.time))


def open_sros(facts: Facts) -> frozenset[str]:
    """The SROs with an open partition: the issuers of the policies of every partition that is not retired."""
    domains = {
        facts.datasets[partition.provider, partition.dataset].domain
        for partition in facts.partitions.values()
        if not partition.retired
    }
    return frozenset(facts.policies[domain][-1].issuer for domain in domains)


def decide(context: Context[CorrectClock]) -> Decision:
    """Decide a correction."""
    facts, body = context.facts, context.body
    if body.time >= body.ahead:
        raise Rejected(Code.MALFORMED, "body.time: must lie before body.ahead", "body.time")
    if body.ahead != context.now:
        detail = (
            f"the log's time is {context.now}, not {body.ahead}: set the service's clock right, then name that time"
        )
        raise Rejected(Code.CONFLICT, detail, "body.ahead")
    claim = body.claim(context.command.id)
    signed = {_signer(context, claim, signature, place) for place, signature in enumerate(body.signatures)}
    missing = sorted((open_sros(facts) | {context.command.actor}) - signed)
    if missing:
        detail = f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} not signed the correction"
        raise Rejected(Code.SIGNATURE_MISSING, detail, "body.signatures")
    return context.permit()


def _signer(context: Context[CorrectClock], claim: bytes, signature: str, place: int) -> str:
    """The organisation that signed the claim. Raises: Rejected."""
    where = f"body.signatures[{place}]"
    try:
        key = context.facts.keys.get(detached_jws.key_id_of(signature))
        if key is not None and key.charge is None:
            if refusal := key_refusal(context.facts, key.key_id, context.now):
                raise Rejected(Code.SIGNATURE_INVALID, refusal, where)
            detached_jws.verify(signature, claim, key.public)
            return key.owner
    except Malformed as error:
        raise Rejected(Code.SIGNATURE_INVALID, str(error), where) from None
    raise Rejected(Code.SIGNATURE_INVALID, "was made with a key that no organisation has registered", where)


def apply(change: Change[CorrectClock]) -> None:
    """Move every stored time back by the same amount; see the module."""
    state, body = change.state, change.body
    for name in [name for name, charge in state.charges.items() if charge.state is ChargeState.PENDING]:
        state.change_charge(name, lambda charge: corrected(charge, body))
    for ref, partition in [*state.partitions.items()]:
        state.partitions[ref] = _partition(partition, body)
    for domain, versions in [*state.policies.items()]:
        state.policies[domain] = tuple(_version(version, body) for version in versions)
    for document, contract in [*state.contracts.items()]:
        if body.time < contract.ends <= body.ahead:
            state.contracts[document] = contract._replace(ends=body.time)
    for key_id, terms in [*state.key_terms.items()]:
        state.key_terms[key_id] = _terms(terms, body)


def corrected(charge: Charge, body: CorrectClock) -> Charge:
    """A charge after a correction: with the time that it had left, if it is pending."""
    if charge.state is not ChargeState.PENDING:
        return charge
    return charge._replace(deadline=_earlier(charge.deadline, body))


def _partition(partition: Partition, body: CorrectClock) -> Partition:
    """A partition with the age that it had."""
    return replace(partition, opened=_earlier(partition.opened, body))


def _terms(terms: KeyTerms, body: CorrectClock) -> KeyTerms:
    """The terms of a key that stays in force if it was, and retired if it was."""
    starts = min(terms.starts, body.time) if terms.starts <= body.ahead else terms.starts
    until = terms.until
    if until is not None and until <= body.ahead:
        until = min(until, body.time)
    return terms._replace(starts=starts, until=until)


def _version(version: PolicyVersion, body: CorrectClock) -> PolicyVersion:
    """A policy version, in force for as long as before; versions keep their order even at the earliest date."""
    if version.effective > body.ahead:
        return version
    return replace(version, effective=_earlier(version.effective, body, EARLIEST_MS + version.version))


def _earlier(time: int, body: CorrectClock, earliest: int = EARLIEST_MS) -> int:
    return max(time - (body.ahead - body.time), earliest)


CLOCK_CORRECTION: Final = CommandKind(
    "clock_correction",
    CorrectClock,
    decide,
    (SRO,),
    "/v1/clock-corrections",
    apply,
    binds_all=True,
    changes_prices=True,
)
