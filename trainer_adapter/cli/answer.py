"""``epsilon answer``: a room opens what a job sealed and answers the questions of the contract's consumer.

Of an ensemble each answer is a step of the run, leased and durable before it leaves. Of a model that was trained with
privacy an answer is post-processing: the room holds no records, the model's whole run was charged to the client before,
and answers are counted and cost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from client.http.problems import Unreachable
from client.service.service import Service
from ledger.crypto.public_keys import PublicKey
from ledger.mechanisms.ensembles import EnsemblePlan
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from trainer_adapter.cli.ensemble import EnsembleJob
from trainer_adapter.cli.evaluate import open_sealed, sealed_constants
from trainer_adapter.cli.train import best_device
from trainer_adapter.ensembles.answer_log import LOG_FILE, AnswerLog
from trainer_adapter.ensembles.answer_room import AnswerRoom, next_time
from trainer_adapter.ensembles.ensemble_run import EnsembleAnswers
from trainer_adapter.ensembles.model_answers import ModelAnswers
from trainer_adapter.ensembles.question_server import QuestionServer, serving
from trainer_adapter.job.answer_terms import AnswerTerms
from trainer_adapter.job.job_spec import LOSSES, Job
from trainer_adapter.job.signals import stop_signals
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.session.protocol import Say

LINGER_CADENCES: Final = 5
"""How many times the last answers may be fetched for after they left."""
SLICE_S: Final = 0.25
"""A signal is noticed within so many seconds."""
Wait = Callable[[float], None]
"""Waits some seconds."""


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """What a room did.

    Attributes:
        answers: given by this run in all. ended: why it ended. posted: whether what was answered is settled.
    """

    answers: int
    charge: str
    ended: str
    posted: bool

    def to_json(self) -> Object:
        """For programs."""
        return {"answers": self.answers, "charge": self.charge, "ended": self.ended, "posted": self.posted}

    def in_words(self) -> str:
        """For people."""
        rest = "" if self.posted else "; the charge stays as it is, and the same command goes on"
        return f"{self.charge}: {self.answers} answers; {self.ended}{rest}"


@dataclass
class Serving:
    """A room while it serves: its HTTP server, its times, and what ends it."""

    server: QuestionServer
    room: AnswerRoom
    service: Service
    actor: str
    terms: AnswerTerms
    over: Callable[[], str]
    wait: Wait

    def until_over(self, stopped: Callable[[], str]) -> str:
        """Answer at every multiple of the cadence until the questions end, or a signal comes; why it ended."""
        self._look()
        while not (why := stopped()):
            self._sleep(stopped)
            # Without an answer of the ledger no question is taken: which callers may ask is unknown.
            if not stopped() and self._look() and (why := self.room.ended or self.room.tick()):
                return why
        return why

    def _look(self) -> bool:
        """Read from the ledger which callers may ask, and whether any may; whether it answered."""
        try:
            self.room.ended = self.room.ended or self.over()
            self.server.keys = keys_in_force(self.service, self.actor)
        except Unreachable:
            self.server.keys = {}
            return False
        return True

    def linger(self, stopped: Callable[[], str]) -> None:
        """Let the last answers out at the next multiple of the cadence, and serve them a while."""
        for _ in range(LINGER_CADENCES):
            if stopped():
                return
            self._sleep(stopped)
            self.room.let_out()

    def _sleep(self, stopped: Callable[[], str]) -> None:
        now = self.service.clock()
        until = next_time(now, self.terms.cadence_s)
        while now < until and not stopped():
            self.wait(min(until - now, SLICE_S))
            now = self.service.clock()


def answer_job(job: Job, service: Service, say: Say, *, end: bool = False, wait: Wait = time.sleep) -> AnswerReport:
    """Serve the questions of a job's consumer until they end, or a signal comes; the first one ends it in order.

    Args:
        service: as the consumer calls it.
        say: receives one line for each stage, the room's address among them.
        end: take no question; post what an ensemble has answered, and return the rest of its charge.
        wait: waits some seconds.

    Raises:
        Refused, Unreachable, Malformed, OSError.
    """
    with stop_signals() as stopped:
        if isinstance(job.plan, EnsemblePlan):
            return _ensemble(job, service, say, stopped, end=end, wait=wait)
        if end:
            rule = "is for an ensemble: the answers of a model that was trained with privacy cost nothing"
            raise Malformed("end", rule)
        return _model(job, service, say, stopped, wait)


def _ensemble(  # noqa: PLR0913 - what serves an ensemble
    job: Job, service: Service, say: Say, stopped: Callable[[], str], *, end: bool, wait: Wait
) -> AnswerReport:
    ensemble = EnsembleJob.make(job, service)
    with ensemble.run(service, say) as run:
        if not run.trained:
            raise Malformed("output", "holds no sealed ensemble: run `epsilon ensemble` first")
        run.open_data()
        if run.over:
            raise Malformed("charge", f"{job.id} was posted: its questions are over")
        run.begin()
        log = run.answer_log()
        answers = EnsembleAnswers(run, run.teachers(ensemble.made.model), log, ensemble.constants.inputs)
        room = AnswerRoom(ensemble.terms, log, answers.give, answers.left)
        server = QuestionServer(job.id, room, run.session.identity.signer, ensemble.made.test[0][0])
        at = Serving(server, room, service, job.actor, ensemble.terms, run.ends, wait)
        with _open_server(server, ensemble.terms, say):
            room.ended = "its consumer ended it" if end else ""
            why = room.ended or at.until_over(stopped)
            # A signal leaves the charge as it is, so that another process may go on; it also ends the run's steps.
            if room.ended and room.ended != stopped():
                run.finish()
                if not end:
                    at.linger(stopped)
    return AnswerReport(len(log.by_id), job.id, why, run.posts)


def _model(job: Job, service: Service, say: Say, stopped: Callable[[], str], wait: Wait) -> AnswerReport:
    made, terms = JobModel.make(job, best_device()), job.answers or AnswerTerms()
    if not isinstance(made.test[0], torch.Tensor):
        raise Malformed("test", "has inputs of several arrays, and a question is one array")
    _ = sealed_constants(made.job, service)
    name, contents = open_sealed(job, service, say)
    try:
        made.model.load_state_dict(load(contents.model))
    except (SafetensorError, RuntimeError):
        raise Malformed("model", f"is no {job.model}") from None
    constants = sealed_constants(made.job, service, contents.model)
    log = AnswerLog(job.output / LOG_FILE, {"charge": job.id, "model": name})

    def over() -> str:
        return "the contract was revoked" if service.contract(job.contract).get("revoked") else ""

    answers = ModelAnswers(made.model, constants.inputs, log, terms.most, classes=job.loss == LOSSES[0])
    room = AnswerRoom(terms, log, answers.give, answers.left)
    server = QuestionServer(job.id, room, contents.signer, made.test[0][0])
    at = Serving(server, room, service, job.actor, terms, over, wait)
    with _open_server(server, terms, say):
        why = at.until_over(stopped)
        if room.ended:
            at.linger(stopped)
    return AnswerReport(len(log.by_id), job.id, why, posted=True)


def keys_in_force(service: Service, actor: str) -> dict[str, PublicKey]:
    """The keys by which an organisation signs now, by thumbprint. Raises: Refused, Unreachable, Malformed."""
    in_force = (key["key"] for key in service.keys_of(actor) if key.get("in_force") is True)
    plain = (key for key in in_force if isinstance(key, dict) and key.get("kty") == "OKP")
    keys = [PublicKey.parse(key, "key", "Ed25519") for key in plain]
    return {key.thumbprint: key for key in keys}


@contextmanager
def _open_server(server: QuestionServer, terms: AnswerTerms, say: Say) -> Iterator[None]:
    with serving(server, terms.port) as address:
        say(f"the room answers at {address}, every {terms.cadence_s} s, whom the contract names alone")
        yield
