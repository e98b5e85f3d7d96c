"""Sample and aggregate: an estimator on disjoint chunks, its clipped outputs aggregated with noise; one charge a query.

Nissim, Raskhodnikova, Smith 2007. The estimator is a function of its chunk: what one record can change is its chunk's
output, and the aggregate bounds what that moves. It is code that the parties have read, by its digest in the charge:
its process is no sandbox, and one that leaves a file for later chunks is no such function. The answer leaves behind the
run's post, as public metrics do.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from client.dataset_files.stored_partition import PartitionData
from client.service.service import Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.mechanisms.ensembles import USERS, ClippedMean, EnsemblePlan, Plurality
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.answer_noise import noisy_answer
from trainer_adapter.ensembles.black_box import Arrays, estimates, read_source
from trainer_adapter.ensembles.chunks import KEY_BYTES, chunks_of
from trainer_adapter.ensembles.ensemble_run import SALT_BYTES
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.run.charged_run import Run
from trainer_adapter.session.protocol import Say
from trainer_adapter.training.training_records import read_records, user_numbers

Wait = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class AggregateReport:
    """The answer to the query, empty if it did not leave; and the ε of the run."""

    charge: str
    answer: c.Object
    privacy: ChargeEpsilon

    def to_json(self) -> c.Object:
        """For programs. ``epsilon`` is the greatest of ``run_epsilon``, and ``partition`` is where."""
        whole = self.privacy.epsilon
        own: c.Object = {"answer": self.answer, "epsilon": whole.number, "partition": whole.partition}
        return {**own, **self.privacy.to_json()}

    def in_words(self) -> str:
        """For people."""
        shown = ", ".join(f"{name} = {value}" for name, value in self.answer.items()) or "no answer left"
        return "\n  ".join((f"{self.charge}: {shown}", *self.privacy.in_words))


class AggregateRun(Run):
    """A run of one step, whose answer is fenced by its post."""

    leases_by_default = True


def aggregate(job: Assignment, service: Service, say: Say, wait: Wait = time.sleep) -> AggregateReport:
    """One query of a job with a table ``[train.estimator]``, from its charge to its answer.

    Args:
        service: as the consumer calls it.
        say: receives one line for each stage.
        wait: waits some seconds.

    Raises:
        Refused: if the charge or the key is. Malformed, OSError, Unreachable.
    """
    plan, estimator = EnsemblePlan.of(job.plan), job.estimator
    if estimator is None:
        raise Malformed("train.estimator", "is missing: which function of a chunk is aggregated?")
    if plan.questions != 1 or plan.screening is not None or isinstance(plan.answer, Plurality):
        raise Malformed("train.plan", "must be of one question, whose answer is a mean or a median")
    if job.resume is not None:
        raise Malformed("train.resume", "is for training: what is killed stays charged")
    source = read_source(estimator)
    numbers = len(plan.answer.outputs) if isinstance(plan.answer, ClippedMean) else 1
    left: list[c.Object] = []
    with AggregateRun(_with_pipeline(job), service, say) as run:
        chunks = _chunks(plan, run.open_data())
        outputs = estimates(estimator, source, chunks, numbers, wait)
        for step in run.begin():
            answer = noisy_answer(plan, outputs)
            answered: c.Object = {"answer": answer, "salt": secrets.token_hex(SALT_BYTES)}
            run.output.put(answered, partial(left.append, answer))
            run.done(step)
    return AggregateReport(job.id, left[0] if left else {}, run.privacy)


def _with_pipeline(job: Assignment) -> Assignment:
    """The estimator's file is the run's ``pipeline``, unless the job names another."""
    assert job.estimator is not None
    return job if job.pipeline is not None else replace(job, pipeline=job.estimator.file)


def _chunks(plan: EnsemblePlan, opened: dict[str, PartitionData]) -> list[Arrays]:
    """Inputs and targets of each chunk, of all partitions. Raises: Malformed, for what one record cannot change."""
    key, parts, places = secrets.token_bytes(KEY_BYTES), [], []
    for ref, data in opened.items():
        inputs, targets = read_records(data, ref)
        if not isinstance(inputs, torch.Tensor) or not isinstance(targets, torch.Tensor):
            raise Malformed(ref, "has several arrays as inputs or targets, and an estimator takes one of each")
        users = user_numbers(data, ref) if plan.chunks_by == USERS else None
        places.append(chunks_of(key, ref, plan.chunks_by, plan.teachers, (inputs, targets), users))
        parts.append((inputs.numpy(), targets.numpy()))
    chunk = np.concatenate(places)
    inputs, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return [(inputs[chunk == number], targets[chunk == number]) for number in range(plan.teachers)]
