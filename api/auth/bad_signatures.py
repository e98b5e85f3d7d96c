"""Signatures that did not verify, counted by sender: each costs the service two verifications.

Libsodium verifies first, and OpenSSL decides what it refuses (:mod:`ledger.crypto.ed25519`). So a caller whose
signatures do not verify is answered 429 for the rest of the time that they are counted in, before anything of its is
verified. Only a caller with a valid token gets so far: no one can use up the count of another, and a clean room has one
of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from api.auth.authorisation import Caller
from api.http.problems import Problem, ServiceCode
from ledger.domain.outcomes import Code

PER_SENDER_MAX: Final = 32
"""Bad signatures of one sender in :data:`COUNTED_S` seconds."""
SENDERS_MAX: Final = 4_096
"""Senders that are counted at a time; those whose time ends first are forgotten first."""
COUNTED_S: Final = ServiceCode.TOO_MANY.retry_s
_LOG: Final = logging.getLogger("api.signatures")


class _BadCount(NamedTuple):
    until_s: float
    bad: int


class BadSignatures:
    """Counts them for one service, in any thread."""

    def __init__(self, on_count: Callable[[float], object], clock: Callable[[], float] = time.monotonic) -> None:
        """``on_count`` gets how many there were, each time; ``clock`` gives seconds and never goes back."""
        self._on_count, self._clock = on_count, clock
        self._lock = threading.Lock()
        self._counted: dict[tuple[str, str], _BadCount] = {}

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        """Count the signature of a caller that is verified in the block, if the block raises that it is bad.

        Raises:
            Problem: 429 instead of the block, if too many of its were bad; whatever the block raises.
        """
        self.check(caller)
        try:
            yield
        except Problem as problem:
            if problem.code is Code.SIGNATURE_INVALID:
                self.add(caller, 1)
            raise

    def check(self, caller: Caller) -> None:
        """Raises: Problem (429), if too many signatures of a caller did not verify."""
        # One look-up needs no lock, and the next one sees what another thread adds meanwhile.
        counted = self._counted.get((caller.organisation, caller.charge))
        if counted is not None and counted.bad >= PER_SENDER_MAX and self._clock() < counted.until_s:
            detail = f"{counted.bad} signatures of {_name(caller)} did not verify: check its key and what it signs"
            raise Problem(ServiceCode.TOO_MANY, detail, field="signature")

    def add(self, caller: Caller, bad: int) -> None:
        """Count signatures of a caller that did not verify."""
        if not bad:
            return
        self._on_count(bad)
        sender, now = (caller.organisation, caller.charge), self._clock()
        with self._lock:
            known = self._counted.get(sender)
            if known is None or now >= known.until_s:
                self._counted.pop(sender, None)
                self._make_room(now)
                # In the order in which their times end.
                known = _BadCount(now + COUNTED_S, 0)
            self._counted[sender] = counted = known._replace(bad=known.bad + bad)
        if known.bad < PER_SENDER_MAX <= counted.bad:
            _LOG.warning("%d signatures of %s did not verify: it is refused for a while", counted.bad, _name(caller))

    def _make_room(self, now: float) -> None:
        while self._counted:
            first = next(iter(self._counted))
            if len(self._counted) < SENDERS_MAX and now < self._counted[first].until_s:
                return
            del self._counted[first]


def _name(caller: Caller) -> str:
    return f"the clean room of charge {caller.charge}" if caller.charge else caller.organisation
