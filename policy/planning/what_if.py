"""What-if decisions: the decision that a planned run would get now, with every check and the binding one.

The gate and the rules decide, on the current or a hypothetical state. No signature and no clean room is needed, and
nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Final, Literal

from msgspec import Meta, structs

from ledger.accounts.headroom import GroupLimit, Room
from ledger.accounts.limits import coalition_caps, limits_on
from ledger.accounts.partition_groups import Group, group_by_caps, group_by_terms
from ledger.accounts.pricing import COMPUTED, for_first_run
from ledger.accounts.run_epsilon import RunEpsilon, run_epsilon
from ledger.commands.context import PendingCommand
from ledger.commands.decide import decide_unsigned
from ledger.commands.registration.partition import UnitRecords
from ledger.commands.runs.charge_entry import LISTED_MAX, RUNS_MAX, MakeCharge, require_partitions
from ledger.crypto.public_keys import CleanRoomKeys, PublicKey
from ledger.domain.command import Command
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Facts, Organisation, Partition, holder_of
from ledger.domain.gate import Check, Gate, Request, Verdict
from ledger.domain.outcomes import Code
from ledger.domain.partition_ranges import Ranges, partitions_within
from ledger.filters import read_rule
from ledger.mechanisms.loss import Segment
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import EPSILON_MAX
from ledger.wire.field_types import Did, Ref, Sha256, distinct, text, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert
from policy.decisions.gate import gate as policy_gate

_NO_KEY: Final = c.base64url(bytes([9, *bytes(31)]))
"""A placeholder for the keys of a clean room, which a planned run does not have."""
_EPSILON_UNIT: Final = 10**9
"""An ε is reported in billionths."""


_Named = Annotated[str, text(1_000), Meta(description="by its name on record")]


class PlannedCharge(Record, frozen=True):
    """The body of a charge, without what a plan does not need.

    Attributes:
        pipeline: the digest of what the clean room would run; policies and waivers may ask for it.
        unit_records_max: how many records one privacy unit has at most in what would be trained on, after joins.
    """

    contract: Sha256
    partitions: Annotated[tuple[Ref, ...], distinct(LISTED_MAX, 0)]
    plan: RunPlan
    base: Annotated[tuple[_Named, ...], distinct(RUNS_MAX)] = ()
    recipients: Annotated[tuple[_Named, ...], distinct(RUNS_MAX)] | Literal["everyone"] = ()
    ranges: Ranges = ()
    step_leases: bool | None = None
    pipeline: Sha256 | None = None
    unit_records_max: UnitRecords | None = None

    def __post_init__(self) -> None:
        """Check that some partition is named. Raises: Malformed."""
        super().__post_init__()
        require_partitions(self.partitions, self.ranges)


class PlannedRun(PlannedCharge, frozen=True, kw_only=True):
    """A planned run: its consumer, plan, contract (by its document's digest) and partitions."""

    actor: Did

    @classmethod
    def parse(cls, value: object, actor: str) -> PlannedRun:
        """Read a charge's body, whose clean room and deadline are ignored. Raises: Malformed."""
        needed = {name: field for name, field in c.members(value, "").items() if name not in {"clean_room", "deadline"}}
        return cls.of(actor, convert(PlannedCharge, needed))

    @classmethod
    def of(cls, actor: str, body: MakeCharge | PlannedCharge) -> PlannedRun:
        """The run of a charge."""
        return cls(actor=actor, **{name: getattr(body, name) for name in PlannedCharge.__struct_fields__})


class DecisionReport(Record, frozen=True):
    """The decision that a planned run would get now.

    Attributes:
        binding: of a refusal the first check that failed; of a permit the account that is fullest afterwards.
        checks: the gate's in order, then one for each account; invalid input has none.
    """

    binding: Check | None
    checks: tuple[Check, ...]
    detail: str
    outcome: Annotated[str, words(*(code.word for code in Code))]

    @property
    def permit(self) -> bool:
        """Whether it would be charged."""
        return not Code.of(self.outcome).refused


@dataclass(frozen=True, eq=False)
class WhatIf:
    """One planned run in one state at one time, ``now`` in Unix milliseconds.

    Attributes:
        exact: whether checks show the part of others in an account exactly, whatever the policy states.
        proceed: is called before each step of a search, and raises what ends it.
    """

    facts: Facts
    run: PlannedRun
    now: int
    gate: Gate = policy_gate
    exact: bool = False
    proceed: Callable[[], None] = lambda: None

    def with_plan(self, plan: RunPlan) -> WhatIf:
        """The same with another plan. Raises: what ends the search."""
        self.proceed()
        return replace(self, run=structs.replace(self.run, plan=plan))

    def body(self, plan: RunPlan) -> MakeCharge:
        """The body of a command that would charge it."""
        run = self.run
        keys = CleanRoomKeys(PublicKey("X25519", _NO_KEY), PublicKey("Ed25519", _NO_KEY))
        return MakeCharge(
            contract=run.contract,
            partitions=run.partitions,
            plan=plan,
            clean_room=keys,
            deadline=self.now + 1,
            recipients=run.recipients,
            base=run.base,
            step_leases=run.step_leases,
            ranges=run.ranges,
            pipeline=run.pipeline,
            unit_records_max=run.unit_records_max,
        )

    def decide(self) -> Decision:
        """The ledger's decision. Raises nothing, whatever a caller sends."""
        pending = PendingCommand(self._command, self.body(self.run.plan), b"", "")
        return decide_unsigned(self.facts, pending, self.now, 0, self.gate)

    @property
    def is_admitted(self) -> bool:
        """Whether it would be charged."""
        return self.decide().code is Code.PENDING

    @cached_property
    def decision(self) -> DecisionReport:
        """The decision with every check, including those that passed."""
        decided = self.decide()
        try:
            body = self.body(self.run.plan)
            epsilons = tuple(
                (partition.ref, COMPUTED.epsilon(group[0], body)) for group in self.alike for partition in group
            )
            verdict = self.verdict(epsilons)
            rooms = self.rooms(self.run.plan) if verdict.permit else []
        except (Rejected, Malformed, KeyError):
            # A refusal before any check has its reason in the detail.
            return DecisionReport(None, (), decided.detail, decided.code.word)
        checks = (*verdict.checks, *(room.check(self.facts.accounts, self.holder) for room in rooms))
        failed = next((check for check in checks if not check.passed), None)
        return DecisionReport(failed or self._fullest(rooms), checks, decided.detail, decided.code.word)

    @cached_property
    def run_epsilon(self) -> tuple[RunEpsilon, ...]:
        """The ε of the whole run, one line a partition; none if it has no price."""
        try:
            return tuple(run_epsilon(group[0], self.body(self.run.plan)) for group in self.alike)
        except (Rejected, Malformed, KeyError):
            return ()

    def verdict(self, epsilons: Sequence[tuple[str, Fraction]]) -> Verdict:
        """The gate's verdict at this ε of the run on each partition."""
        return self.gate(
            Request(self._command, self.body(self.run.plan), self.now, epsilon=tuple(epsilons)), self.facts
        )

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that it is charged to. Raises: KeyError, Rejected."""
        refs = partitions_within(self.facts, self.run.partitions, self.run.ranges)
        return tuple(self.facts.partitions[ref] for ref in refs)

    @cached_property
    def alike(self) -> tuple[Group, ...]:
        """The partitions that it is charged to; with ranges, those of equal price in one group.

        Raises:
            KeyError, Rejected.
        """
        return (
            group_by_terms(self.partitions) if self.run.ranges else tuple((partition,) for partition in self.partitions)
        )

    @property
    def author(self) -> Organisation:
        """The consumer. Raises: KeyError."""
        return self.facts.organisations[self.run.actor]

    @property
    def holder(self) -> str:
        """The account holder of the consumer's lineage. Raises: KeyError."""
        return holder_of(self.author.node)

    @cached_property
    def without_epsilon(self) -> Verdict:
        """The gate's verdict on a run of zero ε: no change of noise or steps changes its denials."""
        return self.verdict([(partition.ref, Fraction(0)) for partition in self.partitions])

    @cached_property
    def limits(self) -> list[GroupLimit]:
        """Every cap that binds. Raises: Rejected, Malformed, if one has no room for anything or the run no price."""
        return self._limits(self.run.plan)

    def with_rules(self, plan: RunPlan) -> tuple[Partition, ...]:
        """The partitions with the rules that they have once a charge of this plan is admitted.

        Raises:
            Rejected, Malformed: if it has no price.
        """
        if not self._first_run_chooses:
            return self.partitions
        prices = self._prices(plan)
        return tuple(for_first_run(partition, prices[partition.ref], plan.steps) for partition in self.partitions)

    @cached_property
    def _first_run_chooses(self) -> bool:
        return any(read_rule(partition.terms).first_run_chooses for partition in self.partitions)

    def _prices(self, plan: RunPlan) -> dict[str, tuple[Segment, ...]]:
        body = self.body(plan)
        return {partition.ref: COMPUTED.price(group[0], body) for group in self.alike for partition in group}

    def _limits(self, plan: RunPlan) -> list[GroupLimit]:
        caps, partitions = dict(self.without_epsilon.caps), self.with_rules(plan)
        groups: tuple[Group, ...] = tuple((partition,) for partition in partitions)
        if self.run.ranges:
            groups = group_by_caps(partitions, caps, coalition_caps(self.facts, self.author))
        members = {group[0].ref: tuple(member.ref for member in group) for group in groups}
        firsts = tuple(group[0] for group in groups)
        limits = limits_on(self.facts, firsts, self.without_epsilon, self.author, groups=members)
        exact = [replace(limit, rounded=False) for limit in limits] if self.exact else limits
        return [GroupLimit(limit, members[limit.partition]) for limit in exact]

    def rooms(self, plan: RunPlan) -> list[Room]:
        """Every account it would be charged to, before and after; of equal ones in ranges, the first.

        Raises:
            Rejected, Malformed: if it has no price.
        """
        prices = self._prices(plan)
        limits = self._limits(plan) if self._first_run_chooses else self.limits
        listed: list[Room] = []
        for limit in limits:
            rooms = limit.rooms(self.facts, prices[limit.limit.partition], plan.steps)
            listed += {room.before: room for room in reversed([*rooms])}.values() if self.run.ranges else rooms
        return listed

    def run_cap(self, ref: str) -> Fraction:
        """The greatest ε of one run on a partition, in billionths, that the gate permits; the others at 0."""
        low, high = 0, int(EPSILON_MAX * _EPSILON_UNIT) + 1
        while high - low > 1:
            middle = (low + high) // 2
            epsilons = [
                (partition.ref, Fraction(middle, _EPSILON_UNIT) if partition.ref == ref else Fraction(0))
                for partition in self.partitions
            ]
            low, high = (middle, high) if self.verdict(epsilons).permit else (low, middle)
        return Fraction(low, _EPSILON_UNIT)

    @property
    def _command(self) -> Command:
        return Command("charge", "planned", self.run.actor, "", {})

    def _fullest(self, rooms: Sequence[Room]) -> Check | None:
        rounded = [room.as_shown(self.facts.accounts, self.holder) for room in rooms]
        used = [(room.rule.share(room.after, room.limit.cap), -place) for place, room in enumerate(rounded)]
        return rooms[-max(used)[1]].check(self.facts.accounts, self.holder) if used else None
