"""The service's newest checkpoint, shown to its witnesses: before it accepts requests, and every few seconds.

A witness keeps the newest checkpoint that it has cosigned of a log (C2SP tlog-witness). One that has seen a longer log
than the book, or another history, contradicts: the book was restored from a backup or forked, and the service stops.
One that does not answer gets it again, with a warning; where the profile says ``witnesses = "required"`` the service
does not start without each witness's cosignature, and stops when one has been missing for a minute.

A cosignature bears nothing of the request: one that was recorded verifies again while the book has not grown. So the
times of one witness must advance as the time since boot does. A cosignature that is more than a minute older than that
makes it counts as none, and says nothing to the clock. The first one after a start is compared with nothing.

Each witness gets it in a thread of its own, on connections of its own: no commit waits for an answer, and a slow
witness delays no other. A cosignature is stored when the book has grown, in a short transaction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import httpx
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.wall_clock import DRIFT_PPM_MAX, boottime_ms
from ledger.cli.witness_client import Witness, WitnessRefused, witness_newest
from ledger.domain.exit_codes import ExitCode
from ledger.store.engine import engine_of
from ledger.wire.malformed import Malformed

ROUND_S: Final = 5.0
"""How often each witness is shown the newest checkpoint."""
MISSING_S_MAX: Final = 60.0
"""How long a required witness may be missing, in seconds."""
_LOG: Final = logging.getLogger("api.witnesses")


class WitnessMissing(Exception):  # noqa: N818 - what is the case
    """A required witness has not cosigned; it may later."""

    exit_code: Final = ExitCode.RETRY


class WitnessContradicts(Exception):  # noqa: N818 - what is the case
    """A witness has cosigned a longer log than the book's, or another history."""

    exit_code: Final = ExitCode.VERIFICATION_FAILED


@dataclass(slots=True)
class _WitnessState:
    """One witness, when it last cosigned (seconds of the monotonic clock), and why it did not since.

    Attributes:
        ahead: a time of the witness (ms), and the time since boot (ms) when it came: those of the cosignature that was
            furthest ahead of the time since boot, less what clocks may drift apart.
    """

    witness: Witness
    cosigned_s: float = field(default_factory=time.monotonic)
    problem: str = ""
    ahead: tuple[int, int] | None = None

    def age_s(self, time_ms: int, sent: int, came: int) -> float:
        """How long before it was requested a cosignature was made, at least, by the witness's earlier times (s).

        Args:
            time_ms: what it states.
            sent: the time since boot (ms) when it was requested.
            came: the same when it came.
        """
        time_then, came_then = self.ahead or (time_ms, came)
        drift = (came - came_then) * DRIFT_PPM_MAX // 1_000_000
        advanced = time_ms - time_then + drift
        if advanced >= came - came_then:
            self.ahead = time_ms, came
        return max(0, sent - came_then - advanced) / 1_000


class WitnessSubmission:
    """Shows a book's newest checkpoint to witnesses until it is closed."""

    def __init__(
        self,
        book: str,
        witnesses: Sequence[Witness],
        *,
        required: bool,
        empty: str,
        boottime: Callable[[], int] = boottime_ms,
    ) -> None:
        """Nothing is sent yet.

        Args:
            book: the URL of its database.
            witnesses: that get the checkpoint.
            required: whether the service needs the cosignature of each.
            empty: the log's checkpoint of no entries, which is shown for an empty book.
            boottime: milliseconds since boot, by which a witness's times must go on.
        """
        self._engines: tuple[Engine, Engine] = engine_of(book, writes=True), engine_of(book, writes=False)
        self._states = [_WitnessState(witness) for witness in witnesses]
        self._required, self._empty, self._boottime = required, empty, boottime
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failure: WitnessContradicts | WitnessMissing | None = None
        """Why the service has to stop; None while it need not."""

    def show(self) -> list[int]:
        """Show the newest checkpoint to each witness once, to all at the same time, and wait for their answers.

        Returns:
            The times (Unix ms) of those that have cosigned, by their own clocks.

        Raises:
            WitnessContradicts: if one has seen a longer log or another history.
            WitnessMissing: if one that is required does not cosign.
        """
        if not self._states:
            return []
        with ThreadPoolExecutor(len(self._states)) as pool:
            times = [done.result() for done in [pool.submit(self._show_to, state) for state in self._states]]
        for state in self._states:
            if self._required and state.problem:
                raise WitnessMissing(
                    f"{state.problem}: the profile requires its cosignature; start again when it answers"
                )
        return [time_ for time_ in times if time_ is not None]

    def start(self, stop: Callable[[], object], cosigned: Callable[[int], object]) -> None:
        """Go on showing it every few seconds.

        Args:
            stop: called in another thread when the service must stop; :attr:`failure` says why.
            cosigned: called with a witness's time (Unix ms) when it has just cosigned.
        """
        for state in self._states:
            thread = threading.Thread(target=self._run, args=(state, stop, cosigned), name="witness", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop showing it. An answer that is still awaited is not waited for."""
        self._ending.set()
        for engine in self._engines:
            engine.dispose()

    def _run(self, state: _WitnessState, stop: Callable[[], object], cosigned: Callable[[int], object]) -> None:
        while not self._ending.wait(ROUND_S):
            failure: WitnessContradicts | WitnessMissing | None = None
            try:
                time_ms = self._show_to(state)
                if time_ms is not None:
                    cosigned(time_ms)
            except WitnessContradicts as contradiction:
                failure = contradiction
            if self._required and state.problem and time.monotonic() - state.cosigned_s > MISSING_S_MAX:
                failure = failure or WitnessMissing(f"{state.problem}, for more than {MISSING_S_MAX:.0f} seconds")
            if failure is not None and not self._ending.is_set():
                _LOG.error("the service stops: %s", failure)
                self.failure = failure
                self._ending.set()
                stop()

    def _show_to(self, state: _WitnessState) -> int | None:
        """Show it to one witness and note what came of it; its time (ms) if it cosigned. Raises: WitnessContradicts."""
        name, problem, time_ms = state.witness.key.name, "", None
        writes, reads = self._engines
        sent = self._boottime()
        try:
            done = witness_newest(writes, state.witness, reads=reads, again=True, empty=self._empty)
        except WitnessRefused as refused:
            if refused.alarming:
                raise WitnessContradicts(
                    f"{refused}; serve the newest book, and give both checkpoints to an auditor"
                ) from None
            problem = str(refused)
        except Malformed as error:
            problem = f"{name} answered without a valid cosignature of its key ({error})"
        except httpx.RequestError as error:
            problem = f"{name} cannot be reached at {state.witness.url} ({type(error).__name__})"
        except SQLAlchemyError as error:
            # The book's own writer notices a lost database, and stops if it must.
            problem = f"the book could not be read for {name} ({type(error).__name__})"
        else:
            age = state.age_s(done.time_ms, sent, self._boottime())
            if age > MISSING_S_MAX:
                problem = (
                    f"{name} answered with a cosignature that is old by the times of its earlier ones: it may have "
                    "been recorded; if the witness's clock was set back, restart the service"
                )
            else:
                state.cosigned_s, time_ms = time.monotonic() - age, done.time_ms
        if problem != state.problem:
            if problem:
                _LOG.warning("%s; it gets the checkpoint again every %.0f seconds", problem, ROUND_S)
            else:
                _LOG.info("%s cosigns again", name)
        state.problem = problem
        return time_ms
