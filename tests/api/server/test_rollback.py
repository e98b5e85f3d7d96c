"""``epsilon serve`` with the settings that it has by default: no older copy of a book is served."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from typer.testing import CliRunner

from api.cli.main import app
from api.cli.settings import Settings
from client.keys.signer import Signer
from ledger.book.checkpoint_file import default_path
from ledger.files.state_folder import state_folder
from ledger.wire.malformed import Malformed
from tests.api.server.processes import ISSUER, Served, write_profile
from tests.factories.callers import Everybody
from tests.factories.documents import SMALL
from tests.factories.people import LOG, LOG_KEY, ORIGIN
from tests.factories.service import machine_clock
from tests.factories.stored import StoredWorld, copy, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """A closed book of ten entries."""
    with open_world(tmp_path) as found:
        found.book.close()
        yield found


def profile_of(world: StoredWorld, more: str = "") -> Path:
    """A service's profile, which names no file for the newest checkpoint unless ``more`` does."""
    rmtree(world.path.parent / "server", ignore_errors=True)
    everybody = Everybody(ISSUER, ORIGIN, machine_clock())
    return write_profile(world.path.parent / "server", str(world.path), Signer(LOG_KEY), everybody, more)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """A service that does not start leaves the log of this process as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def refused(profile: Path, *options: str) -> str:
    """What a service says that does not start."""
    result = CliRunner().invoke(app, ["serve", str(profile), *options])
    assert (result.exit_code, result.stdout) == (5, "")
    return result.stderr


def test_yesterdays_book_is_not_served(world: StoredWorld, tmp_path: Path) -> None:
    """The whole attack: one copy of a file. And deleting what was kept does not help."""
    backup = copy(world.path, tmp_path / "backup.sqlite")
    profile, kept = profile_of(world), default_path(LOG)
    assert kept.is_relative_to(state_folder())
    reported = refused(profile)
    assert f"there is no checkpoint kept at {kept}" in reported
    assert "start once with --first-start" in reported
    served = Served(profile, "--first-start")
    assert f"The newest checkpoint is kept at {kept}: no older copy of this book is served.\n" in served.before
    assert '"message": "first start: this book of 10 entries is taken for the newest copy' in "".join(served.before)
    assert served.end() == ""
    world.book = world.open(kept=kept)
    world.submit(world.charge("a", run=SMALL))
    world.book.close()
    copy(backup, world.path)
    reported = "the book has 10 entries, fewer than the 11 under the checkpoint kept at"
    assert reported in refused(profile)
    assert reported in refused(profile, "--first-start")
    kept.unlink()
    assert f"there is no checkpoint kept at {kept}" in refused(profile)


def test_a_profile_that_allows_rollback_says_so(world: StoredWorld) -> None:
    """In words, loudly, and in the log, before anything else: here the book is not even there."""
    profile = profile_of(world, "allow_rollback = true")
    world.path.unlink()
    first, second, third = refused(profile).splitlines()
    assert first.startswith('{"level": "warning", "logger": "api.rollback"')
    assert second.startswith("WARNING: the profile says allow_rollback: an older copy of this book would be served")
    assert third.startswith("there is no book at")
    assert not default_path(LOG).exists()


def test_a_new_book_costs_two_lines_and_no_question(tmp_path: Path) -> None:
    """Development as before; from then on the book is known here."""
    with open_world(tmp_path, founded=False) as world:
        world.book.close()
        served = Served(profile_of(world))
        served.end()
        assert [line.partition(":")[0] for line in served.before[:-1]] == [
            f"The newest checkpoint is kept at {default_path(LOG)}",
            "Its console, for browsers",
        ]
        assert default_path(LOG).exists()


def test_what_is_kept_in_the_folder_of_the_book_is_warned_of(world: StoredWorld, tmp_path: Path) -> None:
    """Below it too; not elsewhere, and not with a database server."""
    for more, beside in (
        (f'kept = "{world.path.parent}/kept/checkpoint"', True),
        ("", False),
        (f'kept = "{tmp_path.parent}/kept"', False),
    ):
        profile = profile_of(world, more)
        assert Settings.load(profile).keeps_beside_book is beside
        assert ("lies in the folder of the book" in refused(profile)) is beside
    served = replace(Settings.load(profile_of(world, 'kept = "kept"')), book="postgresql+psycopg://db.example/book")
    assert not served.keeps_beside_book


def test_the_settings(world: StoredWorld, tmp_path: Path) -> None:
    """A file beside the profile, an absolute one, the default, none; and not two of them."""
    for more, file in (
        ("", default_path(LOG)),
        ('kept = "elsewhere/checkpoint"', tmp_path / "server" / "elsewhere" / "checkpoint"),
        ('kept = "/var/kept"', Path("/var/kept")),
        ("allow_rollback = false", default_path(LOG)),
        ("allow_rollback = true", None),
    ):
        assert Settings.load(profile_of(world, more)).kept_file(LOG) == file
    assert Settings.load(profile_of(world, "")).snapshot_file(LOG) == Path(f"{world.path}.snapshot")
    elsewhere = Settings.load(profile_of(world, 'snapshot = "elsewhere"')).snapshot_file(LOG)
    assert elsewhere == tmp_path / "server" / "elsewhere"
    with pytest.raises(Malformed, match=r"^serve.allow_rollback: keeps no checkpoint"):
        Settings.load(profile_of(world, 'allow_rollback = true\nkept = "a"'))
