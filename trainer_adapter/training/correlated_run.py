"""A run whose plan has correlated noise: a step of the charge is a round of steps, and it is never resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import PartitionData
from client.dataset_files.tokens.person_tokens import JOIN
from client.service.registry_reads import unit_records
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.run_plan import RECORD, USER, group_of
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.correlated.correlated_engine import CorrelatedEngine
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.layers.tensor_trees import count_records
from trainer_adapter.run.unit_bounds import USERS
from trainer_adapter.session.slice_files import with_slices
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.run_options import Loss, Options
from trainer_adapter.training.training_records import array_names, read_arrays, user_numbers

_RULE: Final = "those of one unit enter the same steps of correlated noise"


class CorrelatedRun(ModelRun):
    """A run of a :class:`~ledger.mechanisms.correlated.CorrelatedPlan`; iterating takes its rounds."""

    def __init__(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, loss: Loss, assignment: Assignment, options: Options
    ) -> None:
        """Use :func:`~trainer_adapter.training.attach.attach`. Raises: Malformed, for a run that may be resumed."""
        self.correlated = CorrelatedPlan.of(assignment.plan)
        if assignment.resume is not None:
            raise Malformed("train.resume", "is for other runs: noise that later steps take back lives in memory alone")
        super().__init__(model, optimiser, loss, assignment, options)
        self._owners: Tensor | None = None

    def check_before_charge(self) -> None:
        """Refuse rows of one record that no join of the clean room made: no one knows which they are.

        Raises:
            Malformed, Refused, Unreachable.
        """
        assignment = self.assignment
        if assignment.join is not None or (assignment.unit_records_max or 1) == 1:
            return
        for ref in with_slices(assignment, self.service).data:
            if self.service.partition(ref)["unit"] == RECORD:
                rule = f"is for joins of the clean room: which rows of {ref} are one record's is not known, and {_RULE}"
                raise Malformed("train.unit_records_max", rule)

    def make_ready(self, loss: Loss, opened: Mapping[str, PartitionData], present: Tensor | None) -> None:
        """As :meth:`ModelRun.make_ready`. Raises: as there, and Malformed, where records do not name their users."""
        self._owners = self._find_owners(opened)
        super().make_ready(loss, opened, present)

    def _find_owners(self, opened: Mapping[str, PartitionData]) -> Tensor | None:
        """Whose each record is, in order, shape (records,), where one unit may have several; None: each is its own."""
        assignment, service = self.assignment, self.service
        if assignment.plan.unit != RECORD:
            return None
        if assignment.join is not None:
            ((ref, data),) = opened.items()
            tokens = read_arrays(data, ref, JOIN)[JOIN]
            return torch.from_numpy(np.unique(tokens, axis=0, return_inverse=True)[1].reshape(-1))
        several = {ref for ref in opened if self._of_users(service.partition(ref))}
        if not several:
            return None
        owners, count = list[Tensor](), 0
        for ref, data in opened.items():
            if ref in several and USERS not in array_names(data, ref):
                # No record's doing, for all have the same arrays: the run begins and ends here, and costs no step.
                self.begin()
                raise Malformed(
                    ref, f"must name the user of each record, since {_RULE}: seal it with user, in the schema"
                )
            own = (
                np.unique(user_numbers(data, ref), return_inverse=True)[1] if ref in several else self._each(data, ref)
            )
            owners.append(torch.from_numpy(own + count))
            count += len(own)
        return torch.cat(owners)

    def _of_users(self, partition: Object) -> bool:
        stated = self.assignment.unit_records_max
        return partition["unit"] != RECORD and group_of(self.correlated, USER, unit_records(partition), stated) > 1

    def _each(self, data: PartitionData, ref: str) -> NDArray[np.int64]:
        # Records that are sealed one by one may stay on disk.
        sealed = isinstance(data, SealedRecords)
        return np.arange(len(data) if sealed else count_records(self.options.read(data, ref)[1], "targets"))

    def new_engine(self, loss: Loss, records: Records, users: Tensor | None, present: Tensor | None) -> Engine:
        """The engine that takes the run's rounds. Raises: Malformed."""
        given = {**self.options.engine_options, "present": present, "users": users, "owners": self._owners}
        engine = CorrelatedEngine(self.correlated, self.model, loss, records, self.options.microbatch, **given)
        engine.traced.check_optimiser(self.optimiser)
        return engine

    def gradients(self) -> NoReturn:
        """Not of this run, whose rounds are of several updates. Raises: Malformed."""
        raise Malformed("train.plan", "is of correlated noise, whose rounds step the optimiser themselves: iterate")
