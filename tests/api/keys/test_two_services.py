"""Keys are released by any of several services of one book: challenge at one, command at another, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Final

import pytest

from client.http.problems import Refused
from client.keys.hpke_envelope import unseal
from client.service.answers import Answer
from ledger.wire.canonical_json import Object
from tests.api.keys.balanced_services import services
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld
from tests.postgres import new_book

SERVICES: Final = 2
ROOMS: Final = 4


@contextmanager
def _services(folder: Path) -> Iterator[ServedWorld]:
    """Two services, each with a writer of its own on one PostgreSQL book, known by the URL of their balancer."""
    with new_book() as made, services(folder, made.url, SERVICES) as world:
        yield world


def _admitted(world: ServedWorld, name: str) -> CleanRoom:
    room = CleanRoom(name)
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, room), name)
    return room


def _body(world: ServedWorld, room: CleanRoom, charge: str) -> Object:
    nonce = world.service.challenge(charge)
    return {"charge": charge, "evidence": world.attest(room, charge, nonce), "nonce": nonce}


def _release(world: ServedWorld, room: CleanRoom, body: Object, name: str) -> Answer:
    return world.service.submit(room.signer, BANK_A, "key_release", body, name)


def _at_once(world: ServedWorld, room: CleanRoom, body: Object, name: str) -> list[Answer]:
    """The same command at every service, together."""
    start = Barrier(SERVICES)

    def send(_: int) -> Answer:
        start.wait()
        return _release(world, room, body, name)

    with ThreadPoolExecutor(SERVICES) as pool:
        return [*pool.map(send, range(SERVICES))]


def test_keys_are_released_behind_a_balancer(tmp_path: Path) -> None:
    """Whichever service challenged: each room gets its key; twice at once gives one entry; a used nonce gives none."""
    with _services(tmp_path) as world:
        data_key = world.keys.data_key(HOSPITAL, "digits-key")
        assert data_key is not None
        for number in range(ROOMS):
            charge, name = f"run-{number}", f"release-{number}"
            room = _admitted(world, charge)
            body = _body(world, room, charge)
            answers = _at_once(world, room, body, name)
            assert {one.index for one in answers} == {answers[0].index}
            assert answers[0].envelope == answers[1].envelope
            assert unseal(answers[0].envelope, room.sealing, {}) == {PARTITION: data_key.reveal()}
            for again in range(SERVICES):
                with pytest.raises(Refused) as caught:
                    _release(world, room, body, f"again-{number}-{again}")
                assert (caught.value.status, caught.value.field) == (403, "body.nonce")


def test_a_refused_release_burns_its_nonce_at_every_service(tmp_path: Path) -> None:
    """It is on record, so that no service takes the nonce again, with whatever evidence."""
    with _services(tmp_path) as world:
        room = _admitted(world, "run-1")
        nonce = world.service.challenge("run-1")
        body: Object = {"charge": "run-1", "evidence": world.attest(room, "run-9", nonce), "nonce": nonce}
        with pytest.raises(Refused, match='not "run-1"'):
            _release(world, room, body, "release-1")
        right: Object = {**body, "evidence": world.attest(room, "run-1", nonce)}
        for number in range(2 * SERVICES):
            with pytest.raises(Refused) as caught:
                _release(world, room, right, f"again-{number}")
            assert (caught.value.status, caught.value.field) == (403, "body.nonce")
        assert _release(world, room, _body(world, room, "run-1"), "release-2").envelope is not None
