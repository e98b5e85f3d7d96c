"""Forks of a process that are killed where they change a name in the file system, one at each such moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from itertools import count


def killed_forks(moments: Collection[str], work: Callable[[int], None]) -> Iterator[int]:
    """Fork until one is not killed: the n-th is, at its n-th moment. Gives each number before its fork is made.

    Args:
        moments: audit events (Python Library Reference, "Audit events table") that a name changes at.
        work: what each fork does; it gets its number.
    """
    for number in count(1):
        yield number
        child = os.fork()
        if not child:
            _kill_at(number, moments)
            work(number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            return
        assert os.WTERMSIG(status) == signal.SIGKILL


def _kill_at(moment: int, moments: Collection[str]) -> None:
    left = moment

    def audit(name: str, _: object) -> None:
        nonlocal left
        if name in moments:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
