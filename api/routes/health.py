"""Routes for whoever runs the service: whether it lives, whether it is ready, and its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST

from api.auth.authentication import Calling
from api.http.json_schema import integer, record
from api.http.problems import Fault, Problem
from api.wire.responses import json_response, shows, shows_text

if TYPE_CHECKING:
    from api.http.snapshots import Moments
    from api.middleware.metrics import Metrics


def health_router(moments: Moments, metrics: Metrics) -> APIRouter:
    """GET /livez, /readyz and /metrics."""
    router = APIRouter(tags=["operation"])

    @router.get("/livez", operation_id="read_live", responses=shows(record({"live": {"const": True}})))
    async def read_live() -> Response:
        return json_response({"live": True})

    @router.get(
        "/readyz",
        operation_id="read_ready",
        responses=shows(record({"entries": integer("of the log"), "ready": {"const": True}})),
    )
    def read_ready() -> Response:
        if moments.book.stopped is not None:
            raise Problem(Fault.STOPPED, "")
        with moments.read() as facts:
            return json_response({"entries": facts.size, "ready": True})

    @router.get(
        "/metrics",
        operation_id="read_metrics",
        response_class=Response,
        responses=shows_text(401, 403, description="The Prometheus text format"),
    )
    def read_metrics(_caller: Calling) -> Response:
        return Response(metrics.text(), headers={"cache-control": "no-store", "content-type": CONTENT_TYPE_LATEST})

    return router
