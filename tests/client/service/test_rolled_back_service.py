"""A service that was set back to yesterday's book: every client that has seen more refuses it, whatever it restored.

Both the book and the checkpoint that the service keeps are yesterday's here, so the service itself notices nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from client.cli.main import app
from client.keys.signer import Signer
from client.service.key_grant_check import fetch
from client.service.seen_checkpoint import SeenCheckpoint, SeenCheckpointError
from ledger.verifier import Checkpoint
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, LOG, CleanRoom
from tests.factories.service import ServedWorld, founded_world


class Served(NamedTuple):
    """A service over a copy of one book, and the issuer of its callers' tokens."""

    world: ServedWorld
    issuer: str


Opener = Callable[[str], Served]


@pytest.fixture
def open_service(tmp_path: Path) -> Iterator[Opener]:
    """Services over copies of one book, each in a folder of its own, under one log key."""
    with ExitStack() as stack:

        def opened(name: str) -> Served:
            world = stack.enter_context(founded_world(tmp_path / name))
            return Served(world, stack.enter_context(world.issuing()))

        yield opened


def profile_of(served: Served, folder: Path, actor: str, signer: Signer) -> Path:
    """A party's profile for one service."""
    world, issuer = served
    folder.mkdir(exist_ok=True)
    (folder / "key.pem").unlink(missing_ok=True)
    signer.save(folder / "key.pem")
    path = folder / "profile.toml"
    lines = ("v = 1", "[client]", f'service = "{world.url}"', 'key = "key.pem"', f'actor = "{actor}"')
    path.write_text("\n".join((*lines, f'log = "{world.log.vkey}"', f'issuer = "{issuer}"')))
    return path


def charge(world: ServedWorld, name: str) -> None:
    """One run of the bank's."""
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, CleanRoom(name)), name)


def release(world: ServedWorld, run: str) -> None:
    """A run and the release of its key."""
    room = CleanRoom(run)
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, room), run)
    nonce = world.service.challenge(run)
    asked: c.Object = {"charge": run, "evidence": world.attest(room, run, nonce), "nonce": nonce}
    world.service.submit(room.signer, BANK_A, "key_release", asked, f"release-{run}")


def seen_size() -> int:
    """How many entries the clients of this test have seen."""
    return Checkpoint.open(SeenCheckpoint(LOG, "").path.read_text(encoding="utf-8"), LOG).size


def test_every_command_refuses_it(open_service: Opener, tmp_path: Path) -> None:
    """One that reads and one that signs, each before it sends anything; also once the second history is longer."""
    first, second = open_service("today"), open_service("yesterday")
    today, yesterday = first.world, second.world
    body = tmp_path / "charge.json"
    body.write_bytes(c.dump(today.charge_body(today.contract, CleanRoom("b"))))

    def asked(served: Served, *words: str) -> tuple[int, str]:
        path = profile_of(served, tmp_path / "bank", BANK_A, today.bank)
        result = CliRunner().invoke(app, [*words[:-1], str(path), words[-1]])
        return result.exit_code, result.stderr

    charge(today, "a")
    size = today.size
    assert asked(first, "account", PARTITION)[0] == 0
    assert seen_size() == size
    for _ in range(2):
        before = yesterday.size
        for words in (("account", PARTITION), ("quote", str(body)), ("charge", "make", str(body))):
            code, reported = asked(second, *words)
            assert (code, reported.count("\n")) == (7, 2), reported
            assert f"does not prove that its log goes on from the {size} entries seen before" in reported
            assert "trust nothing it answers, give" in reported
        assert yesterday.size == before
        # The operator goes on with it, and the log key signs a second history that is longer than the first.
        charge(yesterday, "c")
        charge(yesterday, "d")
    assert asked(first, "charge", "make", str(body))[0] == 0
    assert seen_size() == today.size == size + 1


def test_a_provider_gives_it_no_key(open_service: Opener, tmp_path: Path) -> None:
    """The release is proven by receipts under the log's own key, in a history that was set back and went on."""
    first, second = open_service("today"), open_service("yesterday")
    today, yesterday = first.world, second.world
    data_key = tmp_path / "data.key"
    data_key.touch(mode=0o600)
    data_key.write_bytes(bytes(32))

    def granted(served: Served, name: str) -> tuple[int, str, str]:
        key = f"{PARTITION}={data_key}"
        path = profile_of(served, tmp_path / "hospital", HOSPITAL, today.hospital)
        result = CliRunner().invoke(app, ["key", "grant", str(path), name, "--data-key", key])
        return result.exit_code, result.stdout, result.stderr

    release(today, "run-1")
    assert granted(first, "release-run-1")[0] == 0
    release(yesterday, "run-2")
    charge(yesterday, "longer-than-the-first")
    assert yesterday.size > today.size
    code, sealed, reported = granted(second, "release-run-2")
    assert (code, sealed) == (7, "")
    assert f"goes on from the {today.size} entries seen before" in reported
    # For programs as for people: there is no other way to fetch what a grant is checked by.
    with pytest.raises(SeenCheckpointError):
        fetch(yesterday.service, "release-run-2", LOG)
    assert granted(first, "release-run-1")[0] == 0


def test_a_service_that_is_set_back_in_the_middle_of_a_run(open_service: Opener) -> None:
    """A clean room's own connections, checked long ago: each receipt is held to what was seen as it comes."""
    today, yesterday = open_service("today").world, open_service("yesterday").world
    held = today.service.held_to(LOG)
    body = today.charge_body(today.contract, CleanRoom("a"))
    assert held.submit(today.bank, BANK_A, "charge", body, "a").receipt is not None
    assert seen_size() == today.size
    # The process at its address is replaced by one over the older book.
    held._http.base_url, held._base_url = yesterday.url, yesterday.url  # noqa: SLF001 - the address is the client's own
    held._http.auth = yesterday.everybody  # noqa: SLF001 - the tests' own callers
    with pytest.raises(SeenCheckpointError, match="does not prove"):
        held.submit(yesterday.bank, BANK_A, "charge", body, "a")
    with pytest.raises(SeenCheckpointError, match="does not prove"):
        held.receipt("partition-2026-q4")
    with pytest.raises(SeenCheckpointError, match="does not prove"):
        held.checkpoint()


def test_no_key_is_granted_once_the_run_is_settled(tmp_path: Path) -> None:
    """The release is proven as before; but what was charged for it may be given back by then."""
    with founded_world(tmp_path) as world:
        charge(world, "run-1")
        release(world, "run-1")
        held = world.service.held_to(world.log)
        assert fetch(held, "release-run-1", world.log)
        assert world.submit(world.settle("run-1", 0))[0].code.word == "posted"
        with pytest.raises(Malformed, match="is of the charge run-1, which is posted: the key stays"):
            fetch(held, "release-run-1", world.log)
