"""Paths and media types of the HTTP API; ``api`` serves the same, so the two cannot drift apart."""

from __future__ import annotations

from typing import Final

from ledger.commands.registry import CLIENT_KINDS

SIGNATURE_HEADER: Final = "x-jws-signature"
JSON_TYPE: Final = "application/json"
PROBLEM_TYPE: Final = "application/problem+json"

QUOTES: Final = "/v1/quotes"
DOCUMENTS: Final = "/v1/documents"
MODEL_KEYS: Final = "/v1/model-keys"
BATCH: Final = "/v1/charges/batch"
BATCH_MAX: Final = 64
PATHS: Final = {name: kind.path for name, kind in CLIENT_KINDS.items()}
"""By kind of command."""
