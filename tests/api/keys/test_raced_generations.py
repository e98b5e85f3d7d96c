"""Two resumes of one run at the same moment, with one nonce or with one each: one of the two goes on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event
from typing import Final

import pytest

import migrations
from client.http.problems import Refused
from ledger.book.book import Book
from ledger.book.submitted_command import Outcome, Submission
from ledger.commands.entry import Entry
from ledger.commands.runs.run_generation import RUN_GENERATION
from ledger.domain.outcomes import Code
from ledger.wire.canonical_json import Object
from tests.api.keys.balanced_services import services
from tests.factories.people import BANK_A, CleanRoom
from tests.factories.service import ServedWorld
from tests.postgres import new_book

RACERS: Final = ("one", "other")
MEETING_S: Final = 60


class MeetingBook(Book):
    """A book before which two resumes meet, both past the look at their nonces, and pass in the order of a test.

    Attributes:
        order: the ids of the two commands, the one that passes first in front.
    """

    order: tuple[str, str] = ("", "")
    _meeting = Barrier(len(RACERS))
    _passed = Event()

    def submit(self, submissions: Sequence[Submission]) -> list[Outcome]:
        """As a book's, once it is a racer's turn."""
        (name, *_) = [one.command.id for one in submissions] or [""]
        if name not in MeetingBook.order:
            return super().submit(submissions)
        MeetingBook._meeting.wait(MEETING_S)
        if name == MeetingBook.order[1]:
            assert MeetingBook._passed.wait(MEETING_S)
        try:
            return super().submit(submissions)
        finally:
            MeetingBook._passed.set()

    @classmethod
    def await_in(cls, first: str, second: str) -> None:
        """The next race is passed in this order."""
        cls.order = (first, second)
        cls._passed.clear()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def raced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedWorld]:
    """One service on SQLite, two on PostgreSQL."""
    folder = tmp_path_factory.mktemp("raced")
    opening = _on_sqlite(folder) if request.param == "sqlite" else _on_postgresql(folder)
    with opening as world:
        yield world


@contextmanager
def _on_sqlite(folder: Path) -> Iterator[ServedWorld]:
    url = f"sqlite:///{folder / 'book.sqlite'}"
    migrations.upgrade(url)
    with services(folder, url, 1, MeetingBook) as world:
        yield world


@contextmanager
def _on_postgresql(folder: Path) -> Iterator[ServedWorld]:
    with new_book() as made, services(folder, made.url, 2, MeetingBook) as world:
        yield world


def _begun(world: ServedWorld, run: str) -> CleanRoom:
    """A run that leases its steps, has its key, and took ten of them."""
    room = CleanRoom(run)
    body = {**world.charge_body(world.contract, room), "step_leases": True}
    world.service.submit(world.bank, BANK_A, "charge", body, run)
    world.service.submit(room.signer, BANK_A, "key_release", _attested(world, room, run), f"{run}-key")
    assert not _leases(world, room, run, 1, 1)
    return room


def _attested(world: ServedWorld, room: CleanRoom, run: str) -> Object:
    nonce = world.service.challenge(run)
    return {"charge": run, "evidence": world.attest(room, run, nonce), "nonce": nonce}


def _leases(world: ServedWorld, room: CleanRoom, run: str, generation: int, first: int) -> str:
    """Ask for ten steps; empty if they are leased, else status and field of the refusal."""
    body: Object = {"charge": run, "first": first, "generation": generation, "last": first + 9, "state": "ab" * 32}
    try:
        world.service.submit(room.signer, BANK_A, "step_lease", body, f"lease-{secrets.token_hex(32)}")
    except Refused as refused:
        return f"{refused.status} {refused.field}"
    return ""


def _resumed(world: ServedWorld, room: CleanRoom, bodies: dict[str, Object]) -> dict[str, object]:
    """Send both at once; by name the generation of each, or status and field of its refusal."""

    def resume(name: str) -> object:
        try:
            answer = world.service.submit(room.signer, BANK_A, RUN_GENERATION.name, bodies[name], name)
        except Refused as refused:
            return f"{refused.status} {refused.field}"
        return answer.body["generation"]

    with ThreadPoolExecutor(len(bodies)) as pool:
        return dict(zip(bodies, pool.map(resume, bodies), strict=True))


def _generations(world: ServedWorld, run: str) -> list[str]:
    """The ids of the entries that are generations of a run, in order."""
    with world.book.read() as facts:
        found = [Entry.parse(data) for _, data in facts.entries_of([RUN_GENERATION.name], 0)]
    return [one.id for one in found if one.request["charge"] == run]


@pytest.mark.parametrize("turned", [False, True], ids=["in-order", "turned"])
@pytest.mark.parametrize("nonces", [1, 2])
def test_of_two_resumes_at_once_one_goes_on(raced: ServedWorld, nonces: int, turned: bool) -> None:  # noqa: FBT001 - a parameter
    """With a nonce each, the later of the log; with one nonce the first, and the later one is not recorded."""
    run = f"run-{nonces}-{'turned' if turned else 'in-order'}"
    room, names = _begun(raced, run), [f"{run}-{one}" for one in RACERS]
    first, second = names[::-1] if turned else names
    own = [_attested(raced, room, run) for _ in range(nonces)]
    MeetingBook.await_in(first, second)
    taken = _resumed(raced, room, {first: own[0], second: own[-1]})
    assert _generations(raced, run) == ([first, second] if nonces == 2 else [first])
    assert taken == {first: 2, second: 3 if nonces == 2 else "409 body.nonce"}
    step = 11
    if nonces == 1:
        # The first one is live. Whoever was second asks for another challenge, as the trainer does, and takes over.
        assert not _leases(raced, room, run, 2, step)
        raced.service.submit(room.signer, BANK_A, RUN_GENERATION.name, _attested(raced, room, run), f"{run}-again")
        step = 21
    for first_step in (step, step + 10):
        assert [_leases(raced, room, run, one, first_step) for one in (2, 3)] == ["409 body.generation", ""]


def test_an_entry_whose_nonce_was_used_before_opens_nothing(raced: ServedWorld) -> None:
    """A program that did not look may have recorded it: sent again over HTTP, it is a conflict as often as it comes."""
    room = _begun(raced, "run-old")
    body = _attested(raced, room, "run-old")
    raced.service.submit(room.signer, BANK_A, RUN_GENERATION.name, body, "run-old-first")
    raw = raced.command_bytes(room.signer, BANK_A, RUN_GENERATION.name, body, "run-old-second")
    (recorded,) = Book.submit(raced.book, [Submission(raw, room.signer.sign(raw))])
    assert recorded.code is Code.PERMITTED
    for _ in range(2):
        assert _resumed(raced, room, {"run-old-second": body}) == {"run-old-second": "409 body.nonce"}
