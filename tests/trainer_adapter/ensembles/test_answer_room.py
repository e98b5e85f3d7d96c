"""A room's questions and answers, and the sentence that each refusal is: to its consumer alone, at fixed times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from socket import socketpair
from typing import Any

import httpx
import pytest
import torch

from client.http.endpoints import SIGNATURE_HEADER
from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles import question_server
from trainer_adapter.ensembles.answer_log import AnswerLog, StoredAnswer
from trainer_adapter.ensembles.answer_room import WAITING_MAX, AnswerRoom, Leave, Question, next_time
from trainer_adapter.ensembles.question_client import QuestionClient
from trainer_adapter.ensembles.question_server import QuestionServer, serving
from trainer_adapter.ensembles.signed_questions import (
    BODY_BYTES_MAX,
    PATH,
    fresh_sealing,
    input_bytes,
    open_answer,
    question_bytes,
)
from trainer_adapter.job.answer_terms import AnswerTerms

LIKE = torch.zeros((2, 3))
CONSUMER, ROOM = Signer.generate(), Signer.generate()
BOUND: c.Object = {"charge": "run-1"}
SECRET = bytes(range(32))


class Counting:
    """Answers each question with the number of its step, as soon as it is told that answers may leave."""

    def __init__(self, log: AnswerLog, steps: int) -> None:
        self.log, self.steps = log, steps
        self.held: list[Callable[[], None]] = []
        self.at_once = True

    def left(self) -> int:
        """Steps."""
        return self.steps - self.log.steps

    def give(self, questions: Sequence[Question], leave: Leave) -> str:
        """One step each."""
        first = self.log.steps + 1
        given = [
            StoredAnswer(one.id, one.digest, first + at, {"class": first + at}) for at, one in enumerate(questions)
        ]
        self.log.append(given)
        self.held.append(lambda: leave(given))
        if self.at_once:
            self.let_out()
        return "" if self.left() else "all were taken"

    def let_out(self) -> None:
        """As the ledger's entry does."""
        for one in self.held:
            one()
        self.held = []


def opened(folder: Path, steps: int = 20, **terms: Any) -> tuple[QuestionServer, Counting]:  # noqa: ANN401 - of every type
    """A room of so many steps, and its door."""
    log = AnswerLog(folder / "answers.log", BOUND, SECRET)
    source = Counting(log, steps)
    room = AnswerRoom(AnswerTerms(**terms), log, source.give, source.left)
    return QuestionServer("run-1", room, ROOM, LIKE, {CONSUMER.public.thumbprint: CONSUMER.public}), source


def row(value: float) -> torch.Tensor:
    """One record's inputs."""
    return torch.full((2, 3), float(value))


def send(door: QuestionServer, name: str, value: float, signer: Signer = CONSUMER) -> tuple[HTTPStatus, Any]:
    """A question's status, and its answer where it has one, else the sentence."""
    private, sealing = fresh_sealing()
    data = question_bytes("run-1", name, row(value), sealing)
    status, body, signature = door.reply(data, signer.sign(data))
    if status is HTTPStatus.OK:
        return status, open_answer(body, signature, ROOM.public, data, private)["answer"]
    reported: Any = c.parse(body, 10_000)
    return status, reported.get("detail", "waiting")


def test_an_answer_leaves_at_the_tick_after_it_may(tmp_path: Path) -> None:
    """Not when it is computed, nor where the ledger has no entry of it yet."""
    door, source = opened(tmp_path)
    source.at_once = False
    assert send(door, "one", 1) == (HTTPStatus.ACCEPTED, "waiting")
    door.room.tick()
    door.room.tick()
    assert send(door, "one", 1) == (HTTPStatus.ACCEPTED, "waiting")
    source.let_out()
    assert send(door, "one", 1) == (HTTPStatus.ACCEPTED, "waiting")
    door.room.tick()
    assert send(door, "one", 1) == (HTTPStatus.OK, {"class": 1})


def test_the_same_question_has_the_stored_answer(tmp_path: Path) -> None:
    """Asked together or later, under whatever id, and by a process that begins anew: one step."""
    door, source = opened(tmp_path)
    for name in ("one", "two"):
        send(door, name, 1)
    for _ in range(3):
        door.room.tick()
    send(door, "three", 1)
    door.room.tick()
    door.room.tick()
    assert {send(door, name, 1)[1]["class"] for name in ("one", "two", "three")} == {1}
    assert source.log.steps == 1
    again, other = opened(tmp_path)
    assert send(again, "one", 1) == (HTTPStatus.OK, {"class": 1})
    send(again, "four", 1)
    again.room.tick()
    again.room.tick()
    assert send(again, "four", 1) == (HTTPStatus.OK, {"class": 1})
    assert other.log.steps == 1


def test_the_same_question_is_charged_again_where_the_job_says_so(tmp_path: Path) -> None:
    """By another id; the same id is the same question, and is not."""
    door, source = opened(tmp_path, repeated="charged")
    for name in ("one", "two", "one"):
        send(door, name, 1)
    door.room.tick()
    door.room.tick()
    assert [send(door, name, 1)[1]["class"] for name in ("one", "two", "one")] == [1, 2, 1]
    assert source.log.steps == 2


def test_each_refusal_is_a_sentence(tmp_path: Path) -> None:
    """And takes no step."""
    door, source = opened(tmp_path)
    stranger = Signer.generate()
    assert send(door, "one", 1, stranger)[0] is HTTPStatus.UNAUTHORIZED
    assert send(door, "bad name", 1) == (
        HTTPStatus.BAD_REQUEST,
        "id: must be 1 to 128 letters, digits, '.', '_', '~' or '-', a letter or digit first",
    )
    assert send(door, "nan", float("nan")) == (HTTPStatus.BAD_REQUEST, "inputs: must be finite numbers")
    send(door, "one", 1)
    status, reported = send(door, "one", 2)
    assert (status, "another question" in reported) == (HTTPStatus.CONFLICT, True)
    _, sealing = fresh_sealing()
    for data, words in (
        (question_bytes("run-2", "x", row(1), sealing), "this room answers for run-1"),
        (question_bytes("run-1", "x", torch.zeros(5), sealing), "must be 6 numbers of float32, shape (2, 3): 20 bytes"),
        (b"{}", "missing"),
        (b'{"a": 1}', "RFC 8785"),
    ):
        status, body, _ = door.reply(data, CONSUMER.sign(data))
        assert (status, words in body.decode()) == (HTTPStatus.BAD_REQUEST, True), body
    assert source.log.steps == 0


def test_more_than_wait_are_told_so_and_none_is_charged(tmp_path: Path) -> None:
    """Ten thousand at once: the first 1,024 wait."""
    door, source = opened(tmp_path, 20_000)
    inputs = [torch.full((2, 3), float(one)) for one in range(10_000)]
    refused: list[str] = []
    for place, one in enumerate(inputs):
        try:
            door.room.ask(Question(f"q-{place}", c.digest(input_bytes(one)), one))
        except Malformed as error:
            refused.append(str(error))
    assert len(refused) == 10_000 - WAITING_MAX
    assert set(refused) == {"question: is one too many: 1024 wait already, retry after the next answers"}
    door.room.tick()
    assert source.log.steps == 32


def test_after_the_last_question_only_answers_are_given(tmp_path: Path) -> None:
    """With how the room ended, in words."""
    door, _ = opened(tmp_path, 1)
    send(door, "one", 1)
    assert send(door, "two", 2) == (
        HTTPStatus.GONE,
        "question: comes after the last: all that the charge or the job allows are taken",
    )
    assert door.room.tick() == "all were taken"
    assert send(door, "three", 3) == (HTTPStatus.GONE, "question: is not taken: all were taken")
    door.room.let_out()
    assert send(door, "one", 1) == (HTTPStatus.OK, {"class": 1})


def test_a_question_with_a_stored_answer_takes_no_ones_place(tmp_path: Path) -> None:
    """Of two questions the second is taken, though the first was asked again and waits."""
    door, source = opened(tmp_path, 2)
    send(door, "one", 1)
    door.room.tick()
    send(door, "again", 1)
    assert send(door, "two", 2) == (HTTPStatus.ACCEPTED, "waiting")
    assert door.room.tick() == "all were taken"
    door.room.let_out()
    assert [send(door, name, value)[1] for name, value in (("again", 1), ("two", 2))] == [{"class": 1}, {"class": 2}]
    assert source.log.steps == 2


def test_an_answer_opens_for_its_asker_alone(tmp_path: Path) -> None:
    """Who sends the same bytes again gets what only the question's key opens; another room's signature is refused."""
    door, _ = opened(tmp_path)
    private, sealing = fresh_sealing()
    data = question_bytes("run-1", "one", row(1), sealing)
    for _ in range(3):
        door.reply(data, CONSUMER.sign(data))
        door.room.tick()
    _, body, signature = door.reply(data, CONSUMER.sign(data))
    assert b"class" not in body
    assert open_answer(body, signature, ROOM.public, data, private) == {"answer": {"class": 1}, "step": 1}
    with pytest.raises(Malformed, match="does not open"):
        open_answer(body, signature, ROOM.public, data, fresh_sealing()[0])
    with pytest.raises(Malformed):
        open_answer(body, signature, CONSUMER.public, data, private)
    with pytest.raises(Malformed, match="to another question"):
        open_answer(body, signature, ROOM.public, question_bytes("run-1", "two", row(1), sealing), private)


def test_the_door_speaks_http(tmp_path: Path) -> None:
    """On the loopback interface, with one path; what is too long is not read."""
    door, _ = opened(tmp_path)
    with serving(door, 0) as address, httpx.Client(base_url=address, trust_env=False) as http:
        _, sealing = fresh_sealing()
        data = question_bytes("run-1", "one", row(1), sealing)
        head = {SIGNATURE_HEADER: CONSUMER.sign(data)}
        assert http.post(PATH, content=data, headers=head).status_code == HTTPStatus.ACCEPTED
        for _ in range(2):
            door.room.tick()
        reply = http.post(PATH, content=data, headers=head)
        assert (reply.status_code, SIGNATURE_HEADER in reply.headers) == (HTTPStatus.OK, True)
        assert http.post(PATH, content=data).status_code == HTTPStatus.UNAUTHORIZED
        assert http.post("/v1/other", content=data).status_code == HTTPStatus.NOT_FOUND
        announced = HTTPConnection(http.base_url.host, http.base_url.port)
        announced.putrequest("POST", PATH)
        announced.putheader("content-length", str(BODY_BYTES_MAX + 1))
        announced.endheaders()
        assert announced.getresponse().status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        announced.close()
        assert http.get(PATH).status_code == HTTPStatus.NOT_IMPLEMENTED


def test_answers_that_left_together_are_fetched_without_a_wait_for_each(tmp_path: Path) -> None:
    """A room ends a while after the last ones left: a client that waited for each would come too late."""
    door, _ = opened(tmp_path)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        door.room.tick()

    with (
        serving(door, 0) as address,
        QuestionClient(address, "run-1", ROOM.public, CONSUMER, wait) as client,
    ):
        given = [one["answer"] for one in client.ask([row(value) for value in range(12)])]
    assert given == [{"class": place + 1} for place in range(12)]
    assert len(waited) <= 3


def test_answers_are_sealed_and_a_torn_line_is_dropped(tmp_path: Path) -> None:
    """Another run's, or another key's, are refused by name."""
    path = tmp_path / "answers.log"
    log = AnswerLog(path, BOUND, SECRET)
    log.append([StoredAnswer("one", "0" * 64, 1, {"class": 7}), StoredAnswer("two", "1" * 64, 2, {"screened": True})])
    assert b"class" not in path.read_bytes()
    path.write_bytes(path.read_bytes() + b"torn")
    again = AnswerLog(path, BOUND, SECRET)
    assert (again.by_id, again.answered, again.steps) == (log.by_id, 1, 2)
    assert not path.read_bytes().endswith(b"torn")
    other: c.Object = {"charge": "run-2"}
    for bound, secret in ((other, SECRET), (BOUND, bytes(32))):
        with pytest.raises(Malformed, match="was not sealed for this run"):
            AnswerLog(path, bound, secret)


def test_times_are_multiples_of_the_cadence() -> None:
    """Whenever the room began."""
    assert [next_time(now, 60) for now in (0.0, 59.9, 60.0, 61.5)] == [60, 60, 120, 120]


def test_a_request_that_breaks_off_is_written_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither its sender nor where the room was: both are private, and would have no end."""
    with question_server._Server(("127.0.0.1", 0), question_server._Handler) as server:  # noqa: SLF001 - what serves
        ours, theirs = socketpair()
        theirs.sendall(b"POST /elsewhere HTTP/1.1\r\nhost: room\r\ncontent-length: 2\r\n\r\n{}")
        theirs.close()
        server.process_request_thread(ours, ("192.0.2.1", 1))
    assert capsys.readouterr() == ("", "")
