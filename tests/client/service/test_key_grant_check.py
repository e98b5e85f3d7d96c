"""A provider's own key store: it believes the log's key, two receipts, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from api.keys.data_key_store import KeyStore
from client.cli.main import app
from client.keys.hpke_envelope import unseal
from client.keys.signer import Signer
from client.service.answers import Answer
from client.service.key_grant_check import Grant, Proven, check, fetch, fetch_openings, read_data_keys
from ledger.verifier import LogKey
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import NOW, ServedWorld, open_world

DATA_KEY = bytes(range(32))
DIGITS = f"{HOSPITAL}/digits"
LATER = 3_600_000


class Released(NamedTuple):
    """A key release that the service authorised and holds no key for."""

    world: ServedWorld
    room: CleanRoom
    answer: Answer
    charge: Proven
    release: Proven

    def check(self, provider: str = HOSPITAL, now: int = NOW, log: LogKey | None = None) -> Grant:
        """As the provider does."""
        return check(self.charge, self.release, log or self.world.log, provider, now)


@pytest.fixture
def released(tmp_path: Path) -> Iterator[Released]:
    """One charge, its key released by an authorise-only service."""
    with open_world(tmp_path, KeyStore()) as world:
        room = CleanRoom()
        contract = world.found_service()
        # As long as the grant command, which has the machine's own clock, may need it.
        body = {**world.charge_body(contract, room), "deadline": NOW + LATER}
        world.service.submit(world.bank, BANK_A, "charge", body, "run-1")
        nonce = world.service.challenge("run-1")
        requested: Object = {"charge": "run-1", "evidence": world.attest(room, "run-1", nonce), "nonce": nonce}
        answer = world.service.submit(room.signer, BANK_A, "key_release", requested, "release-1")
        yield Released(world, room, answer, *fetch(world.service, "release-1", world.log))


def test_the_provider_seals_what_the_clean_room_opens(released: Released) -> None:
    """The envelope is the one a service with the keys would have sent."""
    grant = released.check()
    assert (grant.partitions, grant.info.not_after) == ((PARTITION,), NOW + LATER)
    expected: Object = {
        "charge": "run-1",
        "entry": released.answer.index,
        "key_release": "release-1",
        "not_after": NOW + LATER,
    }
    assert unseal(grant.seal({PARTITION: DATA_KEY}), released.room.sealing, expected) == {PARTITION: DATA_KEY}


def test_nothing_is_granted_after_the_deadline(released: Released) -> None:
    """One millisecond before, and at it."""
    assert released.check(now=NOW + LATER - 1).partitions
    with pytest.raises(Malformed, match="deadline"):
        released.check(now=NOW + LATER)


def test_nothing_is_granted_to_a_stranger(released: Released) -> None:
    """A provider of none of the partitions, whose DID may begin alike."""
    for provider in (BANK_A, HOSPITAL[:-1]):
        with pytest.raises(Malformed, match="none of the charge's partitions"):
            released.check(provider)


def test_another_log_proves_nothing(released: Released) -> None:
    """The service's word does not count, only the key that the provider keeps."""
    other = LogKey(released.world.log.origin, bytes(Signer.generate().jwk["x"].encode())[:32])  # type: ignore[union-attr] # JSON
    with pytest.raises(Malformed):
        released.check(log=other)


def test_entries_do_not_stand_for_each_other(released: Released) -> None:
    """A charge is no release, a refused release is none, and a receipt proves its own entry alone."""
    with pytest.raises(Malformed, match="is an entry of kind charge"):
        released._replace(release=released.charge).check()
    with pytest.raises(Malformed, match="does not prove"):
        released._replace(release=Proven(released.release.entry, released.charge.receipt)).check()
    changed = Proven(released.release.entry.replace(b"release-1", b"release-2"), released.release.receipt)
    with pytest.raises(Malformed, match="does not prove"):
        released._replace(release=changed).check()


def test_a_refused_release_grants_nothing(released: Released) -> None:
    """It is an entry too, and its receipt holds."""
    world, room = released.world, CleanRoom()
    body = world.charge_body(str(json.loads(released.charge.entry)["body"]["request"]["contract"]), room)
    world.service.submit(world.bank, BANK_A, "charge", body, "run-2")
    nonce = world.service.challenge("run-2")
    requested: Object = {"charge": "run-2", "evidence": world.attest(room, "run-1", nonce), "nonce": nonce}
    with pytest.raises(Exception, match="polic"):
        world.service.submit(room.signer, BANK_A, "key_release", requested, "release-2")
    charge, release = fetch(world.service, "release-2", world.log)
    with pytest.raises(Malformed, match="policy_denied"):
        released._replace(charge=charge, release=release).check()
    with pytest.raises(Malformed, match="is not of the charge"):
        released._replace(charge=charge).check()


def test_only_what_is_granted_is_sealed(released: Released) -> None:
    """Another partition's key, or one of another length, is refused by name."""
    grant = released.check()
    with pytest.raises(Malformed, match="does not cover"):
        grant.seal({f"{HOSPITAL}/digits/other": DATA_KEY})
    with pytest.raises(Malformed, match="32 bytes"):
        grant.seal({PARTITION: DATA_KEY[:16]})


def test_a_data_key_that_others_may_read_is_not_sealed(tmp_path: Path) -> None:
    """As every other key of a party: the file is its owner's alone."""
    file = tmp_path / "data.key"
    file.touch(mode=0o600)
    file.write_bytes(DATA_KEY)
    assert read_data_keys([f"{PARTITION}={file}"]) == {PARTITION: DATA_KEY}
    for mode in (0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(Malformed, match="chmod 600") as caught:
            read_data_keys([f"{PARTITION}={file}"])
        assert caught.value.field == "data_key"


class RangeReleased(NamedTuple):
    """A key release for a range, on a log whose data set has a partition before and two after it."""

    world: ServedWorld
    charge: Proven
    release: Proven

    def openings(self, *names: str) -> list[Proven]:
        """As the provider asks for them."""
        return fetch_openings(self.world.service, self.charge, [f"{DIGITS}/{name}" for name in names], self.world.log)

    def grant(self, openings: Sequence[Proven]) -> Grant:
        """By what was proven."""
        return check(self.charge, self.release, self.world.log, HOSPITAL, NOW, openings)


@pytest.fixture
def range_released(tmp_path: Path) -> Iterator[RangeReleased]:
    """A charge over s1 to s3; s4 opened before it, s5 after it."""
    with open_world(tmp_path, KeyStore()) as world:
        room, contract = CleanRoom(), world.found_service()
        for name in ("s1", "s2", "s3", "s4"):
            world.open_partition(name)
        range_: Object = {"dataset": DIGITS, "first": "s1", "last": "s3"}
        body: Object = {
            **world.charge_body(contract, room),
            "deadline": NOW + LATER,
            "partitions": [],
            "ranges": [range_],
        }
        world.service.submit(world.bank, BANK_A, "charge", body, "run-1")
        world.open_partition("s5")
        nonce = world.service.challenge("run-1")
        requested: Object = {"charge": "run-1", "evidence": world.attest(room, "run-1", nonce), "nonce": nonce}
        world.service.submit(room.signer, BANK_A, "key_release", requested, "release-1")
        yield RangeReleased(world, *fetch(world.service, "release-1", world.log))


@pytest.mark.parametrize(
    ("name", "is_granted"), [("s1", True), ("s2", True), ("s3", True), ("s4", False), ("s5", False)]
)
def test_a_partition_of_a_range_is_granted_by_its_opening(
    range_released: RangeReleased, name: str, *, is_granted: bool
) -> None:
    """Where it opened between both ends, and before the charge; what lies beside the range is not."""
    grant = range_released.grant(range_released.openings(name))
    ref = f"{DIGITS}/{name}"
    assert grant.ranges == (f"{DIGITS}[s1..s3]",)
    assert (ref in grant.partitions) is is_granted
    if is_granted:
        assert grant.seal({ref: DATA_KEY})
    else:
        with pytest.raises(Malformed, match="does not cover"):
            grant.seal({ref: DATA_KEY})


def test_what_is_not_proven_of_a_range_is_not_granted(range_released: RangeReleased) -> None:
    """No opening proves nothing, nor does one without both ends, one of another log, or another kind of entry."""
    second, first, third = range_released.openings("s2")
    assert range_released.grant([]).partitions == ()
    for some in ([second], [first, second], [second, third]):
        assert f"{DIGITS}/s2" not in range_released.grant(some).partitions
    with pytest.raises(Malformed, match="is an entry of kind charge"):
        range_released.grant([range_released.charge])
    with pytest.raises(Malformed, match="does not prove"):
        range_released.grant([Proven(first.entry, second.receipt), third])


def test_the_command_says_why_the_key_stays(released: Released, tmp_path: Path) -> None:
    """Its clock is the machine's, for which this world's deadline lies where it lies."""
    world = released.world
    world.bank.save(tmp_path / "hospital.pem")
    profile = tmp_path / "hospital.toml"
    known = f'service = "{world.url}"\nkey = "hospital.pem"\nactor = "{BANK_A}"\nlog = "{world.log.vkey}"'
    profile.write_text(f'v = 1\n[client]\n{known}\nissuer = "{world.everybody.url}"\n')
    with world.issuing():
        requested = CliRunner().invoke(app, ["key", "grant", str(profile), "release-1"])
        missing = CliRunner().invoke(app, ["key", "grant", str(profile), "release-9"])
    assert requested.exit_code == 2
    assert "none of the charge's partitions is did:web:bank-a.example's" in requested.stderr
    assert (missing.exit_code, "release-9" in missing.stderr) == (4, True)
