"""What a first price would wait for, loaded beforehand: the libraries that compute losses take seconds to load."""

from __future__ import annotations

import logging
from fractions import Fraction
from threading import Thread
from typing import Final

from ledger.mechanisms.mechanism import PoissonGaussian

_ONE_STEP: Final = PoissonGaussian(Fraction(1, 100), Fraction(1), 1)
_DELTA: Final = Fraction(1, 100_000)
_LOG: Final = logging.getLogger(__name__)


def warm() -> None:
    """Tell the ε of one step as every charge's is told; nothing is kept but what it loaded."""
    from ledger.accounting import told_epsilon

    told_epsilon(_ONE_STEP, _DELTA, "REPLACE_SPECIAL")
    _LOG.info("ready to price")


def begin() -> Thread:
    """In a thread beside the service, which answers meanwhile; a charge that is faster waits for the same libraries."""
    thread = Thread(target=warm, name="epsilon-warming", daemon=True)
    thread.start()
    return thread
