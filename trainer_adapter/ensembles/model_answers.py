"""Answers of a model that was trained with privacy: post-processing of what was charged, counted and free.

The room holds the model and no records, no index of records and no running statistic; an answer is a function of the
model and the question. The run was charged to its consumer in whole before the data key was released, so who asks is
exposed to the whole run already, and no answer adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ledger.mechanisms.ensembles import QUESTIONS_MAX
from ledger.wire import canonical_json as c
from trainer_adapter.ensembles.answer_log import AnswerLog, StoredAnswer
from trainer_adapter.ensembles.answer_room import Leave, Question
from trainer_adapter.layers.functional_call import in_modes


class ModelAnswers:
    """Answers questions from one model; each is counted in the log before it leaves."""

    def __init__(
        self, model: nn.Module, prepare: Callable[[Any], Any], log: AnswerLog, most: int | None, *, classes: bool
    ) -> None:
        """A model on its device.

        Args:
            prepare: inputs (records, ...) as the model sees them.
            most: answers that may be given in all; None for no limit but the ledger's of questions.
            classes: whether an answer is a class, or the model's numbers.
        """
        self._model, self._prepare, self._log = model, prepare, log
        self._most, self._classes = QUESTIONS_MAX if most is None else most, classes

    def left(self) -> int:
        """How many questions may still be answered."""
        return max(0, self._most - len(self._log.by_id))

    def give(self, questions: Sequence[Question], leave: Leave) -> str:
        """One answer a question; why no more are taken, or nothing. Raises: OSError."""
        inputs = self._prepare(torch.stack([question.inputs for question in questions]))
        device = next(self._model.parameters()).device
        with torch.no_grad(), in_modes(dict.fromkeys(self._model.modules(), False)):
            outputs = self._model(inputs.to(device)).cpu()
        given = [
            StoredAnswer(question.id, question.digest, 0, self._answer(output))
            for question, output in zip(questions, outputs, strict=True)
        ]
        self._log.append(given)
        leave(given)
        return "" if self.left() else "all answers that the job allows were given"

    def _answer(self, output: Tensor) -> c.Object:
        if self._classes:
            return {"class": int(output.argmax(dim=-1).flatten()[0])}
        return {"values": [format(float(value), ".9g") for value in output.flatten()]}
