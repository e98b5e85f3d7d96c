"""``epsilon rotate-log-key`` on a profile: what it says, and what the profile's book needs from then on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from typer.testing import CliRunner

from api.cli.main import app
from api.cli.settings import Settings
from client.keys.signer import Signer
from ledger.audit.replay import verify_book
from ledger.book.book import Book
from ledger.book.wall_clock import unix_ms
from ledger.log.checkpoint import LogSigner
from ledger.verifier import Checkpoint
from policy.decisions.gate import gate
from tests.api.server.processes import ISSUER, write_profile
from tests.factories.callers import Everybody
from tests.factories.people import LOG, LOG_KEY, ORIGIN, private_key
from tests.factories.service import machine_clock
from tests.factories.stored import founded_book, no_step

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
