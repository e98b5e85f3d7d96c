"""What :func:`~trainer_adapter.training.attach.attach` takes beside model, optimiser, loss and assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from client.service.service import Service
from trainer_adapter.dpsgd.engine import MICROBATCH
from trainer_adapter.layers.tensor_trees import TensorTree
from trainer_adapter.run.checkpointing import Stateful
from trainer_adapter.session.model_release import Pause
from trainer_adapter.session.protocol import Say
from trainer_adapter.training.records_on_disk import Read
from trainer_adapter.training.training_records import read_records

Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run beside model, optimiser, loss and assignment.

    Attributes:
        service: as the consumer calls it; the assignment's own if none is given.
        say: receives one line for each stage.
        read: from a partition's data, and its name for errors, to inputs and targets, each a tensor or a tree of them
            (:mod:`trainer_adapter.layers.tensor_trees`). The data are the bytes that were
            sealed in one piece, or the :class:`~client.dataset_files.sealed_records.SealedRecords` of
            ``epsilon dataset seal``. It gives at most one record for each of the partition's, which is charged as one:
            a reader that turns, alters or repeats them to more ends the run. It may leave some out of data that fit
            memory (64 MiB); of larger data it is asked for some records at a time, and gives each of them.
        example: public records of the same shape, on which the model is checked, and what it costs reported to ``say``,
            before anything is charged; without them it is when the data are open.
        resume: resume the run of this assignment whose process died, if there is one.
        also: other state that a resumed run restores, as schedulers, by name.
        pause: waits some seconds: with it :meth:`ModelRun.release` stays until the providers' notice has run.
        microbatch: records that pass through the model at once; users, where they are the units.
        records_per_user_max: how many records of each user train, where the plan's unit is the user; the archives of
            all partitions then say whose each record is. None where it is the record.
        engine: further options of the engine, as ``compiled``.
    """

    service: Service | None = None
    say: Say | None = None
    read: Read = read_records
    example: tuple[TensorTree, TensorTree] | None = None
    resume: bool = False
    also: Mapping[str, Stateful] = field(default_factory=dict)
    pause: Pause | None = None
    microbatch: int = MICROBATCH
    records_per_user_max: int | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def engine_options(self) -> dict[str, Any]:
        """Options of the engine, with the bound on a user's records where there is one."""
        bound = self.records_per_user_max
        return {**self.engine, **({} if bound is None else {"records_per_user_max": bound})}
