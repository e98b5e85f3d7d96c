"""A cache of policy permits for equal runs, as the writer has one, and how verification uses it.

Most entries of a long log are charges that differ from an earlier one in nothing but their id, clean room, deadline,
time and signature: every other byte is the same. What was decided of the earlier one in full (roles, contract, policy,
prices, limits) then holds for this one, until the time and the number of runs that the verdict states, as long as
only runs were entered since. What differs between runs is checked here (``still_holds`` of the charge's module), and
the room in every account. A settlement is decided by its own guards, and only the gate's permit is cached. Nothing is
refused by the cache: what it does not permit is decided in full, and so is one in a thousand that it does permit.
"""

from __future__ import annotations

from typing import NamedTuple

from ledger.accounts.account_loss import counted_loss
from ledger.accounts.account_sums import Places
from ledger.audit.entry_check import PERMIT
from ledger.audit.recorded_prices import RecordedPrices
from ledger.audit.run_entry import SignedRun
from ledger.commands.context import PendingCommand
from ledger.commands.decide import decide_unsigned, signing_key
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.commands.runs.charge import CHARGE, OwnTerms, still_holds
from ledger.commands.runs.charge_entry import Charged
from ledger.commands.runs.priced_charge import PricedCharge
from ledger.commands.verdict_cache import VerdictCache
from ledger.crypto.organisation_keys import SignerKey
from ledger.domain.command import Command
from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate, Request, Verdict
from ledger.domain.key_terms import key_refusal
from ledger.domain.memory_state import MemoryState
from ledger.filters import Cap, Rule, read_rule


class PermittedCharge(NamedTuple):
    """A charge that was permitted: by which key, with which numbers, and the accounts that must have room."""

    key: SignerKey
    priced: PricedCharge
    numbers: RecordedPrices
    limits: tuple[tuple[Places, Rule, Cap], ...]


class PermitCache:
    """Decisions on runs since the last entry of another kind.

    Attributes:
        gate: the policy's gate, to decide in full with; None where recorded verdicts are used.
    """

    def __init__(self, state: MemoryState, gate: Gate | None, log_x: str) -> None:
        """For a state that the entries change; ``log_x`` is the log's first public key."""
        self._state, self._gate, self._log_x = state, gate, log_x
        self._charges: VerdictCache[PermittedCharge] = VerdictCache()
        self._others: VerdictCache[Verdict] = VerdictCache()
        self._verdict: Verdict | None = None
        self.gate: Gate | None = None if gate is None else self._decide

    def _decide(self, request: Request, facts: Facts) -> Verdict:
        assert self._gate is not None
        self._verdict = self._gate(request, facts)
        return self._verdict

    def permit(self, run: SignedRun, index: int) -> tuple[SignerKey, PermittedCharge | None] | None:
        """The key that a run must verify with, if the cache permits it, and of a charge the permitted one like it.

        None if it must be decided in full.
        """
        effect = run.read.effect
        if not isinstance(effect, Charged):
            verdict = self._others.get(run.alike)
            if verdict is None or self._others.is_sampled():
                return None
            key = self._decided(run, verdict, index)
            return None if key is None else (key, None)
        permitted, charge, state = self._charges.get(run.alike), effect.charge, self._state
        if permitted is None or self._charges.is_sampled():
            return None
        if key_refusal(state, run.entry.key_id, run.read.time):
            return None
        own, priced = OwnTerms(charge.contract, charge.deadline, charge.key_id), permitted.priced
        if not still_holds(state, priced.verdict, own, run.read.time) or priced.alerts(state, permitted.numbers):
            return None
        return permitted.key, permitted

    def _decided(self, run: SignedRun, verdict: Verdict, index: int) -> SignerKey | None:
        """Decide a run's other commands by their own guards, none of which reads the untyped body."""
        entry = run.entry
        if verdict.until is None or entry.time >= verdict.until:
            return None
        command = Command(entry.kind, entry.id, entry.actor, entry.key_id, {})
        # No guard reads the signed bytes, which are made only where a signature is verified.
        pending = PendingCommand(command, entry.body.request, b"", entry.signature)
        try:
            key = signing_key(self._state, pending, self._log_x)
        except Rejected:
            return None
        decided = decide_unsigned(self._state, pending, entry.time, index, lambda _request, _facts: verdict)
        return key if decided.code.word == entry.body.outcome and not decided.derived else None

    def fits(self, permitted: PermittedCharge) -> bool:
        """Whether a charge that was permitted like this one, and applied, left room in every account it touches."""
        state = self._state
        if self._charges.takes_room(permitted):
            return True
        if not all(_fit(state, *limit) for limit in permitted.limits):
            return False
        priced = permitted.priced
        # This one is laid already, and of many partitions to count how many fit takes longer than to look at one.
        if not priced.body.ranges:
            self._charges.note_room(permitted, lambda: 1 + min((room.runs for room in priced.rooms(state)), default=0))
        return True

    def keep(self, run: SignedRun | None, entry: Entry, key: SignerKey, priced: PricedCharge | None) -> None:
        """Cache the full decision on an applied entry; drop everything that the entry may have changed.

        Args:
            key: that it verifies with.
            priced: the price of a pending charge.
        """
        verdict, self._verdict = self._verdict, None
        # It may have taken room that was counted.
        self._charges.forget_room()
        if KINDS[entry.kind].effect is None:
            self._charges.drop()
            self._others.drop()
        elif run is None:
            return
        elif priced is not None:
            # Where the part of others counts rounded up, the room is checked before the entry is applied.
            exact = not any(limit.limit.counts_rounded for limit in priced.limits)
            if exact and priced.verdict.until is not None:
                self._charges.keep(run.alike, PermittedCharge(key, priced, RecordedPrices(entry), self._limits(priced)))
        elif entry.kind != CHARGE.name:
            cached = PERMIT if self._gate is None else verdict
            if cached is not None and cached.permit and cached.until is not None:
                self._others.keep(run.alike, cached)

    def _limits(self, priced: PricedCharge) -> tuple[tuple[Places, Rule, Cap], ...]:
        terms = {group[0].ref: group[0].terms for group in priced.groups}
        return tuple(
            (
                tuple((ref, limit.limit.holder) for ref in limit.partitions),
                read_rule(terms[limit.limit.partition]),
                limit.limit.cap,
            )
            for limit in priced.limits
        )


def _fit(state: MemoryState, places: Places, rule: Rule, cap: Cap) -> bool:
    """Whether each of these accounts, which have one rule, is within a capacity."""
    # Many partitions usually have equal accounts.
    losses = {counted_loss(state, state.accounts[place]) for place in places}
    return all(rule.admits(loss, cap) for loss in losses)
