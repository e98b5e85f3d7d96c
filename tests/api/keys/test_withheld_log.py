"""Every withheld key leaves a line of log with its charge, its command and why, and no secret; a retry gets it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from api.keys.data_key_store import FileKeyStore, Secret
from api.middleware.json_log import JsonLines
from client.http.problems import Refused
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld, open_world

MODEL = "a" * 64
KEY = bytes(range(32))


class Failing(FileKeyStore):
    """A store that fails in a way of its own until it is mended."""

    broken = True

    def data_key(self, provider: str, name: str) -> Secret | None:
        """As the file store, or an error that it does not name."""
        if self.broken:
            message = "the disk says something secret"
            raise OSError(message)
        return super().data_key(provider, name)


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    records = [one for one in caplog.records if one.name == "api.withheld"]
    return [json.loads(JsonLines().format(one)) for one in records]


def _body(world: ServedWorld, room: CleanRoom, charge: str = "run-1") -> c.Object:
    nonce = world.service.challenge(charge)
    return {"charge": charge, "evidence": world.attest(room, charge, nonce), "nonce": nonce}


def _burnt(world: ServedWorld, room: CleanRoom) -> c.Object:
    body = _body(world, room)
    world.service.submit(room.signer, BANK_A, "key_release", body, "release-0")
    return body


def _expired(world: ServedWorld, room: CleanRoom) -> c.Object:
    body = _body(world, room)
    world.clock.now += 120_000
    return body


def _of_another(world: ServedWorld, room: CleanRoom) -> c.Object:
    other = CleanRoom()
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, other), "run-2")
    return {**_body(world, room), "nonce": world.service.challenge("run-2")}


def _foreign_evidence(world: ServedWorld, room: CleanRoom) -> c.Object:
    nonce = world.service.challenge("run-1")
    return {"charge": "run-1", "evidence": world.attest(room, "run-9", nonce), "nonce": nonce}


def _of_no_charge(world: ServedWorld, room: CleanRoom) -> c.Object:
    return {**_body(world, room), "charge": "run-9"}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_burnt, (403, "not_authorised body.nonce", False)),
        (_expired, (403, "not_authorised body.nonce", False)),
        (_of_another, (403, "not_authorised body.nonce", False)),
        (_foreign_evidence, (403, "policy_denied: attestation_charge", True)),
        (_of_no_charge, (404, "not_found body.charge", False)),
    ],
)
def test_a_refused_key_leaves_its_line(
    world: ServedWorld,
    room: CleanRoom,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[ServedWorld, CleanRoom], c.Object],
    told: tuple[int, str, bool],
) -> None:
    """One line for one command, recorded or not; the nonce is not in it."""
    status, reason, recorded = told
    body = make(world, room)
    size = world.size
    with caplog.at_level(logging.INFO), pytest.raises(Refused) as caught:
        world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
    assert caught.value.status == status
    (line,) = _lines(caplog)
    assert (line["charge"], line["key_release"], line["reason"]) == (body["charge"], "release-1", reason)
    assert (line["level"], line["message"]) == ("warning", "key withheld")
    assert str(body["nonce"]) not in json.dumps(line)
    assert world.size == size + recorded


def test_a_signature_that_is_wrong_leaves_its_line_and_a_dry_run_none(
    world: ServedWorld, room: CleanRoom, caplog: pytest.LogCaptureFixture
) -> None:
    """Made for another request: 401 and a line. What asks for no key is withheld none."""
    body = _body(world, room)
    raw = world.command_bytes(room.signer, BANK_A, "key_release", body, "release-1")
    path = PATHS["key_release"]
    with caplog.at_level(logging.INFO):
        assert world.post(path, raw, world.sign(room.signer, path, raw, "release-2")).status_code == 401
        (line,) = _lines(caplog)
        world.post(f"{path}?dry_run=true", raw, world.sign(room.signer, path, raw, "release-1"))
        assert world.service.submit(room.signer, BANK_A, "key_release", body, "release-1").envelope
        assert _lines(caplog) == [line]
    assert (line["charge"], line["reason"]) == ("run-1", "signature_invalid x-jws-signature")


def test_a_key_that_is_missing_leaves_its_line_and_is_had_once_it_is_back(
    world: ServedWorld, room: CleanRoom, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The entry stands; the same command gets the key, and no further line."""
    path, body = tmp_path / "keys" / HOSPITAL / "digits-key", _body(world, room)
    path.rename(path.with_suffix(".away"))
    with caplog.at_level(logging.INFO):
        with pytest.raises(Refused, match="key_withheld"):
            world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        path.with_suffix(".away").rename(path)
        answer = world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        (line,) = _lines(caplog)
    assert str(line["reason"]).startswith("key_withheld: the data key digits-key of ")
    assert answer.repeated
    assert list(answer.envelope or {}) == ["info", "sealed", "suite", "v"]


def test_a_store_that_fails_as_nobody_foresaw_withholds_the_key_and_gives_it_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """500 without a word of the fault; a line with its kind; the entry stands, and mended it gives the key."""
    store = Failing(tmp_path / "keys")
    with open_world(tmp_path, store) as world:
        room = CleanRoom()
        world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.found_service(), room), "run-1")
        body, size = _body(world, room), world.size
        with caplog.at_level(logging.INFO), pytest.raises(Refused) as caught:
            world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        assert (caught.value.status, caught.value.code, world.size) == (500, "internal", size + 1)
        (line,) = _lines(caplog)
        assert (line["charge"], line["key_release"], line["reason"]) == ("run-1", "release-1", "OSError")
        store.broken = False
        answer = world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        assert answer.envelope is not None
        assert (answer.repeated, answer.index, list(_sealed(answer.envelope))) == (True, size, [PARTITION])


def _sealed(envelope: c.Object) -> c.Object:
    """The sealed keys of an envelope, by partition."""
    sealed = envelope["sealed"]
    assert isinstance(sealed, dict)
    return sealed
