"""What waits for a caller: contracts to sign, alerts, frozen accounts, closing partitions, pending runs, models."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from api.auth.authorisation import sees_entry
from api.http.field_types import Digest, Index, Natural, Ref, Steps, Time, one_of
from api.http.pagination import fetch_from
from api.routes.lineage import fetch_names
from api.routes.overviews.alerts import AlertedEntry, alerts_of
from api.routes.overviews.contract_proposals import ContractProposal, open_proposals
from api.routes.read_routes import ReadRoutes, View
from ledger.commands.entry import Entry
from ledger.domain import charge_record
from ledger.domain import facts as domain
from ledger.domain.facts import GLOBAL, holder_of
from ledger.store.snapshot import Snapshot
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record
from policy.checks.field_readers import DAY_MS
from policy.planning.account_caps import AccountStatus, account_status, partition_bounds
from policy.planning.shared_account import facts_as_shown, is_rounded, rounded_account
from policy.planning.streams.slice_status import OPEN, PARTITION_STATES, Slice, slice_status

ROUTES: Final = ReadRoutes("accounts")
ITEMS_MAX: Final = 20
"""Items of each list of an inbox."""
PARTITIONS_MAX: Final = 200
"""Partitions that are looked at for one inbox."""
ACCOUNTS_MAX: Final = 2_000
"""Accounts that are looked at for one inbox."""
PENDING_MAX: Final = 1_000
"""Pending runs, by deadline, among which those are looked for that the caller may see."""
ENTRIES_MAX: Final = 200
"""Newest entries with alerts, and newest announcements of models, that are looked at for one inbox."""
LOOKED_MAX: Final = 100_000
"""The newest entries of the log among which those are looked for."""
SOON_MS: Final = 14 * DAY_MS
"""A partition that closes within this time waits for its provider."""
_EVER: Final = 2**62
_ALERTS: Final = b'"alerts":'
RUNNING: Final = "takes commands"
PAUSED: Final = "paused"
STOPPED: Final = "stopped"


class ClosingPartition(Record, frozen=True):
    """A partition that closes soon, or that takes no run."""

    closes: Time | None
    partition: Ref
    state: Annotated[str, one_of(*PARTITION_STATES)]


class PendingRun(Record, frozen=True):
    """A run that is neither posted nor voided."""

    actor: Did
    charge: Name
    deadline: Time
    key_release: Name | None
    partitions: Annotated[Natural, Meta(description="how many")]
    steps: Steps


class AnnouncedModel(Record, frozen=True):
    """A model whose release was announced to the providers."""

    charge: Name
    index: Index
    model: Digest
    time: Time


class LogState(Record, frozen=True):
    """How the log is: paused while its clock is not believed, stopped after a failure that its operator knows."""

    size: Natural
    state: Annotated[str, one_of(RUNNING, PAUSED, STOPPED)]


class Inbox(Record, frozen=True):
    """What waits for one caller, at most twenty of each; ``cut`` names the lists of which there is more.

    Attributes:
        alerts: the newest first.
        complete: whether every partition that the caller may see was looked at.
        due: by deadline.
        to_sign: the contracts that are proposed and that the caller has not signed.
    """

    alerts: tuple[AlertedEntry, ...]
    announced: tuple[AnnouncedModel, ...]
    closing: tuple[ClosingPartition, ...]
    complete: bool
    cut: tuple[str, ...]
    due: tuple[PendingRun, ...]
    frozen: tuple[AccountStatus, ...]
    log: LogState
    organisation: Did
    roles: tuple[str, ...]
    to_sign: tuple[ContractProposal, ...]


@ROUTES.route("/v1/inbox", (401, 403))
def read_inbox(view: View) -> Inbox:
    """What waits for the caller."""
    assert isinstance(view.facts, Snapshot)
    alerts, announced = _newest(view, view.facts)
    partitions, complete = _partitions(view, view.facts)
    closing = _closing(view, view.facts, partitions)
    due = [_pending(one) for one in pending_runs(view, ITEMS_MAX + 1)]
    frozen = _frozen(view, view.facts, partitions)
    proposed = open_proposals(view.facts, view.caller, view.context.proposals.all(view.facts), view.time)
    to_sign = [one for one in proposed if view.caller.organisation in one.unsigned]
    lengths = {
        "alerts": len(alerts),
        "announced": len(announced),
        "closing": len(closing),
        "due": len(due),
        "frozen": len(frozen),
        "to_sign": len(to_sign),
    }
    return Inbox(
        alerts=tuple(alerts[:ITEMS_MAX]),
        announced=tuple(announced[:ITEMS_MAX]),
        closing=tuple(closing[:ITEMS_MAX]),
        complete=complete,
        cut=tuple(name for name, length in lengths.items() if length > ITEMS_MAX),
        due=tuple(due[:ITEMS_MAX]),
        frozen=tuple(frozen[:ITEMS_MAX]),
        log=log_state(view),
        organisation=view.caller.organisation,
        roles=view.caller.roles,
        to_sign=tuple(to_sign[:ITEMS_MAX]),
    )


def log_state(view: View) -> LogState:
    """How the log is."""
    book = view.context.snapshots.book
    stopped = book.stopped is not None or book.difference is not None
    state = STOPPED if stopped else PAUSED if book.paused is not None else RUNNING
    return LogState(size=view.facts.size, state=state)


def pending_runs(view: View, most: int) -> list[charge_record.Charge]:
    """The pending runs that the caller may see, of the first thousand by deadline."""
    facts = view.facts
    assert isinstance(facts, Snapshot)
    names = facts.due(_EVER, PENDING_MAX)
    facts.charges.fetch_keys(names)
    seen = (facts.charges[one] for one in names)
    return [one for one in seen if view.caller.sees_charge(one, facts)][:most]


def _pending(charge: charge_record.Charge) -> PendingRun:
    return PendingRun.project(charge, charge=charge.id, partitions=len(charge.partitions))


def _newest(view: View, facts: Snapshot) -> tuple[list[AlertedEntry], list[AnnouncedModel]]:
    """The newest alerts and announcements that the caller may see."""
    floor = max(0, facts.size - LOOKED_MAX)
    newest = facts.newest_of(["charge"], floor, ENTRIES_MAX)
    # Most have none, and to parse them all takes longest of all that an inbox does.
    found = [(index, Entry.parse(data)) for index, data in newest if _ALERTS in data]
    facts.charges.fetch_keys([one.id for _, one in found if "alerts" in one.body])
    alerts = [
        AlertedEntry(alerts=shown, index=index, time=one.time)
        for index, one in found
        if "alerts" in one.body and (shown := alerts_of(view.caller, one, facts))
    ]
    found = [(index, Entry.parse(data)) for index, data in facts.newest_of(["release_notice"], floor, ENTRIES_MAX)]
    announced = [
        AnnouncedModel(charge=str(one.request["charge"]), index=index, model=str(one.request["model"]), time=one.time)
        for index, one in found
        if not one.code.refused and sees_entry(view.caller, one, facts)
    ]
    return alerts, announced


def _partitions(view: View, facts: Snapshot) -> tuple[list[domain.Partition], bool]:
    """The first partitions that the caller may see; and whether these are all."""
    fetched = fetch_from(facts.partitions)(None, PARTITIONS_MAX + 1)
    seen = [one for _, one in fetched[:PARTITIONS_MAX] if view.caller.sees_partition(one, facts)]
    # What says how each of them is, together: else each is a statement of its own.
    of_datasets = [*{(one.provider, one.dataset) for one in seen}]
    facts.partitions.fetch_keys([one.ref for one in seen])
    facts.datasets.fetch_keys(of_datasets)
    facts.streams.fetch_keys(of_datasets)
    facts.policies.fetch_keys([*{facts.datasets[key].domain for key in of_datasets}])
    return seen, len(fetched) <= PARTITIONS_MAX


def _closing(view: View, facts: Snapshot, partitions: list[domain.Partition]) -> list[ClosingPartition]:
    """Partitions that close soon or take no run; those that retired have closed."""
    own = _own_holder(view)
    watched = [one for one in partitions if view.caller.watches(one)]
    shared = [one for one in partitions if not view.caller.watches(one)]
    facts.fetch_accounts([one.ref for one in partitions], [GLOBAL, own])
    states = ((watched, facts), (shared, facts_as_shown(facts, shared, view.time, own)))
    found = [
        ClosingPartition(closes=status.closes, partition=one.ref, state=status.status)
        for some, state in states
        for one in some
        if not one.retired and _is_closing(status := slice_status(state, one, view.time), view.time + SOON_MS)
    ]
    return sorted(found, key=lambda one: (one.closes is None, one.closes, one.partition))


def _is_closing(status: Slice, soon: int) -> bool:
    return status.status != OPEN or (status.closes is not None and status.closes <= soon)


def _own_holder(view: View) -> str:
    known = view.facts.organisations.get(view.caller.organisation)
    return GLOBAL if known is None else holder_of(known.node)


def _frozen(view: View, facts: Snapshot, partitions: list[domain.Partition]) -> list[AccountStatus]:
    """The accounts over their cap, of those that the caller may see, as it is shown them."""
    by_ref = {one.ref: one for one in partitions}
    if not by_ref:
        return []
    # References are in the order of code points; no holder comes before an empty one.
    stored = facts.accounts.page((min(by_ref), ""), ACCOUNTS_MAX)
    facts.forgiven.fetch_keys([key for key, _ in stored if key[0] in by_ref])
    holders = {key[1] for key, _ in stored if key[0] in by_ref} - {GLOBAL}
    facts.nodes.fetch_keys([int(holder.partition(":")[2]) for holder in holders])
    fetch_names(facts, [facts.nodes[int(holder.partition(":")[2])] for holder in holders])
    bounds = {ref: partition_bounds(facts, one, view.time) for ref, one in by_ref.items()}
    found = []
    for (ref, holder), account in stored:
        if ref not in by_ref or bounds[ref] is None or not view.caller.sees_account(by_ref[ref], holder, facts):
            continue
        status = account_status(facts, _shown(view, facts, by_ref[ref], account), bounds[ref])
        found += [status] if status.over else []
    return found


def _shown(view: View, facts: Snapshot, partition: domain.Partition, account: domain.Account) -> domain.Account:
    """Everyone's as the caller is shown it; every other one as it is."""
    if account.holder != GLOBAL or view.caller.watches(partition) or not is_rounded(facts, partition, view.time):
        return account
    return rounded_account(facts, partition, _own_holder(view))
