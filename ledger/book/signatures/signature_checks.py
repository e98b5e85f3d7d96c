"""The signatures of commands that wait: most of them are verified by another process.

The process is started once a book has had many commands to verify together, and helps from when it is ready. Where no
lock waits, it verifies the first commands while the others are read, and these while the first ones are decided; else
half of them, and the answer is waited for. A command that it has not confirmed is verified here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from msgspec import Struct, structs

from ledger.book.signatures.signature_process import SignatureProcess
from ledger.commands.context import PendingCommand
from ledger.commands.decide import check_elsewhere, refusal_by, signing_key
from ledger.crypto.ed25519 import Check
from ledger.crypto.organisation_keys import SignerKey
from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts

D = TypeVar("D")
TOGETHER_MIN: Final = 8
"""Commands from which on the process helps: fewer are verified before it would have answered."""
STARTED_AFTER: Final = 128
"""Commands in groups of that size that are verified before the process is started, which takes some 0.05 s."""


class _Keyed(Struct, frozen=True):
    """A command and the key that it names."""

    command: PendingCommand
    key: SignerKey


_NOT_SENT: Final[tuple[int, _Keyed | None]] = -1, None


class SignatureChecks:
    """Verifies the signatures of many commands; for the writing thread alone.

    Attributes:
        process: verifies most of them; None until the book is busy.
    """

    def __init__(self, log_x: str, process: SignatureProcess | None = None) -> None:
        """See :func:`ledger.commands.decide.verify_signer`; ``process`` is one that was started before, if any."""
        self._log_x = log_x
        self.process = process
        self._starts_in = STARTED_AFTER if process is None and sys.executable and (os.cpu_count() or 1) > 1 else 0
        self._sent: dict[int, tuple[int, _Keyed]] = {}
        self._goes_on = False

    def begin(self, facts: Facts, commands: Sequence[PendingCommand | D], *, goes_on: bool = False) -> None:
        """Have the process begin with commands that are decided next, the very same; none of them is waited for.

        Args:
            goes_on: they come after those of the call before, of which none is decided yet.
        """
        left = [found for one in commands if (found := self._keyed(facts, one)) and id(one) not in self._sent]
        if len(left) >= TOGETHER_MIN:
            self._start_if_busy(len(left))
        if goes_on:
            if self._goes_on:
                self._send(left, goes_on=True)
            return
        self._goes_on = len(left) >= TOGETHER_MIN and self.can_verify_ahead
        if self._goes_on:
            self._send(left)

    def noted(self, one: PendingCommand) -> PendingCommand:
        """The command, noting that it verifies if the process has confirmed it by now."""
        place, sent = self._sent.get(id(one), _NOT_SENT)
        if sent is None or sent.command is not one or self.process is None or not self.process.confirms(place):
            return one
        return _verified(sent)

    def verify(self, facts: Facts, commands: Sequence[PendingCommand | D]) -> list[PendingCommand | D]:
        """The commands, each noting whether it verifies with the key that it names, if ``facts`` have that key."""
        checked, confirmed = [*commands], self._confirmed()
        left = list[tuple[int, _Keyed]]()
        for place, one in enumerate(commands):
            if (found := self._keyed(facts, one)) is None:
                continue
            if _confirms(confirmed, found):
                checked[place] = _verified(found)
            else:
                left.append((place, found))
        count = 0
        if len(left) >= TOGETHER_MIN:
            self._start_if_busy(len(left))
            if self.can_verify_ahead:
                count = self._send(found for _, found in left[: len(left) // 2])
        for place, found in left[count:]:
            checked[place] = _noted(found)
        confirmed = self._confirmed()
        for place, found in left[:count]:
            checked[place] = _verified(found) if _confirms(confirmed, found) else _noted(found)
        return checked

    @property
    def can_verify_ahead(self) -> bool:
        """Whether the process has nothing to do."""
        return self.process is not None and self.process.is_ready

    def verify_ahead(self, facts: Facts, commands: Sequence[object]) -> None:
        """Have the process verify commands that :meth:`verify` is given next, the very same; what it can take."""
        self._send([found for one in commands if (found := self._keyed(facts, one)) is not None])

    def _start_if_busy(self, count: int) -> None:
        if self._starts_in > 0:
            self._starts_in -= count
            if self._starts_in <= 0:
                with suppress(OSError):
                    self.process = SignatureProcess()

    def _send(self, commands: Iterable[_Keyed], *, goes_on: bool = False) -> int:
        """Send the first of these commands to the process, which has nothing to do or gets more; how many."""
        assert self.process is not None
        checks = list[Check]()
        sent = list[_Keyed]()
        for found in commands:
            check = check_elsewhere(found.key, found.command)
            if check is None:
                continue
            checks.append(check)
            sent.append(found)
        if not goes_on:
            self._sent = {}
        first = self.process.requested if goes_on else 0
        count = self.process.send_more(checks) if goes_on else self.process.send(checks)
        # An object that is held here keeps its identity.
        self._sent.update((id(one.command), (place, one)) for place, one in enumerate(sent[:count], first))
        return count

    def _confirmed(self) -> dict[int, _Keyed]:
        """What was sent and verifies, by the identity of the command; waits for the answer."""
        sent, self._sent = self._sent, {}
        if not sent or self.process is None:
            return {}
        answers = self.process.receive()
        return {name: one for name, (place, one) in sent.items() if place < len(answers) and answers[place]}

    def _keyed(self, facts: Facts, one: object) -> _Keyed | None:
        if not isinstance(one, PendingCommand) or one.verified_by or any(one.refused_by):
            return None
        try:
            return _Keyed(one, signing_key(facts, one, self._log_x))
        except Rejected:
            return None

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.close()


def _confirms(confirmed: dict[int, _Keyed], found: _Keyed) -> bool:
    """Whether this very command was seen to verify with this key."""
    sent = confirmed.get(id(found.command))
    return sent is not None and sent.command is found.command and sent.key == found.key


def _verified(found: _Keyed) -> PendingCommand:
    """The command, noting that it verifies by its key."""
    return structs.replace(found.command, verified_by=found.key.x)


def _noted(found: _Keyed) -> PendingCommand:
    """The command, with what verifying it by its key gives."""
    x = found.key.x
    refusal = refusal_by(found.key, found.command)
    return structs.replace(found.command, refused_by=(x, refusal)) if refusal else _verified(found)
