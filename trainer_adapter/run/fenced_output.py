"""What leaves a run before its model: public metrics, progress and errors, each behind a command that fences it.

A run that leases its steps lets nothing out by itself. What it has to say is held until its next lease, or its post,
names the digest of all of it, and leaves once that command is an entry: one digest a command. Of two copies of a run
one gets the entry, so what the other measured is never seen, and the log shows that each output had its fence.

The digest is the SHA-256 of the canonical JSON of the list of what leaves, in order; a count that replaces all before
it, as progress does, comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from client.http.problems import Refused, Unreachable
from ledger.wire import canonical_json as c

ERROR_MAX: Final = 1_000
"""Characters of an error's text that leave with the post."""
_NOT_OF_RECORDS: Final = (Refused, Unreachable, KeyboardInterrupt)
"""Errors that say what the service answered, or that someone ended the run."""
Leave = Callable[[], None]
"""Lets one output out; called in the thread that trains."""
_Held = tuple[c.Json, Leave]


class FencedOutput:
    """The outputs of one process of a run, in order."""

    def __init__(self) -> None:
        """Nothing is held, and nothing is fenced: what is put in leaves at once, until :meth:`fence`."""
        self._held: list[_Held] = []
        self._sealed: list[_Held] = []
        self._newest: _Held | None = None
        self._fenced = self._shut = False

    def fence(self) -> None:
        """From now on hold what is put in."""
        self._fenced = True

    def put(self, value: c.Json, leave: Leave) -> None:
        """Let ``leave`` be called once a command with the digest of ``value`` is an entry."""
        if self._shut:
            return
        if self._fenced:
            self._held.append((value, leave))
        else:
            leave()

    def put_newest(self, value: c.Json, leave: Leave) -> None:
        """As :meth:`put`, in place of the one before it that no command names yet: a count, whose last value is all."""
        if self._fenced and not self._shut:
            self._newest = (value, leave)
        else:
            self.put(value, leave)

    def put_error(self, error: BaseException) -> None:
        """Put in what broke the run; a command names it, and its text leaves by the error that the run ends with."""
        self.put({"error": f"{type(error).__name__}: {error}"[:ERROR_MAX]}, lambda: None)

    def seal(self) -> str | None:
        """The digest of all that has not left, for the next command; None if nothing is held."""
        newest = [] if self._newest is None else [self._newest]
        self._sealed, self._held, self._newest = [*self._sealed, *newest, *self._held], [], None
        return c.digest(c.dump([value for value, _ in self._sealed])) if self._sealed else None

    def let_out(self) -> None:
        """Let out what was sealed: its command is an entry."""
        sealed, self._sealed = self._sealed, []
        for _, leave in sealed:
            leave()

    def end(self, *, posted: bool) -> None:
        """After the post: what is sealed leaves, as what comes later does; without a post nothing leaves any more."""
        self._fenced, self._shut = False, not posted
        if posted:
            self.let_out()
        self._held, self._sealed, self._newest = [], [], None


def may_quote_records(error: BaseException) -> bool:
    """Whether an error may say something of the records: a loop that exits may do so in its text or number."""
    silent = isinstance(error, SystemExit) and error.code in {None, 0}
    return not silent and not isinstance(error, _NOT_OF_RECORDS)
