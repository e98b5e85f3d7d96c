"""Who knows what: each lineage's share of the cap that binds it, on each partition of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from api.auth.visibility import not_found
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import organisation, partition
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.console.views.datasets import partitions_of
from api.routes import lineage, registry
from ledger.domain.facts import GLOBAL, Account
from ledger.organisation_lineage.holder_names import holder_name
from ledger.store.snapshot import Snapshot
from policy.planning.account_caps import AccountStatus, account_status, partition_bounds

PAGES: Final = Pages()
ACCOUNTS_MAX: Final = 2_000
"""Accounts of one page; beyond, the page says that it is cut."""
LINEAGES_MAX: Final = 24
"""Columns of the map: the lineages with the fullest account."""
_STEPS: Final = (1, 20, 40, 60, 80)
"""Percent from which on a square is a shade darker."""


@dataclass(frozen=True, slots=True)
class Square:
    """One account on the map: its cell, and its shade from 0 to 5."""

    cell: Cell
    shade: int


@PAGES.page("/knowledge", "Who knows what", lineage.read_exposure)
def knowledge(reader: Reader, inputs: Inputs) -> Page:
    """The datasets whose consumers the caller may watch. Raises: Malformed, Problem."""
    page = reader.page(registry.list_datasets, 50, inputs.get("cursor"))
    own = [item for item in page.items if _watches(reader, item.provider)]
    rows = tuple(
        (
            cells.text(item.dataset, address("knowledge", item.provider, item.dataset)),
            organisation(reader, item.provider),
        )
        for item in own
    )
    following = address("knowledge", cursor=page.next_cursor) if page.next_cursor else ""
    empty = "No dataset whose consumers you may watch."
    table = Table("datasets", "Datasets", ("Dataset", "Provider"), rows, empty, following=following)
    return Page("list.html", "Who knows what", (table,))


@PAGES.page("/knowledge/{provider}/{dataset}", "", lineage.read_exposure)
def knowledge_of(reader: Reader, inputs: Inputs) -> Page:
    """The map of one dataset. Raises: Malformed, Problem."""
    provider, name = inputs.path["provider"], inputs.path["dataset"]
    reader.read(registry.read_dataset, provider, name)
    if not _watches(reader, provider):
        raise not_found(f"dataset {provider}/{name}")
    partitions, following = partitions_of(reader, provider, name, inputs.get("after"))
    accounts, whole = _accounts(reader, f"{provider}/{name}/", [opened.ref for opened in partitions])
    bounds = {opened.ref: partition_bounds(reader.facts, opened, reader.view.time) for opened in partitions}
    _fetch_nodes(reader, accounts)
    status = [account_status(reader.facts, account, bounds[account.partition]) for account in accounts]
    columns = _columns(status)
    by_place = {(account.partition, account.holder): account for account in status}
    heat = [
        (partition(opened.ref), [_square(by_place.get((opened.ref, holder))) for holder in columns])
        for opened in partitions
    ]
    names = [holder_name(reader.facts, holder) for holder in columns]
    return Page(
        "knowledge.html",
        f"Who knows what of {name}",
        (_table(status, following and address("knowledge", provider, name, after=following)),),
        {
            "heat": heat,
            "names": names,
            "whole": whole,
            "left_out": max(0, len({account.holder for account in status}) - len(columns)),
        },
    )


def _watches(reader: Reader, provider: str) -> bool:
    """Whose consumers the caller may watch, as the API's exposures have it."""
    return reader.caller.sees_all or reader.caller.organisation == provider


def _accounts(reader: Reader, prefix: str, refs: list[str]) -> tuple[list[Account], bool]:
    """The accounts of a run of partitions in order of their references, in one statement."""
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    if not refs:
        return [], True
    wanted = set(refs)
    # References are in the order of code points, so that these lie side by side; no holder comes before an empty one.
    found = facts.accounts.page((refs[0], ""), ACCOUNTS_MAX)
    of_these = [item for (ref, _), item in found if ref in wanted and ref.startswith(prefix)]
    facts.forgiven.fetch_keys([key for key, _ in found if key[0] in wanted])
    return of_these, len(found) < ACCOUNTS_MAX or found[-1][0][0] not in wanted


def _fetch_nodes(reader: Reader, accounts: list[Account]) -> None:
    """Read the nodes and their organisations together, which names them."""
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    facts.nodes.fetch_keys(
        [*{int(account.holder.partition(":")[2]) for account in accounts if account.holder != GLOBAL}]
    )
    nodes = [facts.nodes[int(account.holder.partition(":")[2])] for account in accounts if account.holder != GLOBAL]
    facts.organisations.fetch_keys([*{did for node in nodes for did in (*node.members, node.organisation)}])


def _columns(status: list[AccountStatus]) -> list[str]:
    """Everyone first, then the lineages with the fullest account."""
    fullest: dict[str, tuple[bool, Fraction]] = {}
    for account in status:
        filled = account.over, account.used.share or Fraction(0)
        fullest[account.holder] = max(filled, fullest.get(account.holder, filled))
    ordered = sorted(fullest, key=lambda holder: (holder == GLOBAL, *fullest[holder]), reverse=True)
    return ordered[:LINEAGES_MAX]


def _square(status: AccountStatus | None) -> Square:
    if status is None:
        return Square(Cell("–"), 0)
    cell = cells.share(status.used.share, str(status.used), _href(status))
    words = f"{cell.text}, over" if status.over else cell.text
    return Square(Cell(words, "number", cell.exact, cell.href), shade_of(cell))


def shade_of(share: Cell) -> int:
    """How dark the square of a share is, from 0 to 5; the darkest where there is no room at all."""
    return 5 if share.percent is None else sum(share.percent >= step for step in _STEPS)


def _href(status: AccountStatus) -> str:
    return address("partitions", *status.partition.rsplit("/", 2))


def _table(status: list[AccountStatus], following: str) -> Table:
    rows = tuple(
        (
            partition(account.partition),
            Cell(account.name, exact=account.holder),
            cells.share(account.used.share, str(account.used), _href(account)),
            cells.bound(account.epsilon_max),
            cells.bound(account.share_max),
            cells.mark("over its cap" if account.over else "within", passed=not account.over),
        )
        for account in status
    )
    columns = ("Partition", "Whose account", "Used of what binds", "Cap in ε", "Quota", "State")
    return Table("accounts", "Accounts", columns, rows, "Nothing was charged yet.", following=following)
