"""Paths and media types of the HTTP API, but the paths of commands, which their kinds name; ``api`` serves the same."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote as percent_encode

SIGNATURE_HEADER: Final = "x-jws-signature"
JSON_TYPE: Final = "application/json"
BYTES_TYPE: Final = "application/octet-stream"
PROBLEM_TYPE: Final = "application/problem+json"

QUOTES: Final = "/v1/quotes"
PLANS: Final = "/v1/plans"
DOCUMENTS: Final = "/v1/documents"
PROPOSALS: Final = "/v1/contract-proposals"
MODEL_KEYS: Final = "/v1/model-keys"
BATCH: Final = "/v1/charges/batch"
WATERMARK_SEARCHES: Final = "/v1/watermark-searches"
BATCH_MAX: Final = 64


def path_of(name: str) -> str:
    """A name as it is written in a path."""
    # A DID may hold a percent sign, which the service must get back as one.
    return percent_encode(name, safe="/:")
