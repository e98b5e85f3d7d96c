"""The documents people sign, read strictly and held against themselves.

Signatures are over the bytes as given, JSON or YAML. An unknown field is an error with its place, numbers are
exact strings, and what contradicts itself is :class:`~policy.checks.field_readers.Inconsistent`. ``schemas`` holds the
JSON Schema of each kind, which says the same as its reader.
"""

from policy.documents.contract import ContractDocument
from policy.documents.dataset import DatasetDescription, DatasetName, Recommendation
from policy.documents.policy import LEVEL_SEALED, Coalition, Policy
from policy.documents.run_bounds import MECHANISMS, RunBounds, RunLimits
from policy.documents.stream import StreamDocument

__all__ = [
    "LEVEL_SEALED",
    "MECHANISMS",
    "Coalition",
    "ContractDocument",
    "DatasetDescription",
    "DatasetName",
    "Policy",
    "Recommendation",
    "RunBounds",
    "RunLimits",
    "StreamDocument",
]
