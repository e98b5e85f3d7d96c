"""The folder of one run: claimed by one process, on a disk with room for the run's files, with the step log in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST
from typing import Final

from ledger.files.atomic_file import check_room
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.job.step_log import StepLog
from trainer_adapter.run.checkpointing import locked
from trainer_adapter.session.protocol import Session

LOG_FILE: Final = "steps.log"
ROOM_BYTES: Final = 1 << 20
"""What the files of a run take beside its model: the step log, receipts."""


@contextmanager
def claim_folder(assignment: Assignment, room_bytes: int, *, resume: bool) -> Iterator[None]:
    """Hold the folder of a run, made if it is not there, against other processes.

    Args:
        assignment: names the folder.
        room_bytes: so much the disk must have room for: it fails before the charge, and not when the model leaves.
        resume: whether the folder may hold the run that is resumed.

    Raises:
        FileExistsError: for a folder that holds a run, unless one is resumed. OSError.
    """
    folder = assignment.output
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if not resume:
            refuse_used_output(assignment)
        check_room(folder / LOG_FILE, room_bytes)
        yield


def refuse_used_output(assignment: Assignment) -> None:
    """Refuse a folder that holds a run; one that is not there or is empty holds none.

    A charge that was never made leaves an empty one behind.

    Raises:
        FileExistsError: naming the folder. OSError.
    """
    folder = assignment.output
    if folder.is_dir() and any(folder.iterdir()):
        more = "" if assignment.resume is None else ", or go on with it"
        raise FileExistsError(EEXIST, f"holds a run already: name another id and output{more}", str(folder))


def open_step_log(assignment: Assignment, session: Session, *, resumed: bool) -> StepLog:
    """The step log of a run: a new one, or that of the run that is resumed.

    Raises:
        Malformed: for a log that has fewer steps than were reported to the ledger. OSError. Refused, Unreachable.
    """
    # Where steps are leased the ledger itself records how far the run was.
    unleased = resumed and not session.identity.leases
    steps_reported = session.charge_status.steps_reported() if unleased else 0
    path = assignment.output / LOG_FILE
    how = StepLog.resume if resumed and path.exists() else StepLog.create
    log = how(path, assignment.id, assignment.plan, assignment.block_steps)
    if steps_reported > log.steps_begun():
        log.close()
        rule = f"has {log.steps_begun()} steps, but {steps_reported} were reported: it was put back"
        raise Malformed(LOG_FILE, rule)
    return log
