"""A charge is settled once: posted for the steps that ran, voided for nothing, or lapsed after its deadline."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct, structs

from ledger.accounts.account_sums import AccountSums, touched
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context, require_pending
from ledger.commands.runs.step_lease import Generation, require_live
from ledger.commands.runs.step_refund import PostRecord, check_return
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Decision, Rejected
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import ChargeState, Code
from ledger.domain.roles import CCR, TDC
from ledger.mechanisms.mechanism import STEPS_MAX
from ledger.wire.field_types import KeyBytes, Name, Sha256, between
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record


class Post(Record, frozen=True):
    """Settle for the steps that ran (begun steps count), zero included.

    Attributes:
        model: the digest of the one model that the run made, where it made one.
        generation: of a run that leases its steps, the live one. lease: the id of its newest lease, if it has one.
        chain: the digest of the chain of its lease ids, of a post that returns leased steps.
        evidence: the digest of fresh evidence for such a post, and ``nonce`` answers a challenge: both, or neither.
        output: the digest of all that leaves the clean room once this is an entry: public metrics and errors.
    """

    charge: Name
    steps: Annotated[int, between(0, STEPS_MAX)]
    model: Sha256 | None = None
    generation: Generation | None = None
    lease: Name | None = None
    chain: Sha256 | None = None
    evidence: Sha256 | None = None
    nonce: KeyBytes | None = None
    output: Sha256 | None = None

    def __post_init__(self) -> None:
        """Evidence answers a challenge. Raises: Malformed."""
        super().__post_init__()
        if (self.evidence is None) != (self.nonce is None):
            raise Malformed("nonce", "goes with evidence: both, or neither")


class Settle(Record, frozen=True):
    """Settle without a count: void by a party, or lapse by the book itself after the deadline."""

    charge: Name


class Lapsed(Record, frozen=True):
    """The recorded part of a lapse's entry: the leased steps, if only they are posted."""

    steps: Annotated[int, between(0, STEPS_MAX)] | None = None


class Settled(Struct, frozen=True):
    """The settlement of a charge; ``steps`` is None if the entry names no count.

    Attributes:
        post: the id of the post, empty where none settles it. model: the digest that it names.
    """

    charge: str
    steps: int | None
    outcome: str
    post: str = ""
    model: str | None = None

    def apply(self, state: MemoryState, _index: int, sums: AccountSums) -> None:
        """Move what ran from pending to posted; the rest of it goes back to headroom. Raises: AssertionError."""
        charge = state.charges[self.charge]
        assert charge.state is ChargeState.PENDING, f"charge {charge.id} is settled twice"
        settled = self.changed(charge)
        steps, posted = charge.steps, settled.steps_posted
        for _, places, segments in touched(state, charge):
            sums.add(places, segments, steps, int(posted == steps), -1)
            if posted and posted != steps:
                sums.add(places, segments, posted, 1, 0)
        state.charges[charge.id] = settled
        if settled.state is ChargeState.VOIDED:
            state.contracts[charge.contract] = state.contracts[charge.contract].counting(-1)

    def changed(self, charge: Charge) -> Charge:
        """The charge from this entry on."""
        if self.outcome != Code.POSTED.word:
            return charge.settled(ChargeState.VOIDED, None)
        settled = charge.settled(ChargeState.POSTED, charge.steps if self.steps is None else self.steps)
        if self.model is None and charge.leases is None:
            # A post without a model leaves the same bytes as in earlier versions.
            return settled
        return settled._replace(post=self.post or None, model=self.model)


def _post(context: Context[Post]) -> Decision:
    """Settle for the steps that ran, as the clean room states them: at most what was pending."""
    charge, steps = context.charge(context.body.charge), context.body.steps
    context.require_clean_room(charge)
    require_pending(charge)
    if steps > charge.steps:
        raise Rejected(Code.MALFORMED, f"body.steps: at most the {charge.steps} that were charged", "body.steps")
    if not steps and context.body.model is not None:
        raise Rejected(Code.MALFORMED, "body.model: a run of no steps has no model", "body.model")
    recorded = _check_leases(charge, context.body)
    if recorded.returned is None and context.body.evidence is not None:
        rule = "is for a post that returns leased steps"
        raise Rejected(Code.MALFORMED, f"body.evidence: {rule}", "body.evidence")
    if recorded.returned is None:
        return context.permit_equal(Code.POSTED)
    if context.body.evidence is not None:
        context.require_evidence(context.body.evidence)
    return context.permit(recorded, Code.POSTED)


def _check_leases(charge: Charge, body: Post) -> PostRecord:
    """Check that a post is of the run's live generation, and counts the leased steps. Raises: Rejected."""
    leases = charge.leases
    if leases is None or charge.key_release is None:
        if body.generation is not None or body.lease is not None or body.chain is not None:
            raise Rejected(Code.CONFLICT, f"no steps of charge {charge.id} are leased", "body.generation")
        return PostRecord()
    require_live(charge, leases, body.generation)
    if (body.lease or "") != leases.newest:
        detail = f"the newest lease of charge {charge.id} is another: this clean room must end"
        raise Rejected(Code.CONFLICT, detail, "body.lease")
    return check_return(charge, leases, body)


def _void(context: Context[Settle]) -> Decision:
    """Settle for nothing, sent by the TDC or the clean room, as long as no key was released."""
    charge = context.charge(context.body.charge)
    if context.command.key_id != charge.key_id:
        author = context.require_role()
        if author.did != charge.actor:
            raise Rejected(Code.NOT_AUTHORISED, f"charge {charge.id} is not {author.did}'s", "actor")
    require_pending(charge)
    if charge.key_release is not None:
        detail = f"the keys of charge {charge.id} were released: post what ran, zero steps included"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    return context.permit_equal(Code.VOIDED)


def _lapse(context: Context[Settle]) -> Decision:
    """A deadline passed: posted if the key was released, voided if not. No policy decides.

    Posted in full, or where the policies of a run that leases its steps state its refund, for what was leased.
    """
    charge = context.charge(context.body.charge)
    require_pending(charge)
    if context.now <= charge.deadline:
        raise Rejected(Code.CONFLICT, f"the deadline of charge {charge.id} has not passed", "body.charge")
    if charge.key_release is None:
        return Decision(Code.VOIDED)
    leases = charge.leases
    leased = Lapsed() if leases is None or not leases.refund else Lapsed(leases.steps)
    return Decision(Code.POSTED, derived=leased.to_json())


def _post_effect(entry: Recorded[Post]) -> Settled:
    _check_outcome(entry, Code.POSTED)
    return Settled(entry.body.charge, entry.body.steps, entry.code.word, entry.id, entry.body.model)


def _settle_effect(entry: Recorded[Settle]) -> Settled:
    _check_outcome(entry, Code.POSTED, Code.VOIDED)
    return Settled(entry.body.charge, None, entry.code.word)


def _lapse_effect(entry: Recorded[Settle]) -> Settled:
    return structs.replace(_settle_effect(entry), steps=entry.fixed(Lapsed).steps)


def _check_outcome(entry: Recorded[Record], *codes: Code) -> None:
    if entry.code not in codes:
        raise Malformed("body.outcome", f"must be {' or '.join(code.word for code in codes)}")


POST: Final = CommandKind("post", Post, _post, (CCR,), "/v1/posts", effect=_post_effect, recorded=PostRecord)
VOID: Final = CommandKind("void", Settle, _void, (TDC, CCR), "/v1/voids", effect=_settle_effect)
LAPSE: Final = CommandKind("lapse", Settle, _lapse, effect=_lapse_effect, recorded=Lapsed)
