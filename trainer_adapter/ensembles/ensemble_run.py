"""The run of an ensemble: charged and trained by one process, its questions answered by others until it is posted.

Training takes no step of the charge: nothing leaves by it. The teachers lie sealed in the run's folder
(:mod:`trainer_adapter.run.checkpointing`), beside the clean room's keys. Each process that answers is a generation of
its own, on fresh evidence, and takes a step for every question. The charge stays pending until the questions end or its
deadline comes, which posts all of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import torch

from client.dataset_files.stored_partition import PartitionData
from client.keys.signer import load_secret
from client.service.service import Service
from ledger.mechanisms.ensembles import EnsemblePlan, EnsembleTerms
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.answer_leases import AnswerLeases
from trainer_adapter.ensembles.answer_log import LOG_FILE, AnswerLog, StoredAnswer
from trainer_adapter.ensembles.answer_noise import noisy_answer
from trainer_adapter.ensembles.answer_room import Leave, Question
from trainer_adapter.ensembles.teachers import Teachers
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.run.block_leases import BlockLeases
from trainer_adapter.run.charged_run import Run
from trainer_adapter.run.checkpointing import KEY_BYTES, MODEL_FILE
from trainer_adapter.session.protocol import Say, Session

SALT_BYTES: Final = 32
Assigned = TypeVar("Assigned", bound=Assignment)


class EnsembleRun(Run):
    """One process of an ensemble's run: it trains, or it answers.

    Attributes:
        posts: whether the end of the block posts the questions that were answered; if not, the charge stays pending.
    """

    leases_by_default = True

    def __init__(self, job: Assigned, service: Service, say: Say, *, at_once: int) -> None:
        """Of a job with a table ``[train.resume]``. Raises: Malformed, OSError."""
        super().__init__(replace(job, step_leases=True), service, say, resume=True)
        self.posts = self.finished = self._undeclared = False
        self._at_once = at_once

    @property
    def trained(self) -> bool:
        """Whether the teachers are sealed in the run's folder."""
        return (self.assignment.output / MODEL_FILE).exists()

    def seal(self, teachers: Teachers) -> None:
        """Keep the teachers, sealed. Raises: OSError."""
        assert self.checkpoints is not None
        self.checkpoints.save_model(teachers.to_bytes())

    def teachers(self, model: torch.nn.Module) -> Teachers:
        """The sealed teachers, decrypted in memory. Raises: Malformed, OSError."""
        assert self.checkpoints is not None
        return Teachers.of_bytes(self.checkpoints.load_model(), model)

    def answer_log(self) -> AnswerLog:
        """The answers so far, sealed as the teachers are. Raises: Malformed, OSError."""
        assignment = self.assignment
        assert assignment.resume is not None
        bound: c.Object = {"charge": assignment.id, "name": LOG_FILE, "plan": assignment.plan.digest, "v": 1}
        return AnswerLog(assignment.output / LOG_FILE, bound, load_secret(assignment.resume.key, KEY_BYTES))

    def flush(self, taken: int) -> str:
        """Let answers leave, behind a lease; why no further question is taken, or nothing. Raises: Refused."""
        assert isinstance(self._leases, AnswerLeases)
        return self._leases.extend(taken, lambda: "")

    def finish(self) -> None:
        """Post the questions that were taken, now: their last answers leave by it. Raises: Refused, Unreachable."""
        self.posts = True
        posted = self._settle(broken=False)
        self.output.end(posted=posted)
        self.finished = True

    def ends(self) -> str:
        """Why the ledger allows no further answer, or nothing. Raises: Refused, Unreachable, Malformed."""
        return self.session.charge_status.why_over() or self.session.near_deadline()

    def _open_data(self, session: Session) -> dict[str, PartitionData]:
        # A room that answers has no records in it.
        return {} if self.trained else super()._open_data(session)

    def _held_to_terms(self, opened: dict[str, PartitionData]) -> dict[str, PartitionData]:
        try:
            return super()._held_to_terms(opened)
        except Malformed:
            self._undeclared = True
            raise

    def _open_leases(self, session: Session) -> BlockLeases | None:
        requests = session.lease_requests()
        if requests is None:
            raise Malformed("service", "knows no leases of steps, and each answer of an ensemble needs one")
        return AnswerLeases(requests, self.steps, self._at_once, resumed=self._resumed, output=self.output)

    def _settle(self, *, broken: bool) -> bool:
        if self.finished:
            return True
        if self._undeclared or (self.posts and not broken):
            # Records that are not as declared are that in every process: there is nothing to go on with.
            return super()._settle(broken=broken)
        # It may be gone on with: what was leased counts, and nothing of it is posted before the end.
        if self._budget is not None:
            self._budget.close()
        self._stack.close()
        return False


class EnsembleAnswers:
    """Answers questions from teachers, each a step of the run, durable before it may leave."""

    def __init__(
        self,
        run: EnsembleRun,
        teachers: Teachers,
        log: AnswerLog,
        prepare: Callable[[Any], Any] = lambda inputs: inputs,
    ) -> None:
        """After the run has begun; ``prepare`` makes inputs (questions, ...) as the teachers see them."""
        self._run, self._teachers, self._log, self._prepare = run, teachers, log, prepare
        self._terms: EnsembleTerms = EnsemblePlan.of(run.assignment.plan)
        # Leased before, and not in the log: each may have been answered.
        self._lost = max(0, run.budget.taken - log.steps)

    def left(self) -> int:
        """How many questions may still be taken."""
        return self._run.budget.left if self._may_answer(0) else 0

    def _may_answer(self, more: int) -> bool:
        screening = self._terms.screening
        return screening is None or self._log.answered + self._lost + more < screening.answers

    def give(self, questions: Sequence[Question], leave: Leave) -> str:
        """One answer a question; why no more are taken, or nothing.

        Raises:
            Refused: if another copy of this run has gone on. Unreachable, Malformed, OSError.
        """
        taken: list[tuple[Question, int]] = []
        for question in questions:
            step = self._run.budget.next_step()
            if step is None:
                break
            taken.append((question, step))
        why = self._run.budget.ended
        if taken:
            self._answer(taken, leave)
            why = self._run.flush(self._run.budget.taken) or why
        if not why and not self.left():
            why = "all questions that the charge allows were taken"
        return why

    def _answer(self, taken: list[tuple[Question, int]], leave: Leave) -> None:
        inputs = self._prepare(torch.stack([question.inputs for question, _ in taken]))
        outputs = self._teachers.outputs(inputs.to(next(self._teachers.model.parameters()).device))
        given: list[StoredAnswer] = []
        for place, (question, step) in enumerate(taken):
            answered = sum("screened" not in answer.answer for answer in given)
            answer = noisy_answer(self._terms, outputs[:, place], may_answer=self._may_answer(answered))
            given.append(StoredAnswer(question.id, question.digest, step, answer))
        self._log.append(given)
        # The entry's digest is of few possible answers: the salt keeps readers of the log from trying them.
        leaving: c.Object = {"answers": [answer.to_json() for answer in given], "salt": secrets.token_hex(SALT_BYTES)}
        self._run.output.put(leaving, lambda: leave(given))
