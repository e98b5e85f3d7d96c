"""The public register: per dataset what its domain's policy in force makes public, for people and for programs."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.http.pagination import fetch_from
from client.http.endpoints import JSON_TYPE
from ledger.commands.runs.account_epsilon import odometer_epsilon
from ledger.domain.facts import GLOBAL, Dataset, Partition
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.decisions.documents_in_force import policy_in_force, read_policy
from policy.decisions.streams_in_force import is_slice, shown_at_most, slices_of, stream_in_force
from policy.documents import Policy
from policy.planning.streams.person_epsilon import person_epsilon

PAGES: Final = Pages()
DATASETS_MAX: Final = 8
"""Datasets of one page."""
PARTITIONS_MAX: Final = 1_000
"""Partitions of one dataset that are looked at; where there are more, no ε of it is shown."""
_PLACES: Final = 4
_COLUMNS: Final = {
    "provider": "Provider",
    "dataset": "Dataset",
    "policy": "Policy",
    "level": "Level",
    "unit": "Unit and neighbours",
    "epsilon": "Budget in ε",
    "delta": "at δ",
    "spent": "ε so far, at most",
    "runs": "Runs posted",
}


@PAGES.page("/register", "Public register", public=True)
def register(reader: Reader, inputs: Inputs) -> Page:
    """What is public of each dataset."""
    entries, following = _entries(reader, inputs.get("after"))
    rows = tuple(tuple(_cell(name, entry) for name in _COLUMNS) for entry in entries)
    table = Table(
        "register",
        "Datasets, and what is public of them",
        tuple(_COLUMNS.values()),
        rows,
        "No policy in force makes anything public here. An SRO says what with a line of its policy:",
        "register: [budget, level, spent, unit]",
        address("register", after=following) if following else "",
    )
    return Page(
        "register.html",
        "Public register",
        (table,),
        {"json": address("register.json", after=inputs.get("after") or None)},
    )


@PAGES.page("/register.json", "", public=True)
def register_json(reader: Reader, inputs: Inputs) -> Page:
    """The same for programs: the transparency tiers of the deployments registry's kind, a field where it is public."""
    entries, following = _entries(reader, inputs.get("after"))
    body: c.Object = {"datasets": [*entries], "next_after": following or None, "v": 1}
    return Page("", "", body=(c.dump(body), JSON_TYPE))


def _entries(reader: Reader, after: str) -> tuple[list[c.Object], str]:
    """One page of datasets whose policy makes anything public; and after which the next begins."""
    provider, _, name = after.rpartition("/")
    fetched = fetch_from(reader.facts.datasets)((provider, name) if provider else None, DATASETS_MAX + 1)
    shown = fetched[:DATASETS_MAX]
    found = [entry for _, dataset in shown if (entry := _entry(reader, dataset)) is not None]
    more = len(fetched) > DATASETS_MAX
    return found, f"{shown[-1][1].provider}/{shown[-1][1].dataset}" if more else ""


def _entry(reader: Reader, dataset: Dataset) -> c.Object | None:
    facts = reader.facts
    current = policy_in_force(facts, dataset.domain, reader.view.time)
    policy = None if current is None else read_policy(facts.documents[current.document])
    if policy is None or not policy.register:
        return None
    entry: c.Object = {"dataset": dataset.dataset, "policy": policy.source, "provider": dataset.provider}
    if "level" in policy.register:
        entry["level"] = policy.level_of(dataset.provider, dataset.dataset)
    if "unit" in policy.register:
        entry["unit"] = f"{policy.unit}, {policy.relation}"
    return entry | _of_partitions(reader, dataset, policy)


def _of_partitions(reader: Reader, dataset: Dataset, policy: Policy) -> c.Object:
    """What the partitions of a dataset say of one person: of all that may hold its records."""
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    entry: c.Object = {}
    if "runs" in policy.register:
        entry["runs"] = facts.runs_posted(f"{dataset.provider}/{dataset.dataset}")
    if not {"budget", "spent"} & set(policy.register):
        return entry
    fetch = fetch_from(facts.partitions, provider=dataset.provider, dataset=dataset.dataset)
    partitions = [found for _, found in fetch(None, PARTITIONS_MAX + 1)]
    many = len(partitions) > PARTITIONS_MAX
    if partitions:
        epsilon, delta = (None, None) if many else _budget(facts, dataset, partitions)
        # An ε is at a δ: that is public with either.
        entry |= {"delta": delta} | ({"epsilon": epsilon} if "budget" in policy.register else {})
    if "spent" in policy.register:
        entry["spent"] = None if many else _spent(facts, dataset, partitions)
    return entry


def _budget(facts: Snapshot, dataset: Dataset, partitions: list[Partition]) -> tuple[str, str]:
    """ε and δ: the greatest, since a person is in one partition alone; of slices what all that it may be in have."""
    slices = slices_of(facts, dataset.provider, dataset.dataset, partitions)
    budgets = [(found.epsilon, found.delta) for found in partitions]
    if slices:
        together = shown_at_most(facts, dataset.provider, dataset.dataset, slices)
        budgets.append((together.epsilon, together.delta))
    epsilons, deltas = zip(*budgets, strict=True)
    return format_number(max(epsilons)), format_number(max(deltas))


def _spent(facts: Snapshot, dataset: Dataset, partitions: list[Partition]) -> str | None:
    """The ε so far, likewise, rounded up; None where none is proven."""
    facts.fetch_accounts([found.ref for found in partitions], [GLOBAL])
    shown = [(found, _epsilon(facts, found)) for found in partitions]
    known = [epsilon for _, epsilon in shown]
    stream = stream_in_force(facts, dataset.provider, dataset.dataset)
    if stream is not None:
        known.append(person_epsilon(stream, ((found, epsilon) for found, epsilon in shown if is_slice(facts, found))))
    return None if None in known else ceil_decimal(max(filter(None, known), default=Fraction(0)), _PLACES)


def _epsilon(facts: Snapshot, partition: Partition) -> Fraction | None:
    account = facts.accounts.get((partition.ref, GLOBAL))
    return Fraction(0) if account is None else odometer_epsilon(facts, account).epsilon


def _cell(name: str, entry: c.Object) -> Cell:
    if name not in entry:
        return cells.text("not public")
    value = entry[name]
    if name == "spent":
        return cells.loss(None if value is None else str(value))
    if value is None:
        return cells.text(f"not shown: more than {PARTITIONS_MAX:,} partitions")
    return cells.bound(str(value)) if name in {"epsilon", "delta"} else cells.text(value)
