"""First stop of a command: it is read and its signature verified; a price that is not kept is computed in a worker.

Signatures of many commands are verified by two processes at once: :mod:`ledger.book.signatures.signature_checks`. What
is not verified by then, or whose key is not in memory, is verified when it is decided.

A price can take seconds to compute, so the writer never does. It decides a command with the prices that are kept. If
one is missing, the call goes to a worker, with what comes after that command, and then back to the writer, which goes
on with other calls meanwhile. A worker is the first to decide each opening of a partition, too: its commitments are
compared with those of every partition before it, and the writer finds what was counted. No snapshot is held while a
price is computed, which would keep the database from removing old rows and other readers from a connection: each fact
is read in a short transaction of its own (:class:`ShortReads`). Prices are kept under all that determines them, so one
that is found is never outdated. Only a few commands are priced at once, and organisations take turns
(:mod:`ledger.book.pricing.pricing_turns`). The quota of an organisation is looked at before each price is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import islice
from time import monotonic, thread_time
from typing import Final, TypeVar

from msgspec import structs
from sqlalchemy import Engine

from ledger.accounts.pricing import UNPREPARED, CollectedPrices, PreparedPrices
from ledger.book.batch import LAPSE_ID, Recorder
from ledger.book.call_queue import Call
from ledger.book.lost_database import busy_where_lost
from ledger.book.pricing.pricing_turns import PricingTurns
from ledger.book.signatures.signature_checks import TOGETHER_MIN, SignatureChecks
from ledger.book.submitted_command import BookBusy, Outcome, PricingRefused, Submission
from ledger.commands.context import PendingCommand
from ledger.commands.registration.partition import OpenPartition
from ledger.commands.registry import CLIENT_KINDS, KINDS
from ledger.commands.runs.audit_report import ReportAudit
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.domain.facts import Facts
from ledger.domain.outcomes import Code
from ledger.store.engine import ShortReads
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

T = TypeVar("T")
AHEAD_MAX: Final = 512
"""Commands of a long call whose signatures another process verifies while those before them are decided."""
PRICES_MAX: Final = 16_384
"""Prices that are kept, one for each contract, plan and partitions; all are dropped when there is no place."""
WAIT_S: Final = 30.0
"""How long a command waits for its turn to be priced."""
TURN_S: Final = 2.0
"""How long a turn goes on with the next price of a call; the rest of it waits for another turn."""
AGAIN_MAX: Final = 4
"""How often a command is priced again in a row because what others recorded meanwhile changed the prices it needs."""

PRICING_BUSY: Final = f"too many runs are being priced; waited {WAIT_S:.0f} seconds"
_PRICED: Final = (MakeCharge, OpenPartition, ReportAudit)
"""Commands that are priced before they are decided."""


def read_submission(one: Submission) -> PendingCommand | Outcome:
    """A command, or the outcome of what is none, or is for the book alone."""
    try:
        pending = one.pending
    except Malformed as error:
        return Outcome(Code.MALFORMED, _id_of(one.raw), None, {}, None, error.field, str(error), repeated=False)
    own = pending.command.kind not in CLIENT_KINDS
    if own or pending.command.id.startswith(LAPSE_ID):
        kind, field = (pending.command.kind, "kind") if own else ("lapse", "id")
        detail = f"{field}: a {kind} is the book's own entry; no client may send one, nor use its id"
        return Outcome(Code.NOT_AUTHORISED, pending.command.id, None, {}, None, field, detail, repeated=False)
    return pending


def _id_of(raw: bytes) -> str:
    with suppress(Malformed):
        value = c.parse(raw, 65_535)
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])[:128]
    return ""


class CommandPricing:
    """Prices commands in worker threads, and keeps what was computed."""

    def __init__(self, reads: Engine, recorder: Recorder, priced: Callable[[Call, Exception | None], None]) -> None:
        """Read what prices are computed from through ``reads``; ``priced`` takes a call that is, or why it is not."""
        self._reads = ShortReads(reads)
        self._recorder = recorder
        self._priced = priced
        self._turns = PricingTurns()
        self._kept: dict[Hashable, PreparedPrices] = {}
        self._signatures = SignatureChecks(recorder.log_x)
        self.meter: Callable[[str, float], object] = lambda _actor, _seconds: None
        """Gets the seconds of a processor that each price took, with the actor whose command needed it."""
        self.wait_s: Callable[[str], float] = lambda _actor: 0.0
        """Gives the seconds until the quota of an actor has room for another price; 0 where it has."""

    def read_first(
        self, facts: Facts, calls: Iterable[Call], most: int, *, verified: bool = True
    ) -> list[list[PendingCommand | Outcome]]:
        """The first commands that wait in these calls, ``most`` in all, read and verified.

        A price that is missing is found when they are decided.

        Args:
            facts: have the keys that are in memory.
            verified: whether all are verified now; else another process begins, and :meth:`noted` takes what it has
                confirmed by then.
        """
        taken: list[tuple[Call, int]] = []
        for call in calls:
            if not most:
                break
            taken.append((call, min(most, len(call.waiting))))
            most -= taken[-1][1]
        waiting = [one for call, count in taken for one in islice(call.waiting, count)]
        read: list[PendingCommand | Outcome] = []
        for start in range(0, len(waiting), TOGETHER_MIN):
            some = [
                self._read(one) if isinstance(one, Submission) else one for one in waiting[start : start + TOGETHER_MIN]
            ]
            read += some
            if not verified:
                # The process verifies these while the others are read.
                self._signatures.begin(facts, some, goes_on=start > 0)
        if verified:
            read = self._signatures.verify(facts, read)
        checked = iter(read)
        found = [[*islice(checked, count)] for _, count in taken]
        for (call, _), some in zip(taken, found, strict=True):
            for place, one in enumerate(some):
                call.waiting[place] = one
        if taken and len(taken[-1][0].waiting) > taken[-1][1]:
            self._read_ahead(facts, *taken[-1])
        return found

    def noted(self, one: PendingCommand | Outcome) -> PendingCommand | Outcome:
        """A command that was read, with what is known of its signature by now."""
        return self._signatures.noted(one) if isinstance(one, PendingCommand) else one

    def _read_ahead(self, facts: Facts, call: Call, start: int) -> None:
        """Read what a long call has after its first ``start`` commands, and have it verified meanwhile."""
        if not self._signatures.can_verify_ahead:
            return
        for place in range(start, min(start + AHEAD_MAX, len(call.waiting))):
            one = call.waiting[place]
            if isinstance(one, Submission):
                call.waiting[place] = self._read(one)
        self._signatures.verify_ahead(facts, [*islice(call.waiting, start, start + AHEAD_MAX)])

    def _read(self, one: Submission) -> PendingCommand | Outcome:
        """A command with the prices that are kept for it, or the outcome of what is none."""
        found = read_submission(one)
        if isinstance(found, Outcome):
            return found
        return structs.replace(found, prices=self._kept.get(_key(found), UNPREPARED)) if is_priced(found) else found

    def send(self, call: Call) -> None:
        """Have the first commands that wait in a call priced; the call comes back to the writer in any case."""
        one = call.waiting[0]
        found = read_submission(one) if isinstance(one, Submission) else one
        actor = found.command.actor if isinstance(found, PendingCommand) else ""
        # One price serves calls of one command and one key; where no price is kept, nothing is alike.
        key = _key(found) if isinstance(found, PendingCommand) else None
        alike = call if key is None or len(call.waiting) > 1 else key
        try:
            done = self._turns.submit(actor, alike, partial(self._price_call, call, monotonic()))
        except PricingRefused as refusal:
            refusal.decided = call.outcomes
            self._priced(call, refusal)
        else:
            done.add_done_callback(partial(self._return, call))

    def in_turn(self, actor: str, work: Callable[[], T]) -> Future[T]:
        """Run what computes prices for an organisation in its turn, within its quota, and meter it.

        The future raises PricingRefused, if the quota is used up by then; BookBusy, if the turn came too late.

        Raises:
            PricingRefused: if too much of the organisation waits.
        """
        return self._turns.submit(actor, object(), partial(self._within_quota, actor, monotonic(), work))

    def price(self, pending: PendingCommand) -> PendingCommand:
        """The command with every number that deciding it takes in the current state."""
        if not is_priced(pending):
            return pending
        collected = CollectedPrices()
        self._recorder.decide(Snapshot(self._reads), structs.replace(pending, prices=collected))
        prices = collected.prepared()
        if prices.count and isinstance(pending.body, MakeCharge):
            if len(self._kept) >= PRICES_MAX:
                self._kept.clear()
            self._kept[_key(pending)] = prices
        return structs.replace(pending, prices=prices)

    def close(self) -> None:
        """Price nothing more."""
        self._turns.close()
        self._signatures.close()

    def _return(self, call: Call, done: Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, PricingRefused):
            error.decided = call.outcomes
        self._priced(call, error if isinstance(error, Exception) else None)

    def _price_call(self, call: Call, since: float) -> None:
        """Price the first commands of a call: as many as can be, not those whose price an earlier one may change."""
        with busy_where_lost():
            self._price_first(call, since)

    def _price_first(self, call: Call, since: float) -> None:
        changing, begun = False, monotonic()
        for place, one in enumerate(call.waiting):
            found = read_submission(one) if isinstance(one, Submission) else one
            if isinstance(found, PendingCommand):
                if is_priced(found):
                    if changing:
                        return
                    kept = self._kept.get(_key(found))
                    # Of the first one a price was missing. What is kept since, for another call, will do; if
                    # it does not, the call comes again.
                    if place == 0 and (kept is found.prices or call.unpriced > 1):
                        kept = None
                    # What was priced is decided first; then this one is the first of its call, and waits for a turn
                    # of its own, or is refused.
                    if kept is None and place and (monotonic() - begun > TURN_S or self.wait_s(found.command.actor)):
                        return
                    found = structs.replace(found, prices=kept) if kept is not None else self._computed(found, since)
                changing = changing or KINDS[found.command.kind].changes_prices
            call.waiting[place] = found

    def _computed(self, pending: PendingCommand, since: float) -> PendingCommand:
        return self._within_quota(pending.command.actor, since, partial(self.price, pending))

    def _within_quota(self, actor: str, since: float, work: Callable[[], T]) -> T:
        if monotonic() - since > WAIT_S:
            raise BookBusy(PRICING_BUSY)
        if wait_s := self.wait_s(actor):
            raise PricingRefused("the quota of seconds of pricing is used up", wait_s)
        begun = thread_time()
        try:
            return work()
        finally:
            self.meter(actor, thread_time() - begun)


def is_priced(pending: PendingCommand) -> bool:
    """Whether a price is computed before it is decided."""
    return isinstance(pending.body, _PRICED)


def _key(pending: PendingCommand) -> Hashable:
    """What most prices of a charge depend on; the rest is found missing by the writer."""
    body = pending.body
    if not isinstance(body, MakeCharge):
        return None
    return body.contract, body.partitions, body.ranges, body.plan.digest, body.unit_records_max
