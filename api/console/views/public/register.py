"""The public register: per dataset what its domain's policy in force makes public, for people and for programs."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes.overviews import register as register_route
from client.http.endpoints import JSON_TYPE
from ledger.wire import canonical_json as c

PAGES: Final = Pages()
_SCOPE: Final = "public register"
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
    entries, following = _entries(reader, inputs)
    rows = tuple(tuple(_cell(name, entry) for name in _COLUMNS) for entry in entries)
    table = Table(
        "register",
        "Datasets, and what is public of them",
        tuple(_COLUMNS.values()),
        rows,
        "No policy in force makes anything public here. A policy does by its line register: [budget, level, spent].",
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
    entries, following = _entries(reader, inputs)
    body: c.Object = {"datasets": [*entries], "next_after": following or None, "v": 1}
    return Page("", "", body=(c.dump(body), JSON_TYPE))


def _entries(reader: Reader, inputs: Inputs) -> tuple[list[c.Object], str]:
    """One page, as the API answers it; and the cursor of the next. Raises: Malformed."""
    cursors, given = reader.view.context.cursors, inputs.get("after")
    # The next page begins after a dataset that may not be public: only this service can read which.
    entries, following = register_route.register_entries(reader.view, cursors.read(_SCOPE, given) if given else None)
    return [entry.to_json() for entry in entries], cursors.write(_SCOPE, following) if following else ""


def _cell(name: str, entry: c.Object) -> Cell:
    if name not in entry:
        return cells.text("not public")
    value = entry[name]
    if name == "spent":
        return cells.loss(None if value is None else str(value))
    if value is None:
        return cells.text(f"not shown: more than {register_route.PARTITIONS_MAX:,} partitions")
    return cells.bound(str(value)) if name in {"epsilon", "delta"} else cells.text(value)
