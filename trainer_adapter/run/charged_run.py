"""One run as the ledger sees it, whoever computes its steps: opened by a charge, closed by a post.

    with ChargedRun(assignment) as run:
        records = run.open()
        for step in run.begin():
            ...                 # noise
            run.done(step)

Whatever ends the block, what ran is posted: the steps taken, or, if something broke, all that were begun. Whatever ends
the process, the charge stands until its deadline and is posted in full then, unless the run goes on before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from errno import EEXIST
from types import TracebackType
from typing import Final, Self

from client.http.problems import Refused, Unreachable
from client.service.service import Service
from ledger.domain.entries import Entry
from ledger.domain.outcomes import ChargeState
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.job.signals import listening
from trainer_adapter.job.step_log import StepLog
from trainer_adapter.run.checkpointing import StateKeeper, held
from trainer_adapter.run.progress import Progress
from trainer_adapter.run.step_budget import ChargedSteps
from trainer_adapter.session.clean_room_keys import Identity
from trainer_adapter.session.key_grants import NotGranted
from trainer_adapter.session.loss_report import Foreseen, Spent, Telling, foresee
from trainer_adapter.session.model_release import Pause
from trainer_adapter.session.protocol import Room, Say, consumer_service

_EXIT_BUG: Final = 1
_EXIT_RETRY: Final = 75
LOG_FILE: Final = "steps.log"
MARGIN_S: Final = 30.0
"""A run ends so long before its deadline, or a twentieth of its time if that is less: a later post is refused."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a run.

    Attributes:
        steps: that may still be taken. spent: the loss so far. charged: the loss of the whole run.
    """

    steps: int
    spent: Spent
    charged: Spent

    def __str__(self) -> str:
        """For people."""
        return f"{self.steps} steps left; {self.spent} of {self.charged}"


class ChargedRun:
    """One run.

    Attributes:
        keeper: of what a killed run goes on from; None where the assignment has no ``resume``.
        over: whether a resumed run was over already, so that only its post and its model are left.
        watched: whether whatever is computed takes its steps here; if not, nothing is posted: the charge stands.
    """

    def __init__(
        self, assignment: Assignment, service: Service | None = None, say: Say | None = None, *, resume: bool = False
    ) -> None:
        """Nothing is asked of the service yet. Raises: Malformed, OSError."""
        if resume and assignment.resume is None:
            raise Malformed("resume", "is not configured: what was killed is posted in full at its deadline")
        self.assignment, self.say, self._resume = assignment, say or (lambda _: None), resume
        self.keeper: StateKeeper | None = None
        self.over = self._goes_on = False
        self.watched = True
        self._stack, self._own = ExitStack(), service is None
        self.service: Final = service or consumer_service(assignment)
        self._room: Room | None = None
        self._steps: ChargedSteps | None = None
        self._telling: Telling | None = None
        self._progress: Progress | None = None
        self._whole: Spent | None = None

    def plan(self) -> Foreseen:
        """What the run would get now; nothing is recorded. Raises: Refused, Unreachable, Malformed, OSError."""
        return foresee(self.service, Room(self.assignment, self.service, self.say), self._partitions)

    def open(self) -> dict[str, bytes]:
        """Charge, get the key, and decrypt: the bytes of each partition. Once.

        Raises:
            Refused: if the charge or the key is. NotGranted: if a provider's key was waited for, and did not come.
            Malformed, OSError, Unreachable. FileExistsError: for a folder that holds something, unless a run is to
            go on.
        """
        if self._room is not None:
            raise Malformed("run", "is open already: one clean room, one run")
        folder = self.assignment.output
        self.keeper = keeper = StateKeeper(self.assignment) if self.assignment.resume else None
        identity = keeper.room() if keeper and self._resume else None
        goes_on = identity is not None
        # What can fail before the charge fails before there is a folder.
        room = Room(self.assignment, self.service, self.say, identity, keeper.keep_room if keeper else _forget)
        room.check_keys_come()
        folder.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(held(folder))
        # An empty folder is nobody's run: a charge that was never made leaves one behind.
        if not self._resume and any(folder.iterdir()):
            more = "" if keeper is None else ", or go on with it"
            raise FileExistsError(EEXIST, f"holds a run already: name another id and output{more}", str(folder))
        self._room = room
        entry = self._charged(room, None if goes_on else keeper)
        self._telling = Telling(room.own, entry.body["prices"], self._partitions)
        if goes_on and self._settled(room):
            return {}
        self._goes_on = goes_on
        return self._opened(room)

    @staticmethod
    def _charged(room: Room, fresh: StateKeeper | None) -> Entry:
        """The charge's entry; keys that were kept for a charge that was not made are forgotten."""
        try:
            return room.charge()
        except (Refused, Unreachable, OSError) as fault:
            if fresh is not None and not _perhaps_recorded(fault):
                fresh.forget_room()
            raise

    def _opened(self, room: Room) -> dict[str, bytes]:
        late = self._late(room)
        try:
            return room.open_data(late)
        except NotGranted as fault:
            # A partition stayed closed, so no step can have been taken: unless the run may go on, that is posted.
            if self.keeper is None or late():
                fault.posted = self._post_hastily(room, 0)
            raise

    def _late(self, room: Room) -> Callable[[], str]:
        until = room.deadline_ms / 1000 - min(MARGIN_S, self.assignment.deadline_s / 20)

        def late() -> str:
            return "the deadline of the charge is near" if self.service.clock() >= until else ""

        return late

    def begin(self) -> ChargedSteps:
        """The steps to take, from here on reported, ended by signals, and posted. After :meth:`open`, once.

        Raises:
            Malformed: for a step log that cannot be gone on with. OSError.
        """
        if self._room is None or self._steps is not None:
            raise Malformed("run", "is not open, or has begun already")
        log = self._log()
        asked = self._stack.enter_context(listening())
        self._progress = self._stack.enter_context(Progress(self._room.report, self._room.over))
        ends = (asked, self._progress.ended, self._late(self._room))
        self._steps = ChargedSteps(self.assignment.plan, log, ends)
        return self._steps

    def _settled(self, room: Room) -> bool:
        state, posted = room.state()
        if state is ChargeState.PENDING:
            return False
        if state is not ChargeState.POSTED or posted is None:
            raise Malformed("charge", f"is {state.value}: this run cannot go on")
        self.say(f"{posted} steps were posted before this process")
        self.over = True
        return True

    def _log(self) -> StepLog:
        known, path = self.assignment, self.assignment.output / LOG_FILE
        how = StepLog.resume if self._goes_on and path.exists() else StepLog.create
        log = self._stack.enter_context(how(path, known.id, known.plan, known.block_steps))
        told = self._room.own.charge(known.id).get("progress") if self._room and self._goes_on else None
        heard = told.get("steps") if isinstance(told, dict) else 0
        if isinstance(heard, int) and heard > log.steps_begun():
            raise Malformed("steps.log", f"has {log.steps_begun()} steps, but {heard} were reported: it was put back")
        return log

    @property
    def steps(self) -> ChargedSteps:
        """The steps to take. Raises: Malformed, before :meth:`begin`."""
        if self._steps is None:
            raise Malformed("run", "has not begun")
        return self._steps

    def done(self, step: int) -> None:
        """Tell that a step is done; returns at once."""
        if self._progress is not None:
            self._progress.tell(step)

    def ended(self) -> str:
        """Why the ledger wants the run to end, or nothing; returns at once."""
        return "" if self._progress is None else self._progress.ended()

    def spent(self, steps: int) -> Spent:
        """The loss of the first steps of the run. Raises: Malformed, before :meth:`open`."""
        if self._telling is None:
            raise Malformed("run", "is not open: nothing is charged")
        return self._telling.spent(steps)

    def remaining(self) -> Remaining:
        """What is left of the run, and its loss so far. Raises: Malformed, before :meth:`open`."""
        steps = self.steps
        if self._whole is None:
            self._whole = self.spent(self.assignment.plan.steps)
        return Remaining(steps.left, self.spent(steps.begun), self._whole)

    def release(self, data: bytes, pause: Pause | None = None) -> str:
        """After the block: ask whether the model, as safetensors, may leave; see :meth:`Room.release_model`."""
        if self._room is None:
            raise Malformed("run", "was never open")
        if not self._own:
            return self._room.release_model(data, pause)
        with consumer_service(self.assignment) as service:
            return Room(self.assignment, service, self.say, self._room.identity).release_model(data, pause)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        """Post what ran. Raises: Refused, Unreachable, if nothing else broke: then the charge stands in full."""
        try:
            self._settle(broken=fault is not None)
        finally:
            if self._own:
                self.service.close()

    def _settle(self, *, broken: bool) -> None:
        steps, room = self._steps, self._room
        why = steps.end() if steps is not None else ""
        self._stack.close()
        if steps is None or room is None:
            return
        if why:
            self.say(f"training ended early: {why}")
        if not self.watched:
            self.say("nobody knows what was done with the records: nothing is posted, the charge stands in full")
            return
        if not broken and not self.ended():
            room.post(steps.taken)
            return
        # What began counts, whatever broke.
        self._post_hastily(room, steps.begun if broken else steps.taken)

    def _post_hastily(self, room: Room, steps: int) -> bool:
        """Whether it was; else the deadline posts all of the charge, or the ledger has settled it already."""
        try:
            room.post(steps, hasty=True)
        except (Refused, Unreachable, Malformed) as unposted:
            self.say(f"nothing was posted, so the charge stands as it is: {unposted}")
            return False
        return True

    @property
    def _partitions(self) -> tuple[str, ...]:
        return tuple(ref for ref, _ in self.assignment.data)


def _perhaps_recorded(fault: Exception) -> bool:
    """Whether a charge may stand whose command ended with this."""
    if isinstance(fault, Refused):
        return fault.exit_code in {_EXIT_BUG, _EXIT_RETRY}
    return isinstance(fault, Unreachable) and fault.sent


def _forget(identity: Identity) -> None:
    del identity
