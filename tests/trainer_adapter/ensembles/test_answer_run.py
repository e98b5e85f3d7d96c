"""Ensembles against a real service: charged, sealed, asked over HTTP, gone on with, copied, revoked, posted."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import torch

from api.demo import digits, participants
from api.demo.participants import Organisation
from api.demo.sealed_archive import sealed_archive
from client.http.problems import Refused
from client.keys.signer import Signer
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.answer import AnswerReport, answer_job
from trainer_adapter.cli.ensemble import EnsembleJob, seal_ensemble
from trainer_adapter.ensembles.answer_log import StoredAnswer
from trainer_adapter.ensembles.answer_room import Question
from trainer_adapter.ensembles.ensemble_run import EnsembleAnswers, EnsembleRun
from trainer_adapter.ensembles.question_client import QuestionClient, room_key
from trainer_adapter.ensembles.signed_questions import input_bytes
from trainer_adapter.job.job_spec import Job
from trainer_adapter.training.training_records import read_records

TAKEN: list[c.Json] = ["poisson_gaussian", "gdp", "bounded_range"]
VOTES = 'kind = "plurality"\nclasses = 10\nnoise = "40"\n'
CLEAR = VOTES.replace("40", "9")
ANSWERS = "[train.answers]\ncadence_s = 1\nat_once = 4\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service whose partition is the digits, at Level 2."""
    folder = tmp_path_factory.mktemp("answers") / "place"
    with open_place(folder, mechanisms=TAKEN, level=2, model_release=False) as found:
        yield found


def _job(place: Place, name: str, questions: int = 5, answer: str = VOTES, answers: str = ANSWERS, **plan: str) -> Path:
    path = place.job(name)
    (head, _) = path.read_text().split("[train.plan]")
    known = {"relation": '"REPLACE_SPECIAL"', "chunks_by": '"position"', "teachers": "40"} | plan
    lines = "\n".join(f"{field} = {value}" for field, value in known.items() if value)
    extra = f'\n[train.resume]\nkey = "../keys/{name}.room"\nevery_s = 0\n{answers}'
    taught = "[train.teachers]\nsteps = 30\nbatch_size = 8\n"
    whole = f'[train.plan]\nkind = "ensemble"\nv = 1\nquestions = {questions}\n{lines}\n[train.plan.answer]\n{answer}'
    path.write_text(head + whole + taught + extra)
    return path


def _sealed(place: Place, name: str, questions: int = 5, **more: Any) -> Job:  # noqa: ANN401 - what a job says
    job = Job.load(_job(place, name, questions, **more))
    seal_ensemble(job, place.service, lambda _: None)
    return job


def _rows() -> tuple[list[torch.Tensor], list[int]]:
    inputs, targets = read_records(digits.archive(digits.TEST), "test")
    return list(inputs.reshape(len(inputs), -1).to(torch.float32)), targets.tolist()


def _question(place: int) -> Question:
    row = _rows()[0][place]
    return Question(f"question-{place}", c.digest(input_bytes(row)), row)


class Opened:
    """One process of a run that answers, without its door."""

    def __init__(self, job: Job, place: Place) -> None:
        known = EnsembleJob.make(job, place.service)
        self.run: EnsembleRun = known.run(place.service, lambda _: None)
        self.known, self.out = known, list[StoredAnswer]()

    def __enter__(self) -> Self:
        """Take a generation, and decrypt the teachers."""
        self.run.__enter__()
        assert self.run.open_data() == {}
        self.run.begin()
        self.answers = EnsembleAnswers(self.run, self.run.teachers(self.known.made.model), self.run.answer_log())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.run.__exit__(kind, error, at)

    def give(self, *questions: int) -> str:
        """Answer these of the test set's rows."""
        return self.answers.give([_question(one) for one in questions], self.out.extend)


def _asked(place: Place, job: Job, rows: list[torch.Tensor]) -> tuple[AnswerReport, list[c.Object]]:
    """A room in a thread of its own, as its command runs it, and the answers that come over HTTP."""
    address: list[str] = []
    there, found = threading.Event(), list[AnswerReport]()

    def say(line: str) -> None:
        if "the room answers at " in line:
            address.append(line.split("the room answers at ")[1].split(",", maxsplit=1)[0])
            there.set()

    thread = threading.Thread(target=lambda: found.append(answer_job(job, place.service, say)))
    thread.start()
    assert there.wait(60)
    key, never = room_key(place.service, job.id), threading.Event()

    def wait(seconds: float) -> None:
        never.wait(seconds)

    with QuestionClient(address[0], job.id, key, Signer.load(job.key), wait) as client:
        reported = list(client.ask(rows))
    thread.join(60)
    return found[0], reported


def test_an_ensemble_is_charged_sealed_asked_and_posted(place: Place) -> None:
    """Five questions and one of them again: five steps, an answer each, and nothing else that leaves."""
    job = _sealed(place, "asked", answer=CLEAR, teachers="120")
    before = [kind for kind, _ in place.kinds()]
    assert before[-2:] == ["charge", "key_release"]
    assert {one.name for one in job.output.iterdir()} == {"room.state", "model.state"}
    rows, _ = _rows()
    report, reported = _asked(place, job, [*rows[:4], rows[0], rows[4]])
    assert (report.answers, report.posted) == (5, True)
    kinds = [kind for kind, _ in place.kinds()][len(before) :]
    assert (kinds[0], kinds[-1], set(kinds[1:-1])) == ("run_generation", "post", {"step_lease"})
    charge = place.charge("asked")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 5)
    classes = [one["class"] for one in (given["answer"] for given in reported) if isinstance(one, dict)]
    assert len(classes) == len(reported)
    assert classes[4] == classes[0]
    assert {*classes} <= {*range(10)}
    with pytest.raises(Malformed, match="its questions are over"):
        answer_job(job, place.service, lambda _: None)


def test_questions_go_on_in_another_process_and_end_when_the_consumer_says(place: Place) -> None:
    """What was answered is there; a generation each; the rest of the charge returns."""
    job = _sealed(place, "two-processes", 20)
    with Opened(job, place) as one:
        assert one.give(0, 1) == ""
        first = {given.id: given.answer for given in one.out}
        assert len(first) == 2
    charge = place.charge("two-processes")
    assert charge is not None
    assert charge.state is ChargeState.PENDING
    with Opened(job, place) as two:
        assert {name: given.answer for name, given in two.run.answer_log().by_id.items()} == first
        # What the process before this one had leased and not taken is lost.
        assert two.answers.left() == 20 - two.run.budget.taken
        assert two.give(2) == ""
    report = answer_job(job, place.service, lambda _: None, end=True)
    assert (report.answers, report.posted, report.ended) == (3, True, "its consumer ended it")
    charge = place.charge("two-processes")
    assert charge is not None
    assert charge.state is ChargeState.POSTED
    assert 3 <= (charge.steps_posted or 0) < 20


def test_of_two_copies_of_a_room_one_answers(place: Place) -> None:
    """The one that took its generation last; of the other nothing leaves that was not behind an entry."""
    job = _sealed(place, "copied", 12)
    copy = replace(job, output=job.output.with_name("copied-too"))
    shutil.copytree(job.output, copy.output)
    with Opened(job, place) as one:
        one.give(0)
        with Opened(copy, place) as two:
            with pytest.raises(Refused):
                one.give(1, 2, 3, 4, 5, 6)
            assert two.give(7) == ""
            assert [given.id for given in two.out] == ["question-7"]
    assert [given.id for given in one.out] == ["question-0"]


def test_the_same_question_of_another_consumer_is_charged(place: Place) -> None:
    """It has a contract, a charge and a room of its own: nothing stored for one answers the other."""
    clinic = Organisation.create(place.folder / "keys", "clinic", "clinic", "TDC", place.enrol)
    clinic.register(place.sro)
    terms = {**participants.contract(place.tdp, clinic, place.clock() // 1000 * 1000), "runs_max": 10}
    contract, _ = clinic.enter("contract", terms, place.tdp)
    theirs = replace(place, bank=clinic, contract=contract, service=clinic.service)
    jobs = [_sealed(place, "ours", 12), _sealed(theirs, "theirs", 12)]
    for job, at in zip(jobs, (place, theirs), strict=True):
        with Opened(job, at) as one:
            assert one.run.answer_log().by_id == {}
            one.give(0)
            assert [given.step for given in one.out] == [1]
            one.run.posts = True
    charges = [place.charge(name) for name in ("ours", "theirs")]
    assert [one and (one.state, (one.steps_posted or 0) > 0) for one in charges] == [(ChargeState.POSTED, True)] * 2
    assert {one.actor for one in charges if one} == {place.bank.did, clinic.did}


def test_a_revoked_contract_ends_the_questions(tmp_path: Path) -> None:
    """What was not behind an entry before it does not leave, and the charge is posted for what was leased."""
    with open_place(tmp_path / "place", mechanisms=TAKEN) as place:
        job = _sealed(place, "revoked", 12)
        with Opened(job, place) as one:
            one.give(0)
            place.tdp.submit("revocation", {"contract": place.contract})
            assert one.run.ends() == "the contract was revoked"
            assert "no further question is taken" in one.give(1)
            assert [given.id for given in one.out] == ["question-0"]
            one.run.posts = True
        charge = place.charge("revoked")
        assert charge is not None
        assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 5)


def test_a_sealed_model_answers_for_nothing(place: Place) -> None:
    """Its answers are counted, limited by the job, and add no entry but its opening."""
    path = place.job("trained")
    path.write_text(path.read_text() + ANSWERS + "most = 3\n")
    place.run(path)
    job, size = Job.load(path), len(place.kinds())
    rows, _ = _rows()
    report, reported = _asked(place, job, [rows[0], rows[1], rows[0], rows[2]])
    assert (report.answers, report.ended) == (3, "all answers that the job allows were given")
    assert [kind for kind, _ in place.kinds()[size:]] == ["model_opening"]
    assert reported[0]["answer"] == reported[2]["answer"]
    with pytest.raises(Malformed, match="cost nothing"):
        answer_job(job, place.service, lambda _: None, end=True)


REFUSED: tuple[tuple[str, str, str], ...] = (
    ("teachers = 40", "teachers = 1", "teachers: must lie between 2 and 5000"),
    ("teachers = 40", "teachers = 5001", "teachers: must lie between 2 and 5000"),
    ("[train.teachers]\nsteps = 30\nbatch_size = 8\n", "", "train.teachers: is missing"),
    ("steps = 30", "steps = 0", "train.teachers.steps"),
    ("cadence_s = 1", "cadence_s = 0", "train.answers.cadence_s"),
    ("every_s = 0", "every_s = 0\n[train.unknown]", "train.unknown"),
)


@pytest.mark.parametrize(("before", "after", "words"), REFUSED)
def test_what_a_job_may_not_say(place: Place, before: str, after: str, words: str) -> None:
    """By the field; nothing is recorded."""
    path = _job(place, "wrong")
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(Malformed) as refused:
        Job.load(path)
    assert words in str(refused.value)


def test_what_is_refused_before_anything_is_recorded(place: Place) -> None:
    """A model of other classes, another relation's price, an ensemble that is not sealed, one that is."""
    size = len(place.kinds())
    with pytest.raises(Malformed, match="gives 10 numbers, and the answer 'plurality' takes 4"):
        _sealed(place, "four", answer=VOTES.replace("10", "4"))
    with pytest.raises(Malformed, match="holds no sealed ensemble"):
        answer_job(Job.load(_job(place, "none")), place.service, lambda _: None)
    assert len(place.kinds()) == size
    with pytest.raises(Refused, match="holds under REPLACE_ONE, and not under REPLACE_SPECIAL"):
        _sealed(place, "other", relation='"REPLACE_ONE"')
    assert place.charge("other") is None
    _sealed(place, "twice", 1)
    with pytest.raises(Malformed, match="holds a sealed ensemble already"):
        _sealed(place, "twice", 1)


def test_fewer_records_than_teachers_is_no_error_in_the_room(place: Place) -> None:
    """It would tell how many there are: teachers without a record vote a fixed class."""
    job = _sealed(place, "few", 12, teachers="3000")
    with Opened(job, place) as one:
        one.give(0)
        assert [*one.out[0].answer] == ["class"]


def test_records_that_are_not_as_declared_teach_no_one(place: Place) -> None:
    """The partition is named before a teacher is trained; what was begun is posted."""
    held = place.sealed.read_bytes()
    place.sealed.write_bytes(sealed_archive(digits.archive(digits.FIRST), place.data_key, place.ref, 9))
    try:
        with pytest.raises(Malformed, match="the target is none of its declared categories") as raised:
            _sealed(place, "broken")
    finally:
        place.sealed.write_bytes(held)
    assert raised.value.field == place.ref
    charge = place.charge("broken")
    assert charge is not None
    assert charge.state is ChargeState.POSTED
    assert charge.steps_posted
    assert not (place.folder / "runs" / "broken" / "model.state").exists()


def test_the_plan_is_what_the_entry_holds(place: Place) -> None:
    """Whoever reads the charge reads what is answered, by how many teachers, with how much noise."""
    _sealed(place, "read", 1)
    charge = place.charge("read")
    assert charge is not None
    text = json.dumps(json.loads(place.service.entry(charge.index)))
    for words in ('"plurality"', '"teachers": 40', '"noise": "40"', '"questions": 1'):
        assert words in text
