"""The room that answers: questions wait, are answered together, and answers leave at fixed times.

How long an answer took may reveal something of the records, so it leaves at the next multiple of the cadence after
it was allowed to. What a room answers depends on the question, on earlier questions, and on released answers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.answer_log import AnswerLog, StoredAnswer
from trainer_adapter.job.answer_terms import STORED, AnswerTerms

WAITING_MAX: Final = 1_024
"""Questions that wait at once."""
IDS_MAX: Final = 1_000_000
"""Ids of questions that one room remembers, those with a stored answer among them."""


class Busy(Malformed):
    """More questions at once than wait."""


class Over(Malformed):
    """A question after the last."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its client-made id, the SHA-256 of the question, and the inputs of one record."""

    id: str
    digest: str
    inputs: Tensor


Leave = Callable[[Sequence[StoredAnswer]], None]
Give = Callable[[Sequence[Question], Leave], str]
"""Answers questions, durably, and calls ``Leave`` once they may leave; why no more are taken, or nothing."""


class AnswerRoom:
    """Questions and answers of one run; any thread may ask, one thread calls :meth:`tick`.

    Attributes:
        ended: why no more questions are taken; empty while they are.
    """

    def __init__(self, terms: AnswerTerms, log: AnswerLog, give: Give, left: Callable[[], int]) -> None:
        """Answers that a process before this one gave are there again.

        Args:
            give: answers a batch. left: how many questions may still be taken.
        """
        self.ended = ""
        self._terms, self._give, self._left = terms, give, left
        self._waiting: dict[str, Question] = {}
        self._ready: dict[str, StoredAnswer] = dict(log.by_id)
        self._next: list[StoredAnswer] = []
        self._digests: dict[str, str] = {answer.id: answer.question for answer in log.by_id.values()}
        # What a process before this one answered may leave: this one took a generation, so no copy answers otherwise.
        self._may_leave: dict[str, StoredAnswer] = dict(log.by_question)
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, question: Question) -> StoredAnswer | None:
        """The answer to a question if it has left; None while it waits. The same id is the same question.

        Raises:
            Malformed: for another question's id. Busy: if too many wait. Over: if no more are taken.
        """
        with self._lock:
            digest = self._digests.get(question.id)
            if digest is not None and digest != question.digest:
                raise Malformed("id", "is that of another question: draw a fresh one for each")
            if digest is not None:
                return self._known(question.id)
            if self.ended:
                raise Over("question", f"is not taken: {self.ended}")
            if len(self._digests) >= IDS_MAX:
                raise Over("question", f"is not taken: this room knows {IDS_MAX} questions already")
            if self._stored(question) is None:
                self._admit(question)
            self._waiting[question.id] = question
            self._digests[question.id] = question.digest
            return None

    def _known(self, name: str) -> StoredAnswer | None:
        given = self._ready.get(name)
        if given is None and self._closed:
            raise Over("question", f"was not answered: {self.ended}")
        return given

    def _admit(self, question: Question) -> None:
        if len(self._waiting) >= WAITING_MAX:
            raise Busy("question", f"is one too many: {WAITING_MAX} wait already, retry after the next answers")
        waiting = {self._key(question) for question in self._waiting.values() if self._stored(question) is None}
        if self._key(question) not in waiting and self._left() <= len(waiting):
            raise Over("question", "comes after the last: all that the charge or the job allows are taken")

    def _key(self, question: Question) -> str:
        """The key under which an answer is stored: the question's digest, or its id where the job charges each."""
        return question.digest if self._terms.repeated == STORED else question.id

    def _stored(self, question: Question) -> StoredAnswer | None:
        if self._terms.repeated != STORED or (stored := self._may_leave.get(question.digest)) is None:
            return None
        return StoredAnswer(question.id, question.digest, stored.step, stored.answer)

    def tick(self) -> str:
        """Let out what may leave, and answer what waits; why no more questions are taken, or nothing."""
        with self._lock:
            self._let_out()
            batch = self._batch()
        if batch and not self.ended:
            self.ended = self._give(batch, self._leave)
        return self.ended

    def let_out(self) -> None:
        """Let out what may leave: at the end, at a time that is a multiple of the cadence."""
        with self._lock:
            self._take_stored()
            self._let_out()
            self._closed = True

    def _let_out(self) -> None:
        self._ready.update({answer.id: answer for answer in self._next})
        self._next = []

    def _batch(self) -> list[Question]:
        """Those that are answered now: of equal ones the first, where the others get its answer."""
        batch: dict[str, Question] = {}
        self._take_stored()
        for question in list(self._waiting.values()):
            key = self._key(question)
            if len(batch) < self._terms.at_once and key not in batch:
                batch[key] = question
                del self._waiting[question.id]
        return list(batch.values())

    def _take_stored(self) -> None:
        """Those that wait and were answered under another id."""
        for question in list(self._waiting.values()):
            if (stored := self._stored(question)) is not None:
                self._next.append(stored)
                del self._waiting[question.id]

    def _leave(self, answers: Sequence[StoredAnswer]) -> None:
        with self._lock:
            self._next += answers
            for answer in answers:
                self._may_leave.setdefault(answer.question, answer)


def next_time(now_s: float, cadence_s: int) -> float:
    """The next multiple of the cadence after a moment, in Unix seconds."""
    return float((math.floor(now_s / cadence_s) + 1) * cadence_s)
