"""Budget alerts: thresholds that a charge reached or crossed, on accounts that a caller may see."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from api.auth.authorisation import Caller
from api.http.field_types import Holder, Index, Number, Ref, Time
from ledger.commands.entry import Entry
from ledger.commands.runs.charge_entry import BudgetAlert
from ledger.domain.facts import Facts
from ledger.organisation_lineage.holder_names import holder_name
from ledger.wire.records import Record, convert


class NamedAlert(Record, frozen=True):
    """A share of a capacity that a charge reached or crossed, on one account."""

    holder: Holder
    name: Annotated[str, Meta(description="whose account it is, in words")]
    partition: Ref
    share: Number


class AlertedEntry(Record, frozen=True):
    """One charge's alerts; the caller may see the accounts, and need not see the charge."""

    alerts: tuple[NamedAlert, ...]
    index: Index
    time: Time


def visible_alerts(caller: Caller, entry: Entry, facts: Facts) -> tuple[BudgetAlert, ...]:
    """The alerts of an entry on accounts that the caller may see; none to a clean room."""
    if caller.charge:
        return ()
    found = convert(tuple[BudgetAlert, ...], entry.body.get("alerts", []))
    return tuple(one for one in found if _sees(caller, one, facts))


def _sees(caller: Caller, alert: BudgetAlert, facts: Facts) -> bool:
    partition = facts.partitions.get(alert.partition)
    if partition is None or not caller.sees_partition(partition, facts):
        return False
    return caller.sees_account(partition, alert.holder, facts)


def alerts_of(caller: Caller, entry: Entry, facts: Facts) -> tuple[NamedAlert, ...]:
    """The same with the names of the accounts."""
    return tuple(
        NamedAlert(holder=one.holder, name=holder_name(facts, one.holder), partition=one.partition, share=one.share)
        for one in visible_alerts(caller, entry, facts)
    )
