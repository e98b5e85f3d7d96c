"""The clock by which entries get their time: a wall clock, held against the time since the machine was started.

A wall clock can be set to any time: by a bad NTP step, a restored virtual machine, an operator's mistake. The times of
entries never decrease, so one wrong step forward would stay in the log for ever, and every pending charge would lapse.
But the kernel also counts the time since boot (CLOCK_BOOTTIME, time in suspend included), which no one sets. So a
reading is taken only while the wall clock has advanced as much as the time since boot has, since both were last known
to be right:

- up to :attr:`ClockWatch.jump_ms` more or less (:data:`JUMP_MS_MAX` if not said otherwise, and :data:`DRIFT_PPM_MAX`
  of the time between) is accepted. After a small step back, entries keep the last entry's time until the clock has
  reached it again;
- any larger difference is a jump that nothing explains. Writing pauses, charges do not lapse, and no key is released.

A pause ends when the wall clock is back; when two readings that lie :data:`AGREEMENT_MS` apart agree with a witness's
time (:meth:`WallClock.witnessed`); or when the operator accepts the clock (:func:`accept`), which writes both readings
to a file that the service compares: who may write that file is who may accept. A service in development
(``pauses=False``) logs a warning and takes the wall clock as it is.

After a restart within the same boot the same file holds both readings. After another boot nothing compares the
clocks: a wall clock that is at most :data:`ABSENCE_MS_MAX` after the newest entry is accepted, and said in one line if
that is long; a later one pauses until it is explained.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

from ledger.book.submitted_command import BookPaused
from ledger.files.atomic_file import SHARED, replace_file
from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.field_types import TIME_MAX, between, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, read, write

JUMP_MS_MAX: Final = 600_000
"""How much more or less the wall clock may have advanced than the time since boot, if not said otherwise."""
DRIFT_PPM_MAX: Final = 200
"""How many millionths of the time between two readings come on top: a crystal that NTP corrects in steps."""
ABSENCE_MS_MAX: Final = 7 * 86_400_000
"""How long after the newest entry a clock that nothing confirms is accepted when a book is opened."""
AGREEMENT_MS: Final = 30_000
"""How far apart two readings lie that must agree with a witness's time."""
FILE_BYTES_MAX: Final = 1_000
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LOG: Final = logging.getLogger("ledger.clock")

Milliseconds = Annotated[int, between(0, INTEGER_MAX)]


class Reading(Record, frozen=True):
    """Both clocks at one moment: Unix milliseconds, and milliseconds since the boot that ``boot_id`` names."""

    boot_id: Annotated[str, text(100)]
    boottime: Milliseconds
    wall: Milliseconds

    def ahead(self, earlier: Reading) -> int:
        """How much more (ms) the wall clock has advanced since an earlier reading than the time since boot."""
        return (self.wall - earlier.wall) - (self.boottime - earlier.boottime)

    def agrees(self, earlier: Reading, jump_ms: int) -> bool:
        """Whether the two clocks have advanced alike, to ``jump_ms``, since an earlier reading of the same boot."""
        drift = abs(self.boottime - earlier.boottime) * DRIFT_PPM_MAX // 1_000_000
        return self.boot_id == earlier.boot_id and abs(self.ahead(earlier)) <= jump_ms + drift


def unix_ms() -> int:
    """The machine's wall clock, in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def boottime_ms() -> int:
    """Milliseconds since the machine was started, time in suspend included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def boot_id() -> str:
    """The kernel's name of this boot."""
    return _BOOT_ID.read_text("ascii").strip()


@dataclass(frozen=True, slots=True)
class ClockWatch:
    """What a wall clock is held against.

    Attributes:
        file: where the readings that were last known to be right are stored; None where they are not.
        pauses: whether a jump pauses writing; a warning is all there is in development.
        boottime: milliseconds since boot.
        boot: the name of the boot.
        jump_ms: how much more or less the wall clock may have advanced than the time since boot: more is a jump.
    """

    file: Path | None = None
    pauses: bool = True
    boottime: Callable[[], int] = boottime_ms
    boot: str = field(default_factory=boot_id)
    jump_ms: int = JUMP_MS_MAX


class WallClock:
    """Gives the time of entries; any number of threads may ask."""

    def __init__(self, wall: Callable[[], int], watch: ClockWatch | None = None) -> None:
        """Read ``wall`` (Unix ms); without a ``watch`` it is believed."""
        self.wall, self._watch = wall, watch
        self._jump_ms = JUMP_MS_MAX if watch is None else watch.jump_ms
        self._lock = threading.Lock()
        self._right: Reading | None = None
        self._witnessed: Reading | None = None
        self._agrees_since: int | None = None
        self._reason: str | None = None

    def begin(self, last: int, cosigned: tuple[int, int] | None = None) -> None:
        """Hold the clock against the log, before anything is written.

        Args:
            last: the newest entry's time (ms); 0 without one.
            cosigned: a witness's time (ms) in the newest cosignature, and the time of the last entry under it.
        """
        wall = self.wall()
        if cosigned is not None:
            self._compare_with_witness(wall, *cosigned)
        if last > wall + self._jump_ms:
            _LOG.warning(
                "the newest entry is of %s, %s ahead of the clock, which reads %s: entries keep that time until the "
                "clock has reached it, or a clock correction is entered",
                *(_utc(last), _span(last - wall), _utc(wall)),
            )
        if self._watch is None:
            return
        with self._lock:
            now, stored = self._reading(), self._stored()
            if stored is not None and stored.boot_id == now.boot_id:
                self._right = stored
                return
            absence = now.wall - last if last else 0
            if absence > self._jump_ms:
                _LOG.warning("the clock reads %s, %s after the newest entry", _utc(now.wall), _span(absence))
            if absence <= ABSENCE_MS_MAX or not self._watch.pauses:
                self._accept(now)

    def _compare_with_witness(self, wall: int, witnessed: int, entry: int) -> None:
        if witnessed > TIME_MAX:
            # No such one is stored any more; one that a book has stays in it.
            _LOG.warning("the newest cosignature states a time after the year 9999: nothing is compared with it")
            return
        if entry > witnessed + self._jump_ms:
            ahead = "the log was %s ahead of the time of the witness that cosigned it last, at %s"
            _LOG.warning(ahead, _span(entry - witnessed), _utc(witnessed))
        if witnessed > wall + self._jump_ms:
            behind = "the clock reads %s, %s behind the time of the newest cosignature"
            _LOG.warning(behind, _utc(wall), _span(witnessed - wall))

    def now(self, last: int) -> int:
        """The time of the next entry (ms): the clock's, never before the last entry's, ``last``. Raises: BookPaused."""
        wall, reason = self._read()
        if reason is not None:
            raise BookPaused(reason)
        return max(wall, last)

    @property
    def paused(self) -> str | None:
        """Why the clock is not believed now; None if it is."""
        return self._read()[1]

    def witnessed(self, time_ms: int) -> None:
        """Note the time of a witness that has just cosigned, its signature verified with a key that is pinned."""
        if self._watch is not None:
            with self._lock:
                self._witnessed = Reading(self._watch.boot, self._watch.boottime(), time_ms)

    def _read(self) -> tuple[int, str | None]:
        if self._watch is None:
            return self.wall(), None
        with self._lock:
            now = self._reading()
            if self._right is None or not now.agrees(self._right, self._jump_ms):
                reason = self._unexplained(now, self._right)
            else:
                reason, self._agrees_since = None, None
            if (reason is None) != (self._reason is None):
                _LOG.warning("%s", reason or f"the clock reads {_utc(now.wall)} and is believed again: writing goes on")
            self._reason = reason
            return now.wall, reason

    def _unexplained(self, now: Reading, right: Reading | None) -> str | None:
        """What is wrong with a reading that differs from the last right one; None if that is explained."""
        if self._watch is not None and not self._watch.pauses:
            _LOG.warning("%s: a service in development goes on", _difference(now, right))
            self._accept(now)
            return None
        stored = self._stored()
        if stored is not None and now.agrees(stored, self._jump_ms):
            _LOG.warning("the operator has accepted the clock, which reads %s", _utc(now.wall))
            self._right = stored
            return None
        if self._agrees_with_witness(now):
            _LOG.warning("a witness's time agrees with the clock, which reads %s", _utc(now.wall))
            self._accept(now)
            return None
        return f"{_difference(now, right)}: writing pauses until a witness agrees, or 'epsilon clock accept' is run"

    def _agrees_with_witness(self, now: Reading) -> bool:
        if self._witnessed is None or not now.agrees(self._witnessed, self._jump_ms):
            self._agrees_since = None
            return False
        if self._agrees_since is None:
            self._agrees_since = now.boottime
        return now.boottime - self._agrees_since >= AGREEMENT_MS

    def _accept(self, now: Reading) -> None:
        self._right = now
        if self._watch is None or self._watch.file is None:
            return
        try:
            write_reading(self._watch.file, now)
        except OSError as error:
            _LOG.warning("the clock's reading cannot be stored at %s: %s", self._watch.file, error.strerror)

    def _reading(self) -> Reading:
        assert self._watch is not None
        return Reading(self._watch.boot, self._watch.boottime(), self.wall())

    def _stored(self) -> Reading | None:
        return None if self._watch is None or self._watch.file is None else read_reading(self._watch.file)


def accept(file: Path) -> Reading:
    """Accept the wall clock as it reads now, for the service that has its readings in ``file``. Raises: OSError."""
    now = Reading(boot_id(), boottime_ms(), unix_ms())
    write_reading(file, now)
    return now


def write_reading(file: Path, reading: Reading) -> None:
    """Store a reading. Raises: OSError."""
    # An operator with another account may write it, and the service reads it.
    replace_file(file, write(reading), mode=SHARED)


def read_reading(file: Path) -> Reading | None:
    """The stored reading; None if there is none, or it cannot be read."""
    try:
        with file.open("rb") as opened:
            return read(Reading, opened.read(FILE_BYTES_MAX + 1), FILE_BYTES_MAX)
    except (OSError, Malformed):
        return None


def _difference(now: Reading, right: Reading | None) -> str:
    if right is None:
        return f"the clock reads {_utc(now.wall)}, and nothing shows that it is right"
    ahead = now.ahead(right)
    way = "ahead of" if ahead > 0 else "behind"
    return f"the clock reads {_utc(now.wall)}, {_span(abs(ahead))} {way} what the time since boot makes it"


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(min(time_ms, TIME_MAX) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _span(ms: int) -> str:
    return str(timedelta(seconds=ms // 1000))
