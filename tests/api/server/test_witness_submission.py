"""A service shows its book to witnesses: one that contradicts stops it, one that is away is asked again."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from api.cli.main import app
from api.cli.settings import Settings
from api.server import witness_submission
from api.server.witness_submission import WitnessContradicts, WitnessMissing, WitnessSubmission
from client.keys.signer import Signer
from ledger.book.checkpoint_file import default_path
from ledger.book.wall_clock import AGREEMENT_MS, DRIFT_PPM_MAX, boottime_ms
from ledger.cli.witness_client import Witness, witness_newest
from ledger.log.checkpoint import sign
from ledger.log.witness_protocol import SIZE_TYPE
from ledger.store.engine import engine_of
from ledger.store.projection_table import append_rows
from ledger.store.tables import COSIGNATURE
from ledger.verifier import EMPTY_ROOT, Checkpoint
from ledger.wire.malformed import Malformed
from tests.api.server.processes import ISSUER, write_profile
from tests.factories import third_party
from tests.factories.callers import Everybody
from tests.factories.documents import NOW, SMALL
from tests.factories.people import DAY_MS, HOUR_MS, LOG, LOG_KEY, ORIGIN, MachineClock
from tests.factories.service import machine_clock
from tests.factories.stored import ENGINES, StoredWorld, copy, open_world, rows
from tests.ledger.cli.test_witness_client import COSIGNER, PLAIN, Answer, answering, line, note_of

EMPTY = sign(Checkpoint(ORIGIN, 0, EMPTY_ROOT), LOG_KEY)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """A book of ten entries."""
    with open_world(tmp_path) as found:
        yield found


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[third_party.Witness]:
    """A process of a witness that is not ours; it has seen nothing of our log."""
    with third_party.serving(tmp_path, "witness.example/w1", ORIGIN, LOG.vkey) as found:
        yield found


@contextmanager
def submitting(
    book: Path | str, *witnesses: str, required: bool = False, machine: MachineClock | None = None
) -> Iterator[WitnessSubmission]:
    """What a service has."""
    requested = [Witness.parse(one) for one in witnesses]
    boottime = boottime_ms if machine is None else lambda: machine.boottime
    submission = WitnessSubmission(str(book), requested, required=required, empty=EMPTY, boottime=boottime)
    try:
        yield submission
    finally:
        submission.close()


def charged(world: StoredWorld, *names: str) -> None:
    """Runs, each with an entry and a checkpoint."""
    for name in names:
        assert world.submit(world.charge(name, run=SMALL))[0].code.word == "pending"


def show(book: Path | str, witness: str) -> int:
    """Show a book to a witness, as ``epsilon witness`` does."""
    engine = engine_of(str(book), writes=True)
    try:
        return witness_newest(engine, Witness.parse(witness), again=True).size
    finally:
        engine.dispose()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_newest_checkpoint_is_cosigned_and_the_time_of_the_witness_is_reported(
    engine: str, witness: third_party.Witness, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each size is stored once, and asked for again each time: only so is the witness's answer of now."""
    times: list[int] = []
    with (
        open_world(tmp_path_factory.mktemp("book"), engine) as world,
        submitting(world.url, witness.named, required=True) as submission,
    ):
        before = machine_clock().now
        for count, names in ((1, ()), (1, ()), (2, ("a",))):
            charged(world, *names)
            times += submission.show()
            with world.book.read() as facts:
                stored = facts.connection.execute(select(COSIGNATURE.c.tree_size)).scalars().all()
            assert (len(stored), max(stored)) == (count, world.size)
    assert len(times) == 3
    assert all(before - 2_000 <= one <= before + 120_000 for one in times)


def test_yesterdays_book_is_contradicted_although_the_witness_cosigned_it(
    world: StoredWorld, witness: third_party.Witness, tmp_path: Path
) -> None:
    """Its cosignature is in the backup, and proves nothing of today: the witness itself is asked."""
    assert show(world.url, witness.named) == 10
    world.book.close()
    backup = copy(world.path, tmp_path / "backup.sqlite")
    world.book = world.open()
    charged(world, "a")
    show(world.url, witness.named)
    told = r"has cosigned 11 entries of this log, and the book has 10: .*; serve the newest book, and give both"
    with submitting(backup, witness.named) as submission, pytest.raises(WitnessContradicts, match=told):
        submission.show()
    # Gone on with, it is another history.
    (tmp_path / "other").mkdir()
    with open_world(tmp_path / "other", founded=False) as other:
        other.clock.now += 1
        other.submit(*other.founding(), other.merger())
        told = r"refuses: the 11 entries it has cosigned are not this book's first"
        with submitting(other.url, witness.named) as submission, pytest.raises(WitnessContradicts, match=told):
            submission.show()


def test_a_book_that_was_emptied_is_contradicted(
    world: StoredWorld, witness: third_party.Witness, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It looks like a new one; a witness that has seen nothing of the log takes it for that."""
    with open_world(tmp_path_factory.mktemp("empty"), founded=False) as empty:
        with submitting(empty.url, witness.named, required=True) as submission:
            submission.show()
        show(world.url, witness.named)
        told = "has cosigned 10 entries of this log, and the book has 0"
        with submitting(empty.url, witness.named) as submission, pytest.raises(WitnessContradicts, match=told):
            submission.show()


def test_a_row_ahead_of_the_book_is_no_contradiction(world: StoredWorld) -> None:
    """The writer's role may append one under a witness's key: what the witness itself has seen counts."""
    engine = engine_of(world.url, writes=True)
    with engine.begin() as connection:
        ahead = [{"tree_size": 10 + more, "vkey": COSIGNER.key.vkey, "line": "x"} for more in (0, 1, 1 << 62)]
        append_rows(connection, COSIGNATURE, ahead)
    engine.dispose()
    with answering(lambda requested: (200, PLAIN, line(COSIGNER, note_of(requested)))) as (url, requested):
        with submitting(world.url, f"{COSIGNER.key.vkey}={url}", required=True) as submission:
            assert submission.show() == [1_679_315_147_000]
        assert requested[0].startswith(b"old 0\n\n")


def test_a_witness_that_is_away_is_a_warning_or_a_reason_not_to_start(
    world: StoredWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that was killed; what its profile says of it decides. The warning comes once."""
    with third_party.serving(tmp_path, "witness.example/w1", ORIGIN, LOG.vkey) as witness:
        named = witness.named
    with caplog.at_level(logging.INFO, logger="api.witnesses"), submitting(world.url, named) as submission:
        submission.show()
        submission.show()
    (record,) = caplog.records
    assert (record.levelname, "cannot be reached at http://127.0.0.1:" in record.message) == ("WARNING", True)
    with submitting(world.url, named, required=True) as submission:
        told = r"cannot be reached at .*: the profile requires its cosignature; start again when it answers"
        with pytest.raises(WitnessMissing, match=told):
            submission.show()


@pytest.mark.parametrize("required", [False, True])
def test_a_recorded_cosignature_is_no_witness_and_no_time(
    world: StoredWorld,
    required: bool,  # noqa: FBT001 - a parameter
) -> None:
    """After an idle night the clock is set back to the evening, and the evening's answer comes again and again."""
    world.clock = machine = MachineClock(NOW)
    world.book.close()
    world.book = world.open(watch=machine.watch())
    recorded: list[bytes] = []

    def answer(request: bytes) -> Answer:
        recorded.append(COSIGNER.line(note_of(request), machine.now // 1000).encode())
        return 200, PLAIN, recorded[0]

    with (
        answering(answer) as (url, _),
        submitting(world.url, f"{COSIGNER.key.vkey}={url}", required=required, machine=machine) as submission,
    ):
        assert submission.show() == [NOW // 1000 * 1000]
        world.book.witnessed(NOW)
        machine.advance(12 * HOUR_MS)
        machine.now -= 12 * HOUR_MS
        for _ in range(3):
            assert world.book.paused is not None
            if required:
                with pytest.raises(WitnessMissing, match="a cosignature that is old by the times of its earlier ones"):
                    submission.show()
            else:
                assert submission.show() == []
            machine.advance(AGREEMENT_MS)
        # The witness itself answers again.
        recorded.clear()
        machine.now += 12 * HOUR_MS
        assert submission.show() == [machine.now // 1000 * 1000]


def test_a_witness_whose_clock_loses_time_and_answers_late_is_one(world: StoredWorld) -> None:
    """As much as two clocks may drift apart since its last answer; and it cosigns before the answer comes."""
    machine, lost, slow = MachineClock(NOW), 0, 25_000

    def answer(request: bytes) -> Answer:
        signed = COSIGNER.line(note_of(request), (machine.now - lost) // 1000).encode()
        machine.advance(slow)
        return 200, PLAIN, signed

    with (
        answering(answer) as (url, _),
        submitting(world.url, f"{COSIGNER.key.vkey}={url}", required=True, machine=machine) as submission,
    ):
        for _ in range(5):
            assert submission.show() == [(machine.now - slow - lost) // 1000 * 1000]
            machine.advance(30 * DAY_MS)
            lost += 30 * DAY_MS * DRIFT_PPM_MAX // 1_000_000


def test_no_commit_waits_for_a_witness(world: StoredWorld) -> None:
    """While one holds its answer back, commands are recorded; and the other witness's answer is stored."""
    requested, answer = threading.Event(), threading.Event()

    def slow(request: bytes) -> Answer:
        requested.set()
        assert answer.wait(60)
        return 200, PLAIN, line(COSIGNER, note_of(request))

    with answering(slow) as (url, _), submitting(world.url, f"{COSIGNER.key.vkey}={url}") as submission:
        shower = threading.Thread(target=submission.show)
        shower.start()
        assert requested.wait(60)
        charged(world, "a", "b")
        answer.set()
        shower.join()
    with world.book.read() as facts:
        assert facts.connection.execute(select(COSIGNATURE.c.tree_size)).scalars().all() == [10]


def test_a_size_that_another_process_has_shown_just_now_is_no_contradiction(world: StoredWorld) -> None:
    """Between the reading of the book and the answer of the witness, it committed and showed a larger size."""

    def answer(request: bytes) -> Answer:
        if request.startswith(b"old 11\n"):
            return 200, PLAIN, line(COSIGNER, note_of(request))
        charged(world, "a")
        return 409, SIZE_TYPE, b"11\n"

    with answering(answer) as (url, requested), submitting(world.url, f"{COSIGNER.key.vkey}={url}") as submission:
        submission.show()
    assert len(requested) == 2
    with closing(sqlite3.connect(world.path)) as connection:
        assert connection.execute("SELECT tree_size FROM cosignature").fetchall() == [(11,)]


def profile_of(world: StoredWorld, witness: str, more: str = "") -> Path:
    """A service's profile that names a witness."""
    everybody = Everybody(ISSUER, ORIGIN, machine_clock())
    vkey, _, url = witness.partition("=http")
    folder = world.path.parent / f"server-{len(list(world.path.parent.glob('server-*')))}"
    path = write_profile(folder, str(world.path), Signer(LOG_KEY), everybody, more)
    path.write_text(f'{path.read_text()}\n[serve.witness_keys]\n"http{url}" = "{vkey}"\n')
    return path


@pytest.fixture
def _logging() -> Iterator[None]:
    """A service in this process leaves its log as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_logging")
def test_a_service_whose_book_and_kept_checkpoint_are_yesterdays_does_not_start(
    world: StoredWorld, witness: third_party.Witness, tmp_path: Path
) -> None:
    """Two files restored: nothing on the machine shows it, and the witness does."""
    kept = default_path(LOG)
    world.book.close()
    world.book = world.open(kept=kept, first_start=True)
    # Today it is past its deadline, and nothing is stated yet: the service would record both at once.
    charged(world, "late")
    world.book.close()
    backup, note = copy(world.path, tmp_path / "backup.sqlite"), kept.read_bytes()
    world.book = world.open(kept=kept)
    charged(world, "a")
    world.book.close()
    show(world.url, witness.named)
    copy(backup, world.path)
    kept.write_bytes(note)
    before = rows(world.path)
    refused = CliRunner().invoke(app, ["serve", str(profile_of(world, witness.named))])
    assert (refused.exit_code, "Serving " in refused.stderr) == (7, False)
    assert "has cosigned 12 entries of this log, and the book has 11: " in refused.stderr
    assert "; serve the newest book, and give both checkpoints to an auditor" in refused.stderr
    # It has signed nothing: no lapse, no statement of the state.
    assert (rows(world.path), kept.read_bytes()) == (before, note)
    away = profile_of(world, f"{COSIGNER.key.vkey}=http://127.0.0.1:9", 'witnesses = "required"')
    refused = CliRunner().invoke(app, ["serve", str(away)])
    assert (refused.exit_code, "Serving " in refused.stderr) == (75, False)
    assert rows(world.path) == before


@pytest.mark.usefixtures("_logging")
@pytest.mark.parametrize(
    ("later", "code", "told"),
    [
        (
            (409, SIZE_TYPE, b"99\n"),
            7,
            "has cosigned 99 entries of this log, and the book has ",
        ),
        ((422, PLAIN, b""), 7, "refuses: the "),
        ((500, PLAIN, b""), 75, "does not cosign (HTTP 500), for more than 0 seconds"),
    ],
)
def test_a_running_service_is_stopped_by_a_witness(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch, later: Answer, code: int, told: str
) -> None:
    """One that contradicts, and one that is required and stays away; at the start all was well."""
    monkeypatch.setattr(witness_submission, "ROUND_S", 0.05)
    monkeypatch.setattr(witness_submission, "MISSING_S_MAX", 0.1)
    # A change of just now, which is stated in half a minute, or when the book is closed.
    world.book.close()
    world.book = world.open(statements=True)
    world.reopen()
    world.clock.now = machine_clock().now
    assert world.submit(world.merger())[0].index == 11
    world.book.close()

    begun = threading.Event()

    def answer(request: bytes) -> Answer:
        if begun.is_set():
            return later
        begun.set()
        return 200, PLAIN, line(COSIGNER, note_of(request))

    more = 'allow_rollback = true\nwitnesses = "required"'
    with answering(answer) as (url, requested):
        result = CliRunner().invoke(app, ["serve", str(profile_of(world, f"{COSIGNER.key.vkey}={url}", more))])
    assert len(requested) >= 2
    assert (result.exit_code, "Serving " in result.stderr) == (code, True)
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"The service stopped: {COSIGNER.key.name} {told}"), last
    # It let go of the book; and stated the last changes only where no witness contradicts.
    world.book = world.open()
    assert world.size == (13 if code == 75 else 12)


def test_the_settings(world: StoredWorld, tmp_path: Path) -> None:
    """Witnesses by URL, each with its pinned key; who requires them names one."""
    url = "https://witness.example"
    settings = Settings.load(profile_of(world, f"{COSIGNER.key.vkey}={url}", 'witnesses = "required"'))
    assert settings.witnesses == (Witness.parse(f"{COSIGNER.key.vkey}={url}"),)
    assert settings.witnesses_required
    plain = Settings.load(profile_of(world, f"{COSIGNER.key.vkey}={url}"))
    assert (len(plain.witnesses), plain.witnesses_required) == (1, False)
    for more, vkey, told in (
        ('witnesses = "always"', COSIGNER.key.vkey, "serve.witnesses: must be 'required' or 'optional'"),
        ("", LOG.vkey, "serve.witness_keys.https://witness.example: "),
        ("", "", "serve.witness_keys.https://witness.example: "),
    ):
        with pytest.raises(Malformed, match=told):
            Settings.load(profile_of(world, f"{vkey}={url}", more))
    everybody = Everybody(ISSUER, ORIGIN, machine_clock())
    without = write_profile(tmp_path / "none", str(world.path), Signer(LOG_KEY), everybody, 'witnesses = "required"')
    with pytest.raises(Malformed, match=r"^serve.witnesses: are required, so serve.witness_keys must name one"):
        Settings.load(without)
