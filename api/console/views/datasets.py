"""Datasets, and the partitions of one over time with what is used of each."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from api.auth.visibility import not_found
from api.console.charts.strip import Bar, strip
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import dataset as dataset_cell
from api.console.frame.names import organisation, partition
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.http.pagination import fetch_from
from api.routes import accounts, registry
from ledger.domain import facts as domain
from ledger.domain.facts import GLOBAL, holder_of
from policy.planning.account_caps import account_status, empty_account, partition_bounds
from policy.planning.shared_account import facts_as_shown
from policy.planning.streams.slice_status import OPEN, Slice, slice_status

PAGES: Final = Pages()


_COLUMNS: Final = (
    "Partition",
    "State",
    "Opened",
    "Closes",
    "Records",
    "Unit",
    "ε",
    "δ",
    "Used by everyone",
    "Cap on one lineage",
)


@PAGES.page("/datasets", "Datasets", registry.list_datasets)
def datasets(reader: Reader, inputs: Inputs) -> Page:
    """The datasets that the caller may see. Raises: Malformed, Problem."""
    page = reader.page(registry.list_datasets, ROWS_MAX, inputs.get("cursor"))
    rows = tuple(
        (
            dataset_cell(item.provider, item.dataset),
            organisation(reader, item.provider),
            cells.text(item.domain, address("policies", item.domain)),
            _entry(reader, item.provider, item.index),
        )
        for item in page.items
    )
    following = address("datasets", cursor=page.next_cursor) if page.next_cursor else ""
    table = Table(
        "datasets",
        "Datasets",
        ("Dataset", "Provider", "Domain", "Entry"),
        rows,
        "No dataset that you may see.",
        following,
    )
    return Page("list.html", "Datasets", (table,))


@PAGES.page("/datasets/{provider}/{dataset}", "", registry.list_datasets, accounts.list_partitions)
def dataset(reader: Reader, inputs: Inputs) -> Page:
    """The partitions of one dataset. Raises: Malformed, Problem."""
    provider, name = inputs.path["provider"], inputs.path["dataset"]
    answer = reader.read(registry.read_dataset, provider, name)
    found, following = partitions_of(reader, provider, name, inputs.get("after"))
    uses = _uses(reader, found)
    table = Table(
        "partitions",
        "Partitions",
        _COLUMNS,
        tuple(map(_row, uses)),
        "No partition is open. The provider opens them.",
        address("datasets", provider, name, after=following) if following else "",
    )
    facts = [
        ("Provider", organisation(reader, provider)),
        ("Domain", cells.text(answer.domain, address("policies", answer.domain))),
        ("Entry", _entry(reader, provider, answer.index)),
    ]
    knowledge = address("knowledge", provider, name) if _watches(reader, provider) else ""
    chart = strip([_bar(use, reader.view.time) for use in uses], reader.view.time)
    return Page("dataset.html", f"Dataset {name}", (table,), {"about": facts, "knowledge": knowledge, "chart": chart})


def _watches(reader: Reader, provider: str) -> bool:
    """Whether the reader sees all of a provider's datasets, their entries too."""
    return reader.caller.sees_all or reader.caller.organisation == provider


def _entry(reader: Reader, provider: str, index: int) -> Cell:
    """The entry of a dataset, with a link for who may see it."""
    return cells.count(index, address("log", str(index)) if _watches(reader, provider) else "")


def partitions_of(reader: Reader, provider: str, name: str, after: str) -> tuple[list[domain.Partition], str]:
    """A page of the partitions of a dataset that the caller may see, and the reference after which the next begins."""
    if not reader.caller.sees_provider(provider, reader.facts):
        raise not_found(f"dataset {provider}/{name}")
    fetch = fetch_from(reader.facts.partitions, provider=provider, dataset=name)
    found = [opened for _, opened in fetch(after or None, ROWS_MAX + 1)]
    return found[:ROWS_MAX], found[ROWS_MAX - 1].ref if len(found) > ROWS_MAX else ""


class PartitionUse(NamedTuple):
    """A partition with its state, what everyone together has used, and the cap on one lineage."""

    opened: domain.Partition
    state: Slice
    used: Cell
    cap: Fraction | None


def _uses(reader: Reader, partitions: list[domain.Partition]) -> list[PartitionUse]:
    """What everyone together has used, as the caller is shown it: rounded up for a caller who shares the account."""
    facts, caller, now = reader.facts, reader.caller, reader.view.time
    registered = facts.organisations.get(caller.organisation)
    own = GLOBAL if registered is None else holder_of(registered.node)
    facts.fetch_accounts([opened.ref for opened in partitions], [*dict.fromkeys([GLOBAL, own])])
    shared = [opened for opened in partitions if not caller.watches(opened)]
    shown = facts_as_shown(facts, shared, now, own) if shared else facts
    uses = list[PartitionUse]()
    for opened in partitions:
        bounds, state = partition_bounds(shown, opened, now), slice_status(shown, opened, now)
        account = shown.accounts.get((opened.ref, GLOBAL)) or empty_account(opened, GLOBAL)
        used = account_status(shown, account, bounds).used
        cap = None if bounds is None else bounds.lineage_epsilon_max
        uses.append(PartitionUse(opened, state, cells.share(used.share, str(used)), cap))
    return uses


def _row(use: PartitionUse) -> tuple[Cell, ...]:
    opened, state = use.opened, use.state
    return (
        partition(opened.ref),
        cells.mark(state.status.replace("_", " "), passed=state.status == OPEN),
        cells.moment(opened.opened),
        cells.moment(state.closes),
        cells.count(opened.records),
        cells.text(opened.unit),
        cells.bound(opened.epsilon),
        cells.bound(opened.delta),
        use.used,
        cells.bound(use.cap),
    )


def _bar(use: PartitionUse, now: int) -> Bar:
    """The same as a bar over time; of one that was retired it ends now at the latest."""
    opened, words = use.opened, use.state.status.replace("_", " ")
    closes = "has no close" if use.state.closes is None else f"closes {cells.moment(use.state.closes).text}"
    title = f"{opened.ref}: {words}, opened {cells.moment(opened.opened).text}, {closes}, {use.used.text} used"
    name, live = opened.ref.rpartition("/")[2], use.state.status == OPEN
    ends = min(use.state.closes or now, now) if opened.retired else use.state.closes
    return Bar(name, opened.opened, ends, live, f"{use.used.text}, {words}", title)
