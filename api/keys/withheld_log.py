"""A line of log for every key that is withheld: of which charge, by which command, and why.

    {"charge":"run-1","key_release":"release-1","level":"warning","logger":"api.withheld","message":"key withheld",
     "reason":"key_withheld: the data key digits-key of ... cannot be read (FileNotFoundError)",...}

A reason is made of codes, of the field that was at fault, and of the service's own words about its store and its book;
never of what was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from api.http.problems import Fault, Problem
from ledger.domain.outcomes import Code

if TYPE_CHECKING:
    from ledger.domain.commands import Command

_LOG: Final = logging.getLogger(__name__)
_OWN_WORDS: Final = frozenset({Fault.KEY_WITHHELD, Code.CONFLICT})
"""Codes whose detail names a charge or a key, and nothing else."""


@contextmanager
def told_why(command: Command) -> Iterator[None]:
    """Whatever ends the block before the key is handed over leaves its line, and goes on."""
    try:
        yield
    except Problem as problem:
        _tell(command, _reason(problem))
        raise
    except Exception as fault:
        _tell(command, type(fault).__name__)
        raise


def _reason(problem: Problem) -> str:
    body = problem.body
    listed = body["reasons"]
    failed = [str(one["code"]) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    detail = str(body["detail"]) if problem.code in _OWN_WORDS else ", ".join(failed)
    first = " ".join(word for word in (problem.code.word, str(body["field"])) if word)
    return f"{first}: {detail}" if detail else first


def _tell(command: Command, reason: str) -> None:
    told = {"charge": command.body["charge"], "key_release": command.id, "reason": reason}
    _LOG.warning("key withheld", extra=told)
