"""The documents that people sign, read strictly and checked for consistency.

Signatures are over the bytes as given, JSON or YAML. An unknown field is an error with its place, numbers are
exact strings, and a contradiction raises :class:`~policy.checks.field_readers.Inconsistent`. ``schemas`` holds the
JSON Schema of each kind, which agrees with its reader.
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
