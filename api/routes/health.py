"""Routes for operators: liveness, readiness and metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from msgspec import Meta
from prometheus_client import CONTENT_TYPE_LATEST

from api.auth.authentication import Calling
from api.http.field_types import Always
from api.http.problems import ROWS_DIFFER, Problem, ServiceCode
from api.http.snapshots import SnapshotProvider
from api.middleware.metrics import Metrics
from api.wire.responses import json_response, shows, shows_text
from ledger.wire.records import Record


class Live(Record, frozen=True):
    """The process answers."""

    live: Always


class Ready(Record, frozen=True):
    """The service takes commands."""

    entries: Annotated[int, Meta(ge=0, le=2**53 - 1, description="of the log")]
    ready: Always


def health_router(snapshots: SnapshotProvider, metrics: Metrics) -> APIRouter:
    """GET /livez, /readyz and /metrics."""
    router = APIRouter(tags=["operation"])

    @router.get("/livez", operation_id="read_live", responses=shows(Live))
    async def read_live() -> Response:
        return json_response(Live(live=True))

    @router.get("/readyz", operation_id="read_ready", responses=shows(Ready))
    def read_ready() -> Response:
        if snapshots.book.stopped is not None:
            raise Problem(ServiceCode.STOPPED, "")
        if (reason := snapshots.book.paused) is not None:
            raise Problem(ServiceCode.PAUSED, reason)
        if (difference := snapshots.book.difference) is not None:
            # The caller may not see the row.
            raise Problem(ServiceCode.STOPPED, f"{difference.partition(' ')[0].removesuffix(':')}: {ROWS_DIFFER}")
        with snapshots.read() as facts:
            return json_response(Ready(entries=facts.size, ready=True))

    @router.get(
        "/metrics",
        operation_id="read_metrics",
        responses=shows_text(401, 403, description="The Prometheus text format"),
    )
    def read_metrics(_caller: Calling) -> Response:
        return Response(metrics.text(), headers={"cache-control": "no-store", "content-type": CONTENT_TYPE_LATEST})

    return router
