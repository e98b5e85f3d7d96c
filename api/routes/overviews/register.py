"""The public register: per dataset what its domain's policy in force makes public, for any caller."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from api.http.field_types import Natural, ReportedNumber, RoundedUp
from api.http.pagination import Page, fetch_from
from api.routes.read_routes import ReadRoutes, View
from ledger.commands.runs.account_epsilon import odometer_epsilon
from ledger.domain.facts import GLOBAL, Dataset, Partition
from ledger.store.snapshot import Snapshot
from ledger.wire.exact_numbers import ceil_decimal, format_number
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record
from policy.decisions.documents_in_force import policy_in_force, read_policy
from policy.decisions.streams_in_force import is_slice, shown_at_most, slices_of, stream_in_force
from policy.documents import Policy
from policy.planning.streams.person_epsilon import person_epsilon

ROUTES: Final = ReadRoutes("registry")
DATASETS_MAX: Final = 8
"""Datasets that are read for one page of the register."""
PARTITIONS_MAX: Final = 1_000
"""Partitions of one dataset that are read; where there are more, no ε of it is shown."""
_PLACES: Final = 4
_SCOPE: Final = "register"
_UNSET: Final[Any] = msgspec.UNSET


class RegisterEntry(Record, frozen=True):
    """What is public of one dataset: a field that its policy does not make public is absent.

    Attributes:
        epsilon: the budget, of all partitions that may hold a person's records; null of too many partitions.
        delta: at which every ε holds; null likewise.
        spent: the ε so far, rounded up; null where none is proven, or of too many partitions.
    """

    dataset: Name
    policy: Annotated[str, Meta(description="the policy in force that says what is public, and its version")]
    provider: Did
    delta: ReportedNumber | msgspec.UnsetType | None = _UNSET
    epsilon: ReportedNumber | msgspec.UnsetType | None = _UNSET
    level: Annotated[int, Meta(ge=0, le=2, description="of sensitivity")] | msgspec.UnsetType = _UNSET
    runs: Annotated[Natural, Meta(description="runs that were posted")] | msgspec.UnsetType = _UNSET
    spent: RoundedUp | msgspec.UnsetType | None = _UNSET
    unit: Annotated[str, Meta(description="privacy unit and neighbouring relation")] | msgspec.UnsetType = _UNSET


@ROUTES.route("/v1/register", (422,), paged=True)
def read_register(view: View) -> Page[RegisterEntry]:
    """What policies make public of the datasets. Raises: Malformed."""
    assert view.paging is not None
    cursors, paging = view.context.cursors, view.paging
    after = None if paging.cursor is None else cursors.read(_SCOPE, paging.cursor)
    entries, following = register_entries(view, after, paging.limit)
    return Page(items=entries, next_cursor=None if following is None else cursors.write(_SCOPE, following))


def register_entries(
    view: View, after: tuple[str, str] | None, datasets_max: int = DATASETS_MAX
) -> tuple[tuple[RegisterEntry, ...], tuple[str, str] | None]:
    """What is public of the datasets after one; and after which the next page begins, None after the last."""
    most = min(datasets_max, DATASETS_MAX)
    fetched = fetch_from(view.facts.datasets)(after, most + 1)
    entries = tuple(entry for _, dataset in fetched[:most] if (entry := _entry(view, dataset)) is not None)
    return entries, fetched[most - 1][0] if len(fetched) > most else None


def _entry(view: View, dataset: Dataset) -> RegisterEntry | None:
    facts = view.facts
    current = policy_in_force(facts, dataset.domain, view.time)
    policy = None if current is None else read_policy(facts.documents[current.document])
    if policy is None or not policy.register:
        return None
    shown: dict[str, Any] = {}
    if "level" in policy.register:
        shown["level"] = policy.level_of(dataset.provider, dataset.dataset)
    if "unit" in policy.register:
        shown["unit"] = f"{policy.unit}, {policy.relation}"
    shown |= _of_partitions(view, dataset, policy)
    return RegisterEntry(dataset=dataset.dataset, policy=policy.source, provider=dataset.provider, **shown)


def _of_partitions(view: View, dataset: Dataset, policy: Policy) -> dict[str, Any]:
    """What the partitions of a dataset say of one person: of all that may hold its records."""
    facts = view.facts
    assert isinstance(facts, Snapshot)
    shown: dict[str, Any] = {}
    if "runs" in policy.register:
        shown["runs"] = facts.runs_posted(f"{dataset.provider}/{dataset.dataset}")
    if not {"budget", "spent"} & set(policy.register):
        return shown
    fetch = fetch_from(facts.partitions, provider=dataset.provider, dataset=dataset.dataset)
    partitions = [partition for _, partition in fetch(None, PARTITIONS_MAX + 1)]
    many = len(partitions) > PARTITIONS_MAX
    if partitions:
        epsilon, delta = (None, None) if many else _budget(facts, dataset, partitions)
        # An ε is at a δ: that is public with either.
        shown |= {"delta": delta} | ({"epsilon": epsilon} if "budget" in policy.register else {})
    if "spent" in policy.register:
        shown["spent"] = None if many else _spent(facts, dataset, partitions)
    return shown


def _budget(facts: Snapshot, dataset: Dataset, partitions: list[Partition]) -> tuple[str, str]:
    """ε and δ: the greatest, since a person is in one partition alone; of slices what all that it may be in have."""
    slices = slices_of(facts, dataset.provider, dataset.dataset, partitions)
    budgets = [(partition.epsilon, partition.delta) for partition in partitions]
    if slices:
        together = shown_at_most(facts, dataset.provider, dataset.dataset, slices)
        budgets.append((together.epsilon, together.delta))
    epsilons, deltas = zip(*budgets, strict=True)
    return format_number(max(epsilons)), format_number(max(deltas))


def _spent(facts: Snapshot, dataset: Dataset, partitions: list[Partition]) -> str | None:
    """The ε so far, likewise, rounded up; None where none is proven."""
    facts.fetch_accounts([partition.ref for partition in partitions], [GLOBAL])
    shown = [(partition, _epsilon(facts, partition)) for partition in partitions]
    known = [epsilon for _, epsilon in shown]
    stream = stream_in_force(facts, dataset.provider, dataset.dataset)
    if stream is not None:
        slices = ((partition, epsilon) for partition, epsilon in shown if is_slice(facts, partition))
        known.append(person_epsilon(stream, slices))
    return None if None in known else ceil_decimal(max(filter(None, known), default=Fraction(0)), _PLACES)


def _epsilon(facts: Snapshot, partition: Partition) -> Fraction | None:
    account = facts.accounts.get((partition.ref, GLOBAL))
    return Fraction(0) if account is None else odometer_epsilon(facts, account).epsilon
