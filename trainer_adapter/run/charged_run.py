"""One charged run: opened by a charge, closed by a post, whichever training loop takes its steps.

    with Run(assignment) as run:
        records = run.open_data()
        for step in run.begin():
            ...                 # noise
            run.done(step)

However the block ends, what ran is posted: the steps taken, or, if something broke, all steps of the blocks that began.
However the process ends, the charge stays until its deadline and is posted in full then, unless the run is resumed
before.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from types import TracebackType
from typing import Final, Self

from client.dataset_files.stored_partition import NotOpened, PartitionData
from client.http.problems import Refused, Unreachable, may_be_recorded
from client.service.answers import Answer
from client.service.service import Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.job.signals import stop_signals
from trainer_adapter.run.block_leases import BlockLeases
from trainer_adapter.run.checkpointing import CheckpointStore
from trainer_adapter.run.core_dumps import leave_no_core
from trainer_adapter.run.declared_records import check_declared
from trainer_adapter.run.fenced_output import FencedOutput, may_quote_records
from trainer_adapter.run.progress import ProgressReporter
from trainer_adapter.run.run_folder import ROOM_BYTES, claim_folder, open_step_log
from trainer_adapter.run.settlement import Settlement
from trainer_adapter.run.state_digest import Digest
from trainer_adapter.run.step_budget import Remaining, StepBudget
from trainer_adapter.run.unit_bounds import check_unit_bounds, unit_bounds
from trainer_adapter.session.join_terms import check_join
from trainer_adapter.session.key_grants import NotGranted
from trainer_adapter.session.model_release import ModelReleaseRequest, Pause, post_of
from trainer_adapter.session.protocol import Say, Session, clean_room_service, consumer_service
from trainer_adapter.session.quote_report import QuoteReport


class Run:
    """One run, whose steps a training loop takes from :attr:`budget`.

    Attributes:
        checkpoints: from which a killed run is resumed; None where the assignment has no ``resume``.
        over: whether a resumed run was over already, so that only its post and its model are left.
        output: what leaves the run before its model: of a run that leases its steps behind its leases and its post.
        model_data: the one model that may leave the run, which its post names: its bytes, set before the block ends. A
            run that leases its steps has no other.
        room_bytes: so much a disk must have room for before the run is charged.
        watched: whether the loop takes its steps from the budget; if not, nothing is posted: the charge stays in full.
    """

    leases_by_default = False
    """Whether steps are leased where the assignment does not say. Not here: the loop has to set :attr:`model_data`."""
    joins = False
    """Whether the loop joins the partitions itself, and adds nothing for what is joined with nothing."""
    bounds_units = False
    """Whether the loop leaves out the records of a user that are more than the charge is for; else the run ends."""

    def __init__(
        self, assignment: Assignment, service: Service | None = None, say: Say | None = None, *, resume: bool = False
    ) -> None:
        """Nothing is sent to the service yet.

        Args:
            assignment: which contract, data, plan and keys.
            service: as the consumer calls it; the assignment's own if none is given.
            say: receives one line for each stage.
            resume: resume the run of this assignment whose process died, if there is one.

        Raises:
            Malformed, OSError.
        """
        if resume and assignment.resume is None:
            raise Malformed("resume", "is not configured: what was killed is posted in full at its deadline")
        self.assignment, self.say, self._resume = assignment, say or (lambda _: None), resume
        self.checkpoints: CheckpointStore | None = None
        self.over = self._resumed = False
        self.watched, self.model_data = True, b""
        self.room_bytes = ROOM_BYTES
        self.output: Final = FencedOutput()
        self._leases: BlockLeases | None = None
        self._stack, self._owns_service = ExitStack(), service is None
        self.service: Final = service or consumer_service(assignment)
        self._session: Session | None = None
        self._budget: StepBudget | None = None
        self._progress: ProgressReporter | None = None

    @property
    def steps(self) -> int:
        """How many steps are charged."""
        return self.assignment.plan.steps

    @property
    def session(self) -> Session:
        """The session with the ledger. Raises: Malformed, before :meth:`open_data`."""
        if self._session is None:
            raise Malformed("run", "is not open: nothing is charged")
        return self._session

    @property
    def budget(self) -> StepBudget:
        """The steps to take. Raises: Malformed, before :meth:`begin`."""
        if self._budget is None:
            raise Malformed("run", "has not begun")
        return self._budget

    def plan(self) -> QuoteReport:
        """What the run would get now: permitted or why not, its ε, the accounts afterwards. Nothing is recorded.

        Raises:
            Refused, Unreachable, Malformed, OSError.
        """
        return Session(self.assignment, self.service, self.say, leases=self.wants_leases).quote()

    @property
    def wants_leases(self) -> bool:
        """Whether it leases its steps, if the service knows leases: then nothing leaves but behind a fence."""
        wanted = self.assignment.step_leases
        return self.leases_by_default if wanted is None else wanted

    def open_data(self) -> dict[str, PartitionData]:
        """Charge, get the key, and decrypt: the data of each partition; none if a resumed run is over. Once.

        Raises:
            Refused: if the charge or the key is. NotGranted: if a provider's key was waited for, and did not come.
            NotOpened: if a partition's file does not open with its key.
            Malformed: if a file is not as its provider declares, too. OSError, Unreachable.
            FileExistsError: for a folder that holds something, unless a run is resumed.
        """
        if self._session is not None:
            raise Malformed("run", "is open already: one clean room, one run")
        # Before it holds the keys that open the data: a core would be of these, and of records.
        leave_no_core()
        self.checkpoints = store = CheckpointStore(self.assignment) if self.assignment.resume else None
        identity = store.load_identity() if store and self._resume else None
        # What can fail before the charge fails before there is a folder.
        save = store.save_identity if store else (lambda _: None)
        session = Session(self.assignment, self.service, self.say, identity, save, leases=self.wants_leases)
        session.check_key_sources()
        if self.assignment.join is not None and not self.joins:
            raise Malformed("join", "is for `epsilon train` and `attach`: this loop trains on each table by itself")
        check_join(self.assignment, self.service)
        self._stack.enter_context(claim_folder(self.assignment, self.room_bytes, resume=self._resume))
        self._session = session
        session.load_privacy(self._charge(session, fresh=identity is None))
        self._resumed = identity is not None
        if self._resumed and (posted := session.charge_status.steps_posted()) is not None:
            self.say(f"{posted} steps were posted before this process")
            self.over = True
            return {}
        # Without a key released, its consumer may void the charge of a run that ends here.
        self.check_before_keys(session)
        return self._held_to_terms(self._open_data(session))

    def _held_to_terms(self, opened: dict[str, PartitionData]) -> dict[str, PartitionData]:
        try:
            check_declared(opened)
            if not self.bounds_units:
                check_unit_bounds(opened, unit_bounds(opened, self.assignment, self.service))
        except Malformed:
            self.count_as_begun()
            raise
        return opened

    def count_as_begun(self) -> None:
        """Begin a block of a run that ends before its steps: its end may reveal what a file holds, so it counts."""
        if (self._budget or self.begin()).next_step() is None:
            # None may begin any more, so nothing is posted and the charge stays in full.
            self.watched = False

    def check_before_keys(self, session: Session) -> None:
        """What a run looks at once it is charged, and before it gets a data key. Raises: Malformed."""

    def _charge(self, session: Session, *, fresh: bool) -> Answer:
        """Charge the run; the identity that was saved for a charge that was not made is deleted."""
        try:
            return session.charge()
        except (Refused, Unreachable, OSError) as error:
            if fresh and self.checkpoints is not None and not may_be_recorded(error):
                self.checkpoints.delete_identity()
            raise

    def _open_data(self, session: Session) -> dict[str, PartitionData]:
        try:
            return session.open_data()
        except (NotGranted, NotOpened) as error:
            # A partition stayed closed, so this process took no step. What died before it may have, and may go on.
            if self.checkpoints is None or session.near_deadline():
                error.posted = self._settlement(session).post_unopened(self.assignment, resumed=self._resumed)
            raise

    def begin(self) -> StepBudget:
        """The steps to take: from here on they are reported, a signal ends them, and they are posted.

        After :meth:`open_data`, once.

        Raises:
            Malformed: for a step log that cannot be resumed. OSError. Refused, Unreachable: for a run that is resumed
                and gets no new generation.
        """
        if self._session is None or self._budget is not None:
            raise Malformed("run", "is not open, or has begun already")
        log = open_step_log(self.assignment, self._session, resumed=self._resumed)
        self._stack.enter_context(closing(log))
        self._leases = leases = self._open_leases(self._session)
        if leases is not None:
            # Leased by a process that died, or by a copy of this folder: they count, and are not taken here.
            log.begin_until(leases.granted)
        stopped = self._stack.enter_context(stop_signals())
        charge = self._session.charge_status
        progress = ProgressReporter(charge.report_progress, charge.why_over)
        self._progress = self._stack.enter_context(closing(progress))
        ends = (stopped, progress.ended, self._session.near_deadline)
        self._budget = StepBudget(self.assignment.plan, log, ends, leases)
        return self._budget

    def _open_leases(self, session: Session) -> BlockLeases | None:
        requests, assignment = session.lease_requests(), self.assignment
        if requests is None:
            return None
        sizes = (self.steps, assignment.block_steps, assignment.lease_s)
        return BlockLeases(requests, *sizes, resumed=self._resumed, output=self.output, snapshot=self.snapshot)

    def snapshot(self) -> Digest:
        """Copy what was trained, to hash it; of another library's loop that is not known."""
        return lambda: ""

    def done(self, step: int) -> None:
        """Report that a step is done, once that may leave; returns at once."""
        if (progress := self._progress) is not None:
            progress.look()
            self.output.put_newest({"done": step}, lambda: progress.report(step))

    def ended(self) -> str:
        """Why the ledger wants the run to end, or nothing; returns at once."""
        return "" if self._progress is None else self._progress.ended()

    @property
    def privacy(self) -> ChargeEpsilon:
        """What the run reveals, by its whole plan, and with all that its model descends from.

        Raises:
            Malformed: before :meth:`open_data`.
        """
        return self.session.privacy

    def remaining(self) -> Remaining:
        """What is left of the run, and the ε of the whole of it. Raises: Malformed, before :meth:`begin`."""
        return Remaining(self.budget.left, self.privacy.epsilon)

    def release_model(self, data: bytes, pause: Pause | None = None) -> str:
        """After the block: request the release of the model, as safetensors; its SHA-256 if it left, or nothing.

        See :meth:`~trainer_adapter.session.model_release.ModelReleaseRequest.submit_or_seal`. Raises: Malformed, before
        :meth:`open_data`, and what that raises.
        """
        if self._session is None:
            raise Malformed("run", "was never open")
        assignment, identity = self.assignment, self._session.identity
        with ExitStack() as stack:
            service = stack.enter_context(consumer_service(assignment)) if self._owns_service else self.service
            own = clean_room_service(assignment, service, identity, self.say)
            request = ModelReleaseRequest(assignment, own, identity.signer, data, post_of(own, assignment.id))
            return request.submit_or_seal(self.say, pause)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Post what ran. Raises: Refused, Unreachable, if nothing else broke: then the charge stays in full.

        Of a run that leases its steps an error that the ledger did not cause leaves with the post, or not at all: then
        Malformed is raised in its place.
        """
        fenced = self._leases is not None and error is not None and may_quote_records(error)
        if fenced and error is not None:
            self.output.put_error(error)
        try:
            posted = self._settle(broken=error is not None)
            self.output.end(posted=posted or self._leases is None)
        finally:
            if self._owns_service:
                self.service.close()
        if fenced and not posted:
            raise Malformed("run", "broke, and the ledger has no post of it: what broke it does not leave") from None

    def _settle(self, *, broken: bool) -> bool:
        """Whether what ran is posted. Raises: Refused, Unreachable, Malformed."""
        budget, session = self._budget, self._session
        why = budget.close() if budget is not None else ""
        self._stack.close()
        if budget is None or session is None:
            return False
        if why:
            self.say(f"training ended early: {why}")
        if not self.watched:
            self.say("it is unknown what was done with the records: nothing is posted, the charge stays in full")
            return False
        settlement = self._settlement(session)
        if not broken and not self.ended():
            settlement.post(budget.taken)
            return True
        if not broken and self._leases is not None:
            # Another copy may have posted: then nothing of this one leaves, and its run ends with the refusal.
            settlement.post(budget.taken, brief=True)
            return True
        # What began counts, whatever broke.
        return settlement.post_briefly(budget.steps_durable if broken else budget.taken)

    def _settlement(self, session: Session) -> Settlement:
        return Settlement(session, self._leases, self.output, self.model_data, self.say)
