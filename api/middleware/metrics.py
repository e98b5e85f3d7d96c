"""Prometheus metrics for operators: how many requests there are and how they end, without any user's data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """One service's; labels are operations and statuses alone, of which there are few.

    Attributes:
        in_flight: requests that are being answered, counted by who answers them.
    """

    def __init__(self, size: Callable[[], int], streams: Callable[[], int]) -> None:
        """``size`` gives the number of entries of the log, ``streams`` that of open event streams."""
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "epsilon_requests", "Requests answered", ("operation", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "epsilon_request_seconds",
            "Seconds until a request was answered",
            ("operation",),
            registry=self._registry,
            buckets=_BUCKETS_S,
        )
        self.bad_signatures = Counter(
            "epsilon_bad_signatures", "Signatures that did not verify", registry=self._registry
        )
        self.in_flight = 0
        Gauge("epsilon_requests_in_flight", "Requests being answered", registry=self._registry).set_function(
            lambda: self.in_flight
        )
        self._series: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        Gauge("epsilon_log_entries", "Entries of the log", registry=self._registry).set_function(size)
        Gauge("epsilon_event_streams", "Event streams that are open", registry=self._registry).set_function(streams)

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count one request."""
        series = self._series.get((operation, status))
        if series is None:
            series = self._requests.labels(operation, str(status)), self._seconds.labels(operation)
            self._series[operation, status] = series
        requests, took = series
        requests.inc()
        took.observe(seconds)

    def text(self) -> bytes:
        """The exposition format, version 0.0.4."""
        return generate_latest(self._registry)
