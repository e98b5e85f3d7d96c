"""Key figures of an account: the share used of its binding capacity, the runs that fit, and why it is closed.

A run is admitted if every account that it touches has room: the global one, its lineage's under the cap and the quota,
and those of the coalitions that follow it. So the numbers of an account are the least over all of them, as the next
charge of its holder would meet them, decrees included. A run like the last one must also be within the limits of
contract and policy on one run, and within the contract's number of runs (:mod:`policy.decisions.last_run`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from ledger.accounts.headroom import Limit, is_infinite
from ledger.accounts.limits import limits_on
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Contract, Facts, Organisation, Partition
from ledger.domain.gate import Verdict
from ledger.domain.organisation_graph import SUCCESSION, Node, NodeKind
from ledger.filters import NoRoom, Rule, read_rule
from ledger.wire.exact_numbers import format_number
from ledger.wire.records import Record
from policy.checks.field_readers import format_time
from policy.decisions.charges import undeclared_coalitions
from policy.decisions.documents_in_force import Binding, binding, caps_of, last_moment
from policy.decisions.last_run import LastRun, LastRunBounds
from policy.documents import ContractDocument
from policy.planning.reported_values import Natural, Percent


class AccountFigures(Record, frozen=True):
    """The figures of one account, with pending counted in full and no charges by others.

    Attributes:
        binding: the capacity that binds, under which fewest runs fit; or the limit that bars a run like the last one.
            None if nothing is capped; the share is then that of the partition's ε, which is only watched.
        closed: why no run at all may be charged, None if one may.
        runs: how many more runs like the last one fit; None before the first one, and if nothing is capped.
    """

    binding: Annotated[str, Meta(description="what binds")] | None
    closed: Annotated[str, Meta(description="why no run at all may be charged")] | None
    runs: Natural | None
    share: Percent


@dataclass(frozen=True, slots=True)
class _Room:
    """One capacity and its used part."""

    words: str
    used: Fraction
    over: bool
    runs: int | None
    infinite: bool


@dataclass(frozen=True)
class PartitionFigures:
    """The figures of a partition's accounts at a time.

    Attributes:
        last: the last run; None before the first one.
    """

    facts: Facts
    partition: Partition
    now: int
    binds: Binding | None
    last: LastRun | None

    @classmethod
    def at(cls, facts: Facts, partition: Partition, now: int, last: LastRun | None) -> PartitionFigures:
        """Under the policy in force at ``now`` (ms)."""
        return cls(facts, partition, now, binding(facts, partition, now), last)

    def of(self, holder: str, contract: Contract | None = None) -> AccountFigures:
        """The figures of one account; a lineage's under its contract, whose limits may be smaller."""
        bounds = LastRunBounds(self.facts, self.partition, self.binds, contract, self.now) if self.binds else None
        rooms, shut = self._rooms(holder, bounds.document if bounds else None)
        rooms += self._contract_runs(bounds)
        closed = (
            self._closed_reason(holder) or shut or next((f"{room.words} is full" for room in rooms if room.over), None)
        )
        barred = bounds.why_none(self.last) if bounds and self.last else ""
        if not rooms:
            share = Percent.of(None) if shut else _percent(self._room(self._limit(holder), ""))
            return AccountFigures(barred or None, closed, 0 if (closed or barred) and self.last else None, share)
        binds = min(rooms, key=_fewest)
        runs = None if self.last is None else 0 if closed or barred else binds.runs
        return AccountFigures(barred or binds.words, closed, runs, _percent(binds))

    def _contract_runs(self, bounds: LastRunBounds | None) -> list[_Room]:
        """The number of runs that a contract in force allows."""
        contract, document = (bounds.contract, bounds.document) if bounds else (None, None)
        if contract is None or document is None:
            return []
        remaining = document.runs_max - contract.runs
        used, words = Fraction(contract.runs, document.runs_max), f"the number of runs of {document.source}"
        return [_Room(words, used, remaining <= 0, None if self.last is None else max(0, remaining), infinite=False)]

    def _closed_reason(self, holder: str) -> str | None:
        """Why the partition or the lineage is closed, whatever it has used."""
        if self.partition.retired:
            return "the partition is retired"
        if self.binds is None:
            return "no policy is in force"
        age = self.binds.age_days_max
        if age is not None and self.now > (last := last_moment(self.partition, age)):
            return f"the partition is too old since {format_time(last)}"
        author = self._author(holder)
        names = undeclared_coalitions(self.facts, author, self.binds.policy) if author else ()
        return f"coalition {names[0].name} is not declared" if names else None

    def _rooms(self, holder: str, contract: ContractDocument | None) -> tuple[list[_Room], str | None]:
        """Every capacity that binds, and why none has room."""
        if self.binds is None:
            return [], None
        caps = caps_of(self.partition.epsilon, self.binds, contract)
        author, node = self._author(holder), self._node(holder)
        if author is not None:
            verdict = Verdict(permit=True, checks=(), caps=((self.partition.ref, caps),))
            try:
                limits = limits_on(self.facts, (self.partition,), verdict, author)
            except Rejected as rejected:
                return [], rejected.decided.detail
            return [self._room(limit, self._words(limit, holder)) for limit in limits], None
        limits = [self._limit(GLOBAL)] if caps.everyone is not None else []
        if node is not None and node.kind is NodeKind.COALITION and node.epsilon is not None:
            try:
                limits.append(self._limit(holder, caps.of_coalition(node.epsilon, self.partition.epsilon)))
            except NoRoom as closed:
                return [], str(closed)
        elif node is not None:
            return [], None
        return [self._room(limit, self._words(limit, holder)) for limit in limits], None

    def _limit(self, holder: str, epsilon: Fraction | None = None) -> Limit:
        cap = self._rule.cap(self.partition.epsilon if epsilon is None else epsilon)
        return Limit(self.partition.ref, holder, cap)

    @property
    def _rule(self) -> Rule:
        return read_rule(self.partition.terms)

    def _room(self, limit: Limit, words: str) -> _Room:
        rule, cap = self._rule, limit.cap
        loss = limit.before(self.facts)
        runs = None if self.last is None else rule.runs(loss, cap, self.last.loss)
        used = rule.share(loss, cap)
        return _Room(words, used, used >= 1 or not rule.admits(loss, cap), runs, is_infinite(rule, loss, cap))

    def _words(self, limit: Limit, holder: str) -> str:
        epsilon = f"ε {format_number(limit.cap.epsilon)}"
        if limit.holder == GLOBAL:
            return f"the budget of everyone together, {epsilon}"
        if limit.holder != holder or self._author(holder) is None:
            return f"the cap of a coalition, {epsilon}"
        by = f", by {limit.source}" if limit.source else ""
        if limit.share is not None:
            return f"the quota of a lineage, {format_number(limit.share)} of the partition{by}"
        return f"the cap of a lineage, {epsilon}{by}"

    def _node(self, holder: str) -> Node | None:
        return None if holder == GLOBAL else self.facts.nodes.get(int(holder.partition(":")[2]))

    def _author(self, holder: str) -> Organisation | None:
        """An organisation that charges this account; None for other holders, and if all have left it."""
        node = self._node(holder)
        if node is None or node.kind not in SUCCESSION or not node.members:
            return None
        return self.facts.organisations[node.members[0]]


def _fewest(room: _Room) -> tuple[int, Fraction]:
    """Fewest runs first, then the fullest."""
    return (0 if room.runs is None else room.runs, -room.used)


def _percent(room: _Room) -> Percent:
    return Percent.infinite() if room.infinite else Percent.of(room.used)
