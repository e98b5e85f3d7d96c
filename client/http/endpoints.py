"""Paths and media types of the HTTP API, but the paths of commands, which their kinds name; ``api`` serves the same."""

from __future__ import annotations

from typing import Final

SIGNATURE_HEADER: Final = "x-jws-signature"
JSON_TYPE: Final = "application/json"
PROBLEM_TYPE: Final = "application/problem+json"

QUOTES: Final = "/v1/quotes"
DOCUMENTS: Final = "/v1/documents"
MODEL_KEYS: Final = "/v1/model-keys"
BATCH: Final = "/v1/charges/batch"
BATCH_MAX: Final = 64
