"""Answers to questions about the future: a run's quote, a policy's or a merger's impact, as ``policy`` reports them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from api.http.answers import Answer
from api.http.field_types import (
    EntityTag,
    Holder,
    Natural,
    Node,
    Percent,
    Ref,
    ReportedNumber,
    Steps,
    Timestamp,
    one_of,
)
from api.wire.decision_answers import Check
from ledger.domain.outcomes import Code
from ledger.wire.field_types import Did, Name

Share = Annotated[ReportedNumber, Meta(description="the quota of a lineage, of the partition's capacity")]
AnyHolder = Annotated[
    str,
    Meta(
        pattern="^(global|lineage:(0|[1-9][0-9]{0,18}))$",
        description="everyone, or one lineage by its node; a hypothetical lineage has one that is no entry's",
    ),
]
Word = Annotated[str | int | bool | list[str] | None, Meta(description="as people read it")]


class _RunBounds(Answer, frozen=True):
    """Limits of one run."""

    delta_max: ReportedNumber | None
    mechanisms: tuple[str, ...] | None
    noise_multiplier_min: ReportedNumber | None
    probability_max: ReportedNumber | None
    steps_max: Steps | None


class RunBounds(_RunBounds, frozen=True):
    """The limits of one run beyond its ε; null where there is none."""


class Bounds(Answer, frozen=True):
    """What the policy in force says of a partition; epsilon_max is null where everyone is only watched."""

    closes: Timestamp | None
    epsilon_max: ReportedNumber | None
    level: Annotated[int, Meta(ge=0, le=2, description="of sensitivity")]
    lineage_epsilon_max: ReportedNumber
    pipeline: Annotated[bool, Meta(description="whether a charge must name its pipeline")]
    run: RunBounds
    run_epsilon_max: ReportedNumber
    share_max: Share | None
    source: str


class Standing(Answer, frozen=True):
    """One account under its cap and quota, pending counted in full; over them it is frozen."""

    epsilon_max: ReportedNumber | None
    holder: AnyHolder
    over: bool
    partition: Ref
    share_max: Share | None
    used: Percent


class PlannedDecision(Answer, frozen=True):
    """The decision that the run would get now; binding decides it, or is the account that is fullest afterwards."""

    binding: Check | None
    checks: tuple[Check, ...]
    detail: str
    outcome: Annotated[str, one_of(*(code.word for code in Code))]


class Swap(Answer, frozen=True):
    """Another partition of the same dataset."""

    instead: Ref
    replaced: Ref = msgspec.field(name="of")


class Advice(Answer, frozen=True):
    """What would pass instead: fewer steps, more noise, or other partitions of the same datasets."""

    blocked: tuple[Check, ...]
    noise_multiplier: ReportedNumber | None
    partitions: tuple[Swap, ...]
    partitions_untried: Natural
    steps: Steps | None


class Projection(Answer, frozen=True):
    """Until when an account has room, at its recent rate of charges."""

    full: bool
    holder: Holder
    partition: Ref
    projected_until: Timestamp | None
    rate_since: Timestamp


class RunsThatFit(Answer, frozen=True):
    """How many such runs one account admits."""

    holder: Holder
    partition: Ref
    runs: Natural
    used: Percent


class MoreRuns(Answer, frozen=True):
    """How many more such runs fit, one after another."""

    accounts: tuple[RunsThatFit, ...]
    binding: Check | None
    more: Natural
    or_more: bool


class StepsThatFit(Answer, frozen=True):
    """How many steps of the plan would be admitted."""

    epochs: ReportedNumber | None
    steps: Steps


class PlanReport(Answer, frozen=True):
    """What a planned run would get now, how much of it fits, and what would pass instead."""

    advice: Advice | None
    blocked: tuple[Check, ...]
    decision: PlannedDecision
    lasts: tuple[Projection, ...]
    noise_multiplier_least: ReportedNumber | None
    runs: MoreRuns
    steps_most: StepsThatFit


class AccountChange(Answer, frozen=True):
    """An account under its cap before and after."""

    after: Standing
    before: Standing
    freezes: bool
    thaws: bool


class ContractBounds(_RunBounds, frozen=True):
    """What binds runs under a contract, of all limits the strictest."""

    lineage_epsilon_max: ReportedNumber | None
    pipeline: bool
    run_epsilon_max: ReportedNumber | None
    share_max: Share | None


class ContractChange(Answer, frozen=True):
    """What binds the runs of a contract, before and after."""

    after: ContractBounds
    before: ContractBounds
    name: Name


class PolicyFieldChange(Answer, frozen=True):
    """A field of the policy, before and after."""

    after: Word
    before: Word
    name: str


class PartitionChange(Answer, frozen=True):
    """What binds a partition, before and after; null without a policy in force."""

    after: Bounds | None
    before: Bounds | None
    name: Ref


class DatasetName(Answer, frozen=True):
    """A dataset by its provider and its id."""

    dataset: Name
    provider: Did


class PendingChange(Answer, frozen=True):
    """A pending charge that the policy would touch."""

    attestation: bool
    charge: Name
    frozen: bool
    sealed: bool


class PolicyImpact(Answer, frozen=True):
    """What a policy would change; what stays the same is not listed."""

    accounts: tuple[AccountChange, ...]
    at: Timestamp
    contracts: tuple[ContractChange, ...]
    datasets: tuple[DatasetName, ...]
    fields: tuple[PolicyFieldChange, ...]
    partitions: tuple[PartitionChange, ...]
    pending: tuple[PendingChange, ...]
    policy: str
    refused: tuple[Check, ...]
    replaces: EntityTag | None
    undeclared: tuple[Annotated[str, Meta(description="a named coalition not declared, and its members")], ...]


class JoinedAccount(Answer, frozen=True):
    """One account that a merger would change; coalition is the node of a declared one."""

    after: Standing
    before: tuple[Standing, ...]
    coalition: Node | None
    excess: Percent | None
    partition: Ref


class SmallestCoalition(Answer, frozen=True):
    """Organisations that would exceed the cap together."""

    members: tuple[Did, ...]
    used: Percent


class SmallestCoalitions(Answer, frozen=True):
    """The fewest consumers that together would exceed a cap on a partition."""

    asked: Annotated[int, Meta(ge=0, le=2**53 - 1, description="organisations that were searched")]
    coalitions: tuple[SmallestCoalition, ...]
    complete: bool
    epsilon_max: ReportedNumber
    partition: Ref
    searched_up_to: Annotated[int, Meta(ge=0, le=2**53 - 1, description="members")]
