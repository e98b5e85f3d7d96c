"""A frame of a live run: how far it is, in the words of its page, the same for all who may see the run.

Steps are shown in whole hundredths of those charged, reports by ten seconds and their age in minutes, so that no frame
follows the time of single steps.
"""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.wire.charge_answers import Progress
from ledger.domain.charge_record import Charge
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c

_MINUTE_MS: Final = 60_000
_PARTS: Final = 100


def run_frame(charge: Charge, progress: Progress | None, now: int) -> dict[str, str]:
    """The frame of one run at a time (ms): each value's text by its name."""
    pending = charge.state is ChargeState.PENDING
    steps = 0 if progress is None else coarse_steps(progress.steps, charge.steps)
    done = steps if charge.steps_posted is None else charge.steps_posted
    return {
        "age": _age(progress, now) if pending else "the run is settled",
        "deadline": cells.moment(charge.deadline).text,
        "done": f"{done} of {charge.steps}",
        "key": "released" if charge.key_release else "withheld",
        "leased": "–" if charge.leases is None or not pending else f"{charge.leases.steps} of {charge.steps}",
        "over": "" if pending else "yes",
        "percent": str(min(_PARTS, done * _PARTS // max(1, charge.steps))),
        "state": charge.state.value,
    }


def coarse_steps(steps: int, charged: int) -> int:
    """Steps in whole hundredths of those that are charged, rounded down; all of them where they are all done."""
    part = max(1, charged // _PARTS)
    return steps if steps >= charged else steps // part * part


def _age(progress: Progress | None, now: int) -> str:
    if progress is None:
        return "no report yet"
    minutes = max(0, now - progress.time) // _MINUTE_MS
    return "within the last minute" if minutes == 0 else f"{minutes} min ago"


def frame_event(frame: dict[str, str]) -> bytes:
    """The frame as a server-sent event."""
    return b"data: " + c.dump({**frame}) + b"\n\n"
