"""``epsilon rotate-log-key`` on a profile: what it says, and what the profile's book needs from then on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

import ledger
from api.cli.main import app
from api.cli.settings import Settings
from client.keys.signer import Signer
from ledger.audit.replay import verify_book
from ledger.book.book import Book
from ledger.book.log_key.own_entry import BookPlace
from ledger.book.log_key.rotation import Replacement, rotate_log_key
from ledger.book.wall_clock import unix_ms
from ledger.cli.witness_client import Witness, WitnessRefused, witness_newest
from ledger.log.checkpoint import LogSigner
from ledger.store.cosignatures import check_cosignatures, cosigned_checkpoint
from ledger.store.engine import engine_of
from ledger.verifier import Checkpoint, LogKey, Policy, VerificationError
from policy.decisions.gate import gate
from tests.api.server.processes import ISSUER, write_profile
from tests.factories import third_party
from tests.factories.callers import Everybody
from tests.factories.documents import SMALL
from tests.factories.people import LOG, LOG_KEY, ORIGIN, private_key
from tests.factories.service import machine_clock
from tests.factories.stored import StoredWorld, founded_book, no_step, open_world

NEW_KEY = private_key("the log's second key")


def test_the_command_replaces_the_key_of_a_profile(tmp_path: Path) -> None:
    """It names the new key and what to do with it; a second time, and with the old key, it is refused in words."""
    with founded_book(tmp_path) as url:
        everybody = Everybody(ISSUER, ORIGIN, machine_clock())
        profile = write_profile(tmp_path / "server", url, Signer(LOG_KEY), everybody)
        Signer(NEW_KEY).save(tmp_path / "server" / "log-2.pem")
        settings = Settings.load(profile)
        before, after = (settings.kept_file(LogSigner(key, ORIGIN).key) for key in (LOG_KEY, NEW_KEY))
        assert before is not None
        assert after is not None

        def run() -> tuple[int, str]:
            done = CliRunner().invoke(app, ["rotate-log-key", str(profile), str(tmp_path / "server" / "log-2.pem")])
            return done.exit_code, done.output

        code, said = run()
        assert (code, "there is no checkpoint kept at" in said) == (5, True), said
        opened = partial(Book.open, url, gate=gate, origin=ORIGIN, clock=unix_ms)
        opened(log_key=LOG_KEY, kept=before, first_start=True).close()
        code, said = run()
        new = LogSigner(NEW_KEY, ORIGIN).key
        assert (code, new.vkey in said, "log-2.pem" in said) == (0, True, True), said
        assert Checkpoint.open(after.read_text(), new) == Checkpoint.open(after.read_text(), LOG)
        code, said = run()
        assert (code, "has replaced the log's key" in said) == (5, True), said
        opened(log_key=NEW_KEY, kept=after).close()
        assert verify_book(url, LOG, no_step, gate=gate).decided


def _in(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command there, by a process that may write no more than the files' modes say, whoever runs it."""
    words = [sys.executable, "-c", _AS_AN_OWNER, *arguments]
    path = f"{Path(ledger.__file__).parents[1]}"
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    return done.returncode, done.stdout + done.stderr


_AS_AN_OWNER: Final = """
import ctypes, sys
from api.cli.main import app
# Root may write anything; without its capabilities (capset(2), version 3) it is an owner like every other.
header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0
app(sys.argv[1:])
"""


@pytest.mark.parametrize(("place", "named"), [("server/sub", "sub/log-2.pem"), ("elsewhere", None)])
def test_both_keys_are_named_as_the_profile_reads_them(tmp_path: Path, place: str, named: str | None) -> None:
    """Typed from another folder: what it prints, put into the profile, is found from the profile's folder."""
    with founded_book(tmp_path) as url:
        everybody = Everybody(ISSUER, ORIGIN, machine_clock())
        profile = write_profile(tmp_path / "server", url, Signer(LOG_KEY), everybody, 'kept = "kept"')
        for folder in (tmp_path / "server" / "old", tmp_path / place):
            folder.mkdir()
        (tmp_path / "server" / "log.pem").rename(tmp_path / "server" / "old" / "log.pem")
        profile.write_text(profile.read_text().replace('"log.pem"', '"old/log.pem"'))
        Signer(NEW_KEY).save(tmp_path / place / "log-2.pem")
        kept = Settings.load(profile).kept_file(LOG)
        Book.open(url, gate=gate, origin=ORIGIN, clock=unix_ms, log_key=LOG_KEY, kept=kept, first_start=True).close()
        typed = os.path.relpath(profile, tmp_path / place)
        code, said = _in(tmp_path / place, "rotate-log-key", typed, "log-2.pem", "--overlap", "3")
        assert code == 0, said
        new = re.findall(r' log_key = ("[^"]+")', said)
        assert new == [f'"{named or tmp_path / place / "log-2.pem"}"']
        lines = "\n".join(("log_key = " + new[0], *re.findall(r'old_log_key = "[^"]+"', said)))
        profile.write_text(profile.read_text().replace('log_key = "old/log.pem"', lines))
        settings = Settings.load(profile)
        assert settings.log_key.read_bytes() == (tmp_path / place / "log-2.pem").read_bytes()
        assert settings.old_log_key == tmp_path / "server" / "old" / "log.pem"


def test_the_new_key_is_named_though_its_checkpoint_cannot_be_kept(tmp_path: Path) -> None:
    """The entry is recorded: without the new key's name nobody could start the service, or check its log."""
    with founded_book(tmp_path) as url:
        everybody = Everybody(ISSUER, ORIGIN, machine_clock())
        keeping = tmp_path / "keeping"
        keeping.mkdir()
        profile = write_profile(tmp_path / "server", url, Signer(LOG_KEY), everybody, f'kept = "{keeping / "kept"}"')
        Signer(NEW_KEY).save(tmp_path / "server" / "log-2.pem")
        kept = Settings.load(profile).kept_file(LOG)
        Book.open(url, gate=gate, origin=ORIGIN, clock=unix_ms, log_key=LOG_KEY, kept=kept, first_start=True).close()
        command = ("rotate-log-key", "server/profile.toml", "server/log-2.pem")
        keeping.chmod(0o500)
        try:
            tried = [_in(tmp_path, *command) for _ in range(2)]
        finally:
            keeping.chmod(0o700)
        for code, said in tried:
            assert (code, LogSigner(NEW_KEY, ORIGIN).key.vkey in said, 'log_key = "log-2.pem"' in said) == (
                5,
                True,
                True,
            )
        assert "has replaced the log's key, but the newest checkpoint cannot be kept" in tried[0][1]
        Book.open(url, gate=gate, origin=ORIGIN, clock=unix_ms, log_key=NEW_KEY, kept=kept).close()


def cosigned(world: StoredWorld, key: LogKey, witness: third_party.Witness) -> int:
    """The size of the newest checkpoint, by a key of the log and with the witness's line. Raises: VerificationError."""
    with world.book.read() as facts:
        note = cosigned_checkpoint(facts.connection, facts.size)
    return Checkpoint.open(note, Policy.parse(f"log {key.vkey}\nwitness W {witness.vkey}\nquorum W\n")).size


def show(world: StoredWorld, witness: third_party.Witness) -> int:
    """Show the newest checkpoint to a witness; the size that it cosigned. Raises: WitnessRefused."""
    engine = engine_of(world.url, writes=True)
    try:
        return witness_newest(engine, Witness.parse(witness.named)).size
    finally:
        engine.dispose()


def test_a_witness_is_led_from_the_old_key_to_the_new_one(tmp_path: Path) -> None:
    """One of another maker, which the profile requires, cosigns one history on both sides of the rotation.

    Given the old key alone it cosigns what both keys signed and nothing after it; given the new one it goes on from
    there.
    """
    new, name = LogSigner(NEW_KEY, ORIGIN).key, "witness.example/w1"
    (tmp_path / "witness").mkdir()
    with open_world(tmp_path) as world:
        world.book.close()
        everybody = Everybody(ISSUER, ORIGIN, machine_clock())
        with third_party.serving(tmp_path / "witness", name, ORIGIN, LOG.vkey) as witness:
            more = f'witnesses = "required"\n[serve.witness_keys]\n"{witness.url}" = "{witness.vkey}"'
            profile = write_profile(tmp_path / "server", world.url, Signer(LOG_KEY), everybody, more)
            Signer(NEW_KEY).save(tmp_path / "log-2.pem")
            settings = Settings.load(profile)
            kept = settings.kept_file(LOG)
            Book.open(
                world.url, gate=gate, origin=ORIGIN, clock=unix_ms, log_key=LOG_KEY, kept=kept, first_start=True
            ).close()
            done = CliRunner().invoke(app, ["rotate-log-key", str(profile), str(tmp_path / "log-2.pem")])
            assert done.exit_code == 0, done.output
            world.book = world.open(log_key=NEW_KEY)
            rotated = world.size
            assert {cosigned(world, key, witness) for key in (LOG, new)} == {rotated}
            with world.book.read() as facts:
                assert check_cosignatures(facts) == 2, "before and after"
            world.submit(world.merger())
            with pytest.raises(WitnessRefused, match=r"has another key for this log \(HTTP 403\)"):
                show(world, witness)
            with pytest.raises(VerificationError, match="lacks the cosignatures"):
                cosigned(world, new, witness)
        with third_party.serving(tmp_path / "witness", name, ORIGIN, new.vkey) as witness:
            assert show(world, witness) == cosigned(world, new, witness) == world.size > rotated


def test_a_witness_of_the_old_key_cosigns_over_the_window(tmp_path: Path) -> None:
    """Given the old key alone it cosigns each checkpoint of the window, and nothing after it."""
    name = "witness.example/w1"
    with open_world(tmp_path) as world:
        world.book.close()
        place = BookPlace(url=world.url, gate=gate, log_key=LOG_KEY, origin=ORIGIN, clock=world.clock)
        done = rotate_log_key(place, Replacement(NEW_KEY, overlap=2))
        world.book = world.open(log_key=NEW_KEY, old_key=LOG_KEY)
        (tmp_path / "witness").mkdir()
        with third_party.serving(tmp_path / "witness", name, ORIGIN, LOG.vkey) as witness:
            new = LogSigner(NEW_KEY, ORIGIN).key
            for place_ in range(2):
                world.submit(world.charge(f"run-{place_}", run=SMALL))
                assert show(world, witness) == cosigned(world, new, witness) == done.entry + 2 + place_
            world.submit(world.charge("after", run=SMALL))
            with pytest.raises(WitnessRefused, match=r"has another key for this log \(HTTP 403\)"):
                show(world, witness)


def test_the_service_of_a_suspended_log_answers_reads_alone(tmp_path: Path) -> None:
    """Commands wait with 503 until the key is resumed; a window and a theft are options of the rotation."""
    with founded_book(tmp_path) as url:
        everybody = Everybody(ISSUER, ORIGIN, machine_clock())
        folder = tmp_path / "server"
        profile = write_profile(folder, url, Signer(LOG_KEY), everybody)
        Signer(NEW_KEY).save(folder / "log-2.pem")
        kept = Settings.load(profile).kept_file(LOG)
        opened = partial(Book.open, url, gate=gate, origin=ORIGIN, clock=unix_ms, kept=kept)
        opened(log_key=LOG_KEY, first_start=True).close()

        def run(*arguments: str) -> str:
            done = CliRunner().invoke(app, [*arguments])
            return f"{done.exit_code} {done.output}"

        suspend = ("suspend-log-key", str(profile), "--reason", "a laptop is missing")
        rotate = ("rotate-log-key", str(profile), str(folder / "log-2.pem"))
        assert "has suspended the log's key" in run(*suspend)
        assert run(*suspend).startswith("5 ")
        book = opened(log_key=LOG_KEY)
        assert book.paused is not None
        book.close()
        assert "has resumed the log's key" in run(*suspend, "--resume")
        assert "--stolen-since" in run(*rotate, "--stolen", "a key")
        said = run(*rotate, "--overlap", "3")
        assert (said[:2], "old_log_key" in said) == ("0 ", True), said
        text = profile.read_text().replace('"log.pem"', '"log-2.pem"\nold_log_key = "log.pem"')
        profile.write_text(text)
        settings = Settings.load(profile)
        assert (settings.log_key.name, settings.old_log_key and settings.old_log_key.name) == ("log-2.pem", "log.pem")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("suspend-log-key", "--reason", ""), "malformed: reason"),
        (("suspend-log-key", "--reason", "x" * 2_001), "malformed: reason"),
        (
            ("rotate-log-key", "log-2.pem", "--stolen-since", "9999-01-01T00:00:00Z"),
            "lies in the future",
        ),
        (("rotate-log-key", "log-2.pem", "--stolen", "no.jwk", "--stolen-since", "2026-01-01T00:00:00Z"), "malformed"),
    ],
)
def test_what_cannot_be_recorded_is_named_and_nothing_is(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    """One sentence and an exit code; the log is as long as before."""
    with founded_book(tmp_path) as url:
        everybody = Everybody(ISSUER, ORIGIN, machine_clock())
        profile = write_profile(tmp_path / "server", url, Signer(LOG_KEY), everybody)
        Signer(NEW_KEY).save(tmp_path / "server" / "log-2.pem")
        opened = partial(Book.open, url, gate=gate, origin=ORIGIN, clock=unix_ms, log_key=LOG_KEY)
        kept = Settings.load(profile).kept_file(LOG)
        opened(kept=kept, first_start=True).close()
        size = verify_book(url, LOG, no_step).entries
        command, *rest = (str(tmp_path / "server" / word) if word.endswith(".pem") else word for word in words)
        done = CliRunner().invoke(app, [command, str(profile), *rest])
        assert done.exit_code in {2, 4, 5}, done.output
        assert says in done.output
        assert verify_book(url, LOG, no_step).entries == size
