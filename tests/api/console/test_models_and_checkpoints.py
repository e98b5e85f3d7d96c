"""Models from their sealing on, and the checkpoints that were signed, each with the witnesses that cosigned it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from api.console.views.log import witnesses
from ledger.store.cosignatures import newest_checkpoints, store_cosignature
from ledger.store.engine import engine_of
from ledger.wire import canonical_json as c
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.factories.people import BANK_A, CleanRoom
from tests.factories.service import ServedWorld, founded_world
from tests.ledger.log.memory_log import Cosigner

MODEL: Final = "a" * 64
WITNESS: Final = Cosigner("witness.example", 7)


class Watched(NamedTuple):
    """A world with its regulator's browser."""

    world: ServedWorld
    http: httpx.Client


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """One of its own: models are made in it."""
    with (
        founded_world(tmp_path) as world,
        world.issuing({"sro": PEOPLE["SRO"]}) as issuer,
        browser(world.url) as http,
    ):
        log_in(http, issuer, "sro")
        yield Watched(world, http)


def _rows(http: httpx.Client, address: str, table: str) -> list[dict[str, str]]:
    mark = "&" if "?" in address else "?"
    answer = http.get(f"{address}{mark}csv={table}").raise_for_status()
    return [*csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig")))]


def _trained(world: ServedWorld, name: str) -> CleanRoom:
    """A run that was posted with its model."""
    room = CleanRoom()
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, room), name)
    nonce = world.service.challenge(name)
    requested: c.Object = {"charge": name, "evidence": world.attest(room, name, nonce), "nonce": nonce}
    world.service.submit(room.signer, BANK_A, "key_release", requested, f"key-of-{name}")
    world.service.submit(room.signer, BANK_A, "post", {"charge": name, "model": MODEL, "steps": 100}, f"post-{name}")
    return room


def test_a_model_is_sealed_from_its_post_until_it_is_released(watched: Watched) -> None:
    """Then it is announced, and sealed all the same; after its release it is in the other list alone."""
    world, http = watched
    assert _rows(http, "/console/models", "sealed") == []
    rooms = {name: _trained(world, name) for name in ("run-1", "run-2")}
    assert [row["Run"] for row in _rows(http, "/console/models", "sealed")] == ["run-2", "run-1"]
    model: c.Object = {"charge": "run-1", "model": MODEL}
    world.service.submit(rooms["run-1"].signer, BANK_A, "release_notice", model, "notice-1")
    sealed = {row["Run"]: row for row in _rows(http, "/console/models", "sealed")}
    assert sealed["run-2"]["May leave"] == "–"
    assert sealed["run-1"]["May leave"] == _rows(http, "/console/models", "announced")[0]["May leave"] != "–"
    assert {row["Model"] for row in sealed.values()} == {MODEL}
    world.service.submit(rooms["run-1"].signer, BANK_A, "model_release", model, "release-1")
    assert [row["Run"] for row in _rows(http, "/console/models", "sealed")] == ["run-2"]
    assert [row["Run"] for row in _rows(http, "/console/models", "released")] == ["run-1"]


def test_every_signed_checkpoint_is_listed_with_its_cosignatures(watched: Watched, tmp_path: Path) -> None:
    """Newest first, page by page; its note is what was signed, to the byte."""
    world, http = watched
    for number in range(60):
        world.open_partition(f"more-{number}")
    with world.book.read() as facts:
        signed = newest_checkpoints(facts.connection, facts.size + 1, 1_000)
    middle = signed[20]
    with engine_of(str(tmp_path / "book.sqlite"), writes=True).begin() as connection:
        store_cosignature(connection, middle.size, WITNESS.key, WITNESS.line(middle.note))
    seen, address = list[dict[str, str]](), "/console/log/checkpoints"
    while address:
        seen += _rows(http, address, "checkpoints")
        text = http.get(address).text
        before, mark, _ = text.partition('" rel="next"')
        address = before.rpartition('href="')[2].replace("&amp;", "&") if mark else ""
    column = "Entries, and its signed note"
    assert [int(row[column]) for row in seen] == [one.size for one in signed]
    assert [row["Cosigned by"] for row in seen if row[column] == str(middle.size)] == ["witness.example"]
    assert {row["Cosigned by"] for row in seen if row[column] != str(middle.size)} == {"no witness"}
    note = http.get(f"/console/log/checkpoints/{middle.size}/bytes").text
    assert note.startswith(middle.note)
    assert witnesses(note) == ["witness.example"]
    for missing in ("0", "999999", "x"):
        assert http.get(f"/console/log/checkpoints/{missing}/bytes").status_code == 404


def test_the_size_of_the_database_is_that_of_its_file(watched: Watched, tmp_path: Path) -> None:
    """After what is in the write-ahead log was moved into it."""
    world, _ = watched
    with world.book.read() as facts:
        size = facts.stored_bytes
    assert size >= (tmp_path / "book.sqlite").stat().st_size
    assert size % 4_096 == 0
