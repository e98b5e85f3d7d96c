"""Events: every entry that a caller may see, once, in order, from where the last stream ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from api.auth.access_tokens import LIFE_S_MAX
from api.auth.authorisation import Caller
from api.http.problems import Problem
from api.http.quota_terms import STREAMS_PER_ORGANISATION_MAX
from api.http.snapshots import SnapshotProvider
from api.routes.events import Streams, events
from client.keys.signer import Signer
from ledger.commands.entry import Entry
from tests.factories.people import BANK_A, HOSPITAL, SRO, STRANGER, CleanRoom
from tests.factories.service import ServedWorld, contract_document

Event = tuple[str | None, str, Any]


@contextmanager
def _streaming(world: ServedWorld, did: str, **headers: str) -> Iterator[Iterator[Event]]:
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


def test_a_stream_goes_on_where_another_ended(world: ServedWorld, room: CleanRoom) -> None:
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
        world.service.submit(world.bank, BANK_A, "void", {"charge": "run-1"}, "void-1")
        assert next(events)[:2] == (str(size), "void")


def test_nobody_is_told_what_he_may_not_see(world: ServedWorld, room: CleanRoom) -> None:
    """The hospital gets the entries that its read of them allows, and no other."""
    del room
    shown = world.everybody.shown(HOSPITAL)
    expected = [
        str(index)
        for index in range(1, world.size)
        if world.http.get(f"/v1/entries/{index}", headers=shown).status_code == 200
    ]
    world.service.submit(world.bank, BANK_A, "void", {"charge": "run-1"}, "void-1")
    with _streaming(world, HOSPITAL, **{"last-event-id": "0"}) as events:
        told = [next(events)[0] for _ in range(len(expected) + 1)]
    assert told == [*expected, str(world.size - 1)]


def test_budget_alerts_are_told_to_whoever_may_see_the_account(world: ServedWorld) -> None:
    """Before the charge that crossed the threshold; of another lineage's account nobody hears.

    The policy shows shared accounts exactly: where it does not, a competitor hears of none.
    """
    other, signer = "did:web:bank-b.example", Signer.generate()
    world.register(other, "TDC", signer)
    agreed = {**contract_document(), "id": "digits-bank-b", "tdc": other}
    world.enter("contract", agreed, other, signer, world.hospital)
    world.enter(
        "policy",
        {**world.policy(), "alerts": ["0.01", "0.9"], "shared_accounts": "exact", "version": 2},
        SRO,
        world.sro,
    )
    last, room = str(world.size - 1), CleanRoom()
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, room), "run-1")
    world.service.submit(world.bank, BANK_A, "void", {"charge": "run-1"}, "void-1")
    crossed = {"index": int(last) + 1, "partition": f"{HOSPITAL}/digits/2026-q4", "share": "0.01"}
    for did, holders in ((SRO, ["global", "lineage"]), (BANK_A, ["global", "lineage"]), (other, ["global"])):
        with _streaming(world, did, **{"last-event-id": last}) as told:
            alerts = [next(told) for _ in holders]
            # Where the charge itself may not be seen, its place in the log is the alert's.
            place = str(int(last) + 1) if did == other else None
            assert [(one[0], one[1]) for one in alerts] == [(place, "alert")] * len(holders)
            assert [one[2]["holder"].partition(":")[0] for one in alerts] == holders
            assert all(crossed.items() <= one[2].items() for one in alerts)
            if did != other:
                assert [next(told)[:2] for _ in range(2)] == [
                    (str(int(last) + 1), "charge"),
                    (str(int(last) + 2), "void"),
                ]


def test_a_silent_stream_says_where_it_is(world: ServedWorld, room: CleanRoom) -> None:
    """Comments keep it open, with the place so far, though nothing of a charge may be seen; then it ends."""
    nobody = Caller(STRANGER, ("TDP",))

    async def told() -> list[bytes]:
        snapshots = SnapshotProvider(world.book, world.clock)
        return [one async for one in events(snapshots, lambda _: nobody, 4, life_s=0.6, ping_s=0.0)]

    del room
    opening, *pings = asyncio.run(told())
    assert opening == b": open\n\n"
    assert pings
    assert set(pings) == {f": ping\nid: {world.size - 1}\n\n".encode()}


def test_a_stream_ends_with_its_token(world: ServedWorld, room: CleanRoom) -> None:
    """What is entered after the token has expired does not reach whoever opened the stream with it."""
    del room
    last = str(world.size - 2)
    with _streaming(world, SRO, **{"last-event-id": last}) as events:
        assert next(events)[0] == str(world.size - 1)
        world.clock.now += LIFE_S_MAX * 1_000
        world.service.submit(world.bank, BANK_A, "void", {"charge": "run-1"}, "void-1")
        assert [*events] == []


def test_streams_are_counted_by_organisation() -> None:
    """So many for one, and no more until it closes one; another is not concerned."""
    streams = Streams()
    for _ in range(STREAMS_PER_ORGANISATION_MAX):
        streams.open(BANK_A)
    with pytest.raises(Problem, match="streams open"):
        streams.open(BANK_A)
    streams.open(SRO)
    streams.close(BANK_A)
    streams.open(BANK_A)
    assert len(streams) == STREAMS_PER_ORGANISATION_MAX + 1
