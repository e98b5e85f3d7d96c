"""Progress: the trainer's newest report of the steps that are done. It informs people and refunds nothing.

Reports are held in memory beside the log, never in it: they end with the process, and no decision uses them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Final

from fastapi import APIRouter
from fastapi.responses import Response
from msgspec import Meta

from api.auth.authentication import Calling
from api.auth.visibility import get_visible
from api.http.body import Raw
from api.http.field_types import PathName
from api.http.problems import Problem
from api.http.snapshots import SnapshotProvider
from api.wire.charge_answers import Progress as ProgressReport
from api.wire.responses import json_response, shows, takes
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.domain.outcomes import ChargeState, Code
from ledger.mechanisms.mechanism import STEPS_MAX
from ledger.wire import canonical_json as c
from ledger.wire.field_types import between
from ledger.wire.records import Record, convert

REPORTS_MAX: Final = 4_096
"""Charges whose report is held; the oldest report is dropped."""


PACE_MS: Final = 10_000
"""So long people are shown one report: a faster pace would follow the time of single steps."""


class StepsDone(Record, frozen=True):
    """How many steps are done so far."""

    steps: Annotated[int, between(0, STEPS_MAX), Meta(description="done so far")]


class Progress:
    """The newest report of each charge."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """``clock`` gives Unix milliseconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._reports: OrderedDict[str, ProgressReport] = OrderedDict()
        self._paced: OrderedDict[str, tuple[int, ProgressReport | None]] = OrderedDict()

    def report(self, charge: str, steps: int) -> ProgressReport:
        """Store a report; a later one never has fewer steps. Raises: Problem."""
        with self._lock:
            before = self._reports.get(charge)
            if before is not None and steps < before.steps:
                raise Problem(Code.CONFLICT, f"{before.steps} steps were reported already", field="steps", id=charge)
            report = self._reports[charge] = ProgressReport(steps=steps, time=self._clock())
            self._reports.move_to_end(charge)
            while len(self._reports) > REPORTS_MAX:
                self._reports.popitem(last=False)
        return report

    def of(self, charge: str) -> ProgressReport | None:
        """The newest report of a charge, None without one."""
        return self._reports.get(charge)

    def paced(self, charge: str) -> ProgressReport | None:
        """The report of a charge that every caller is shown for ten seconds; None without one."""
        slot = self._clock() // PACE_MS
        with self._lock:
            held = self._paced.get(charge)
            if held is None or held[0] != slot:
                held = self._paced[charge] = slot, self._reports.get(charge)
                self._paced.move_to_end(charge)
                while len(self._paced) > REPORTS_MAX:
                    self._paced.popitem(last=False)
        return held[1]


def progress_router(snapshots: SnapshotProvider, progress: Progress) -> APIRouter:
    """POST /v1/charges/{id}/progress."""
    router = APIRouter(tags=["charges"])

    @router.post(
        "/v1/charges/{id}/progress",
        operation_id="report_progress",
        responses=shows(ProgressReport, 401, 403, 404, 408, 409, 413, 415, 422, description="Stored"),
        openapi_extra=takes(StepsDone),
    )
    def report(id: PathName, raw: Raw, caller: Calling) -> Response:  # noqa: A002 - the wire's name
        steps = convert(StepsDone, c.parse(raw, COMMAND_BYTES_MAX)).steps
        with snapshots.read() as facts:
            charge = get_visible(facts.charges.get(c.name(id, "id")), caller.sees_charge, facts, f"charge {id}")
        if charge.state is not ChargeState.PENDING:
            raise Problem(Code.CONFLICT, f"charge {id} is {charge.state}, not pending", field="id", id=id)
        return json_response(progress.report(id, c.integer(steps, "steps", 0, charge.steps)))

    return router
