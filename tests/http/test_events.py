"""Events: every entry that a caller may see, once, in order, from where the last stream ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from api.events import PER_ORGANISATION_MAX, Streams
from api.problems import Problem
from ledger.entries import Entry
from tests.http.world import BANK, HOSPITAL, SRO, CleanRoom, World

Event = tuple[str | None, str, Any]


@contextmanager
def _streaming(world: World, did: str, **headers: str) -> Iterator[Iterator[Event]]:
    shown = {**world.everybody.shown(did), **headers}
    with world.http.stream("GET", "/v1/events", headers=shown) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _events(response)


def _events(response: httpx.Response) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if not line and "data" in fields:
            yield fields.get("id"), fields["event"], json.loads(fields["data"])
        name, _, value = line.partition(": ")
        fields = {**fields, name: value} if line else {}


def test_a_stream_goes_on_where_another_ended(world: World, room: CleanRoom) -> None:
    """The SRO gets every entry by its index; from any index on, the rest, and what is entered meanwhile."""
    del room
    size = world.size
    with world.book.read() as facts:
        entries = [Entry.parse(facts.entry(index)) for index in range(size)]
    with _streaming(world, SRO, **{"last-event-id": "0"}) as events:
        told = [next(events) for _ in range(size - 1)]
        assert [(one[0], one[1], one[2]["id"]) for one in told] == [
            (str(index), entry.kind, entry.id) for index, entry in enumerate(entries) if index
        ]
        world.service.submit(world.bank, BANK, "void", {"charge": "run-1"}, "void-1")
        assert next(events)[:2] == (str(size), "void")


def test_nobody_is_told_what_he_may_not_see(world: World, room: CleanRoom) -> None:
    """The hospital gets the entries that its read of them allows, and no other."""
    del room
    shown = world.everybody.shown(HOSPITAL)
    expected = [
        str(index)
        for index in range(1, world.size)
        if world.http.get(f"/v1/entries/{index}", headers=shown).status_code == 200
    ]
    world.service.submit(world.bank, BANK, "void", {"charge": "run-1"}, "void-1")
    with _streaming(world, HOSPITAL, **{"last-event-id": "0"}) as events:
        told = [next(events)[0] for _ in range(len(expected) + 1)]
    assert told == [*expected, str(world.size - 1)]


def test_streams_are_counted_by_organisation() -> None:
    """So many for one, and no more until it closes one; another is not concerned."""
    streams = Streams()
    for _ in range(PER_ORGANISATION_MAX):
        streams.take(BANK)
    with pytest.raises(Problem, match="streams open"):
        streams.take(BANK)
    streams.take(SRO)
    streams.give_back(BANK)
    streams.take(BANK)
    assert len(streams) == PER_ORGANISATION_MAX + 1
