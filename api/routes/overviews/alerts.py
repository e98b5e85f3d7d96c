"""Budget alerts: thresholds that a charge reached or crossed, on accounts that a caller may see."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from api.auth.authorisation import Caller, sees_entry
from api.http.field_types import Holder, Index, Number, Ref, Time
from ledger.commands.entry import Entry
from ledger.commands.runs.charge_entry import BudgetAlert
from ledger.domain.facts import GLOBAL, Facts, Partition
from ledger.domain.partition_ranges import dataset_of_ref, runs_of_places
from ledger.organisation_lineage.holder_names import holder_name
from ledger.wire.records import Record, convert
from policy.planning.shared_account import is_rounded


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
    """The alerts of an entry on accounts that the caller may see; none to a clean room.

    A charge's entry records when the exact sum of everyone crosses a share. A caller who sees the part of others
    rounded gets no such alert by another's charge: its time would reveal the sum more closely than the account does.
    """
    if caller.charge or "alerts" not in entry.body:
        return ()
    reader = _AlertReader(caller, entry, facts)
    found = map(reader.as_seen, convert(tuple[BudgetAlert, ...], entry.body["alerts"]))
    return tuple(alert for alert in found if alert is not None)


class _AlertReader:
    """Who is to be shown the alerts of which entry; equal questions on partitions of one dataset are decided once."""

    def __init__(self, caller: Caller, entry: Entry, facts: Facts) -> None:
        self._caller, self._facts, self._time = caller, facts, entry.time
        self._charge = facts.charges[entry.id]
        self._sees_entry = sees_entry(caller, entry, facts)
        self._seen: dict[tuple[str, str], bool] = {}

    def as_seen(self, alert: BudgetAlert) -> BudgetAlert | None:
        """The alert on those of its partitions whose account the caller may see; None if it may see none.

        It is named after one whose accounts the caller watches, if any is among them: a provider's after its own.
        """
        refs = self._charge.partitions
        runs = alert.places or ((refs.index(alert.partition), 1),)
        places = [place for first, count in runs for place in range(first, first + count)]
        seen = [place for place in places if self._sees(refs[place], alert.holder)]
        if not seen:
            return None
        # Places in a charge that the caller may not see have no meaning to it.
        shown = None if alert.places is None or not self._sees_entry else tuple(runs_of_places(seen))
        names = [refs[place] for place in seen]
        name = next((ref for ref in names if self._caller.watches(self._facts.partitions[ref])), names[0])
        return replace(alert, partition=name, places=shown)

    def _sees(self, ref: str, holder: str) -> bool:
        dataset = dataset_of_ref(ref)
        if (dataset, holder) not in self._seen:
            self._seen[dataset, holder] = self._sees_account(self._facts.partitions[ref], holder)
        return self._seen[dataset, holder]

    def _sees_account(self, partition: Partition, holder: str) -> bool:
        caller, facts = self._caller, self._facts
        if not caller.sees_partition(partition, facts) or not caller.sees_account(partition, holder, facts):
            return False
        # An entry that the caller may read shows it all that it records.
        if holder != GLOBAL or caller.watches(partition) or self._sees_entry:
            return True
        return not is_rounded(facts, partition, self._time)


def alerts_of(caller: Caller, entry: Entry, facts: Facts) -> tuple[NamedAlert, ...]:
    """The same with the names of the accounts."""
    return tuple(
        NamedAlert(holder=one.holder, name=holder_name(facts, one.holder), partition=one.partition, share=one.share)
        for one in visible_alerts(caller, entry, facts)
    )
