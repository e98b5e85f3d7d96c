"""Answers about budgets: partitions, and accounts under their caps."""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import Meta

from api.http.field_types import (
    Cursor,
    Holder,
    Index,
    Natural,
    Number,
    Records,
    Ref,
    RoundedUp,
    Time,
    one_of,
)
from ledger.commands.registration.partition import UNITS, RuleTerms, UnitRecords
from ledger.domain import facts as domain
from ledger.domain.facts import Facts
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss
from ledger.mechanisms.mechanism import RELATIONS
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record
from policy.planning.account_caps import AccountStatus, PartitionBounds
from policy.planning.reported_values import Percent
from policy.planning.streams.slice_status import PARTITION_STATES, slice_status

Organisations = Annotated[tuple[Did, ...], Meta(description="the organisations of the lineage now")]
Amount = Annotated[str, Meta(pattern="^(0|[1-9][0-9]*)$", description="units of loss, as text")]


class Budget(Record, frozen=True):
    """An (ε, δ) budget."""

    delta: Number
    epsilon: Number


class Partition(Record, frozen=True):
    """A partition with its budget and its rule's terms.

    Attributes:
        state: what a run meets there: it is open only if nothing closes it for all runs.
        closes: the last moment of a charge, by the age that the policy or the stream allows; None if none does.
    """

    budget: Budget
    closes: Annotated[int, Meta(description="the last moment of a charge, by the partition's age")] | None
    data_key: Name
    data_key_from: Annotated[str, one_of("service", "provider")]
    dataset: Name
    index: Index
    opened: Time
    partition: Ref
    provider: Did
    records: Records
    relation: Annotated[str, one_of(*RELATIONS)]
    retired: bool
    state: Annotated[str, one_of(*PARTITION_STATES)]
    terms: RuleTerms
    unit: Annotated[str, one_of(*UNITS)]
    unit_records_max: Annotated[UnitRecords, Meta(description="records of one privacy unit, at most")]

    @classmethod
    def of_record(cls, record: domain.Partition, facts: Facts, now: int, *, key_given: bool) -> Self:
        """As the registry has it at a time (ms); ``key_given``: whether this service releases its data key."""
        status = slice_status(facts, record, now)
        return cls.project(
            record,
            closes=status.closes,
            state=status.status,
            budget=Budget.project(record),
            data_key_from="service" if key_given else "provider",
            partition=record.ref,
            terms=read_rule(record.terms),
        )


class AccountLoss(Record, frozen=True):
    """A loss by coordinate of the partition's rule: finite units, and charges without bound."""

    finite: tuple[Amount, ...]
    infinite: tuple[Natural, ...]

    @classmethod
    def of_loss(cls, loss: Loss) -> Self:
        """As text, because a sum over many runs may pass the integers that JSON keeps exactly."""
        return cls(finite=tuple(map(str, loss.finite)), infinite=loss.infinite)


class Account(Record, frozen=True):
    """The loss of one partition seen for one holder."""

    bound: Annotated[str, Meta(description="the name of what proves the ε so far")]
    closed: Annotated[str, Meta(description="why no run at all may be charged")] | None
    binding: Annotated[str, Meta(description="the capacity that binds")] | None
    holder: Holder
    name: Annotated[str, Meta(description="whose account it is, in words")]
    odometer: Annotated[RoundedUp, Meta(description="the ε so far at the partition's δ, rounded up")] | None
    organisations: Organisations
    pending: AccountLoss
    posted: AccountLoss
    runs_like_the_last: (
        Annotated[
            Natural,
            Meta(description="more runs like the newest charge that fit under all that binds; null where nothing does"),
        ]
        | None
    )
    share: Annotated[Percent, Meta(description="of the capacity that binds, rounded up")]
    share_of_budget: RoundedUp
    under_its_cap: AccountStatus | None


class FrozenAccount(AccountStatus, frozen=True):
    """An account that is over its cap, and its organisations."""

    organisations: Organisations


class AccountPage(Record, frozen=True):
    """A page of the accounts of one partition, with the bounds that all of them share."""

    bounds: PartitionBounds | None
    budget: Budget
    items: tuple[Account, ...]
    next_cursor: Cursor | None
    partition: Ref
    retired: bool
    state: Annotated[str, one_of(*PARTITION_STATES)]
