"""Lists of entries newest first: decisions, releases and openings of models, and budget alerts.

One page looks at a bounded part of the log, so it may hold fewer items than requested, or none, and still have a next
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from api.auth.authorisation import sees_entry
from api.http.pagination import READ_MAX, Page, scope_of
from api.routes.overviews.alerts import AlertedEntry, alerts_of
from api.routes.read_routes import LISTED, ReadRoutes, View
from api.wire.command_answers import Decision
from ledger.commands.entry import Entry
from ledger.store.snapshot import Snapshot

T = TypeVar("T")
ROUTES: Final = ReadRoutes("log")
LOOKED_MAX: Final = 100_000
"""Entries among which those of some kinds are looked for, for one page."""
_CHUNK: Final = 200


def newest_entries(
    view: View, scope: str, kinds: Sequence[str], show: Callable[[Entry, int], T | None], first: int = 0
) -> Page[T]:
    """One page of entries, newest first.

    Args:
        scope: the list, with all parameters that make it another one.
        kinds: of which entries; of all where it is empty.
        show: an entry with its index as the answer shows it; None where it is left out.
        first: the index to stop at.

    Raises:
        Malformed: if the cursor is not one of this list.
    """
    assert view.paging is not None
    assert isinstance(view.facts, Snapshot)
    cursors, limit = view.context.cursors, view.paging.limit
    before = view.facts.size if view.paging.cursor is None else int(cursors.read(scope, view.paging.cursor))
    floor, read = max(first, before - LOOKED_MAX), 0
    items: list[T] = []
    while before > floor and read < READ_MAX and len(items) < limit:
        stored = view.facts.newest_of(kinds, floor, _CHUNK, before)
        read += len(stored)
        for index, data in stored:
            before = index
            shown = show(Entry.parse(data), index)
            items += [] if shown is None else [shown]
            if len(items) == limit:
                break
        else:
            before = before if len(stored) == _CHUNK else floor
    return Page(items=tuple(items), next_cursor=cursors.write(scope, before) if before > first else None)


def newest_decisions(view: View, kind: str) -> Page[Decision]:
    """The decisions on one kind of command that the caller may see, newest first. Raises: Malformed."""

    def show(entry: Entry, index: int) -> Decision | None:
        return Decision.of_entry(entry, index) if sees_entry(view.caller, entry, view.facts) else None

    return newest_entries(view, scope_of(f"newest-{kind}"), [kind], show)


@ROUTES.route("/v1/alerts", LISTED, paged=True)
def list_alerts(view: View) -> Page[AlertedEntry]:
    """The entries that crossed a threshold of an account that the caller may see, newest first. Raises: Malformed."""

    def show(entry: Entry, index: int) -> AlertedEntry | None:
        found = alerts_of(view.caller, entry, view.facts)
        return AlertedEntry(alerts=found, index=index, time=entry.time) if found else None

    return newest_entries(view, scope_of("alerts"), ["charge"], show)


@ROUTES.route("/v1/key-releases", LISTED, paged=True)
def list_key_releases(view: View) -> Page[Decision]:
    """The decisions on key releases, newest first. Raises: Malformed."""
    return newest_decisions(view, "key_release")


@ROUTES.route("/v1/release-notices", LISTED, paged=True)
def list_release_notices(view: View) -> Page[Decision]:
    """The models that were announced, newest first. Raises: Malformed."""
    return newest_decisions(view, "release_notice")


@ROUTES.route("/v1/model-releases", LISTED, paged=True)
def list_model_releases(view: View) -> Page[Decision]:
    """The decisions on models that leave, newest first. Raises: Malformed."""
    return newest_decisions(view, "model_release")


@ROUTES.route("/v1/model-openings", LISTED, paged=True)
def list_model_openings(view: View) -> Page[Decision]:
    """The decisions on openings of sealed models, newest first. Raises: Malformed."""
    return newest_decisions(view, "model_opening")


@ROUTES.route("/v1/publications", LISTED, paged=True)
def list_publications(view: View) -> Page[Decision]:
    """The models that were made public, newest first. Raises: Malformed."""
    return newest_decisions(view, "publication")
