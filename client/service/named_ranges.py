"""The partitions that a service shows, to resolve ranges that people name: ``claims[last 52]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledger.domain.range_names import Opened, OpenPartitions, with_ranges
from ledger.wire.malformed import Malformed

_CLOSED: Final = frozenset({"past_age", "retired", "without_policy"})
if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object


def open_partitions(service: Service) -> OpenPartitions:
    """Those that the caller may see, read when they are first needed. Reading raises: Refused, Unreachable."""
    return OpenPartitions(
        lambda: [
            Opened(str(partition["partition"]), int(str(partition["index"])), partition["state"] in _CLOSED)
            for partition in service.every_partition()
        ]
    )


def fix_ranges(body: Object, service: Service) -> Object:
    """A charge's body with the ranges among its partitions resolved. Raises: Malformed, Refused, Unreachable."""
    try:
        return with_ranges(body, open_partitions(service))
    except Malformed as error:
        raise error.under("body") from None
