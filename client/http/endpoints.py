"""Where each kind of command is sent; ``api`` serves the same table, so the two cannot drift apart."""

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
PATHS: Final = {
    "organisation": "/v1/organisations",
    "policy": "/v1/policies",
    "dataset": "/v1/datasets",
    "partition": "/v1/partitions",
    "retirement": "/v1/retirements",
    "contract": "/v1/contracts",
    "charge": "/v1/charges",
    "key_release": "/v1/key-releases",
    "post": "/v1/posts",
    "void": "/v1/voids",
    "model_release": "/v1/model-releases",
    "recommendation": "/v1/recommendations",
    "revocation": "/v1/revocations",
    "decree": "/v1/decrees",
    "release_notice": "/v1/release-notices",
    "model_opening": "/v1/model-openings",
    "merger": "/v1/mergers",
    "acquisition": "/v1/acquisitions",
    "collusion": "/v1/collusions",
    "split": "/v1/splits",
    "transfer": "/v1/transfers",
    "publication": "/v1/publications",
    "coalition": "/v1/coalitions",
}
"""By kind. The book lapses charges by itself, so a lapse has no path."""
