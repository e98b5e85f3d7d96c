"""What may be asked of a service without signing or recording anything, and the lists that it answers page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import httpx

from client.http.endpoints import JSON_TYPE, PLANS
from client.http.transport import object_of, objects_of
from client.service.checkpoint_guard import CheckpointGuard
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

PAGE: Final = 200
PAGES_MAX: Final = 1_000
BYTES_TYPE: Final = "application/octet-stream"


class WhatIfQuestions:
    """The questions of planning, to one service by one caller."""

    _guard: CheckpointGuard

    def plan_report(self, body: c.Object, as_of: int | None = None, at: int | None = None) -> c.Object:
        """What a run would get, how much fits, and what would pass instead. Raises: Refused, Unreachable.

        Args:
            as_of: a size of the log: the state after so many entries, instead of the current one.
            at: the time to decide at, in Unix milliseconds, instead of that of the state.
        """
        query = "&".join(f"{name}={value}" for name, value in (("as_of", as_of), ("at", at)) if value is not None)
        return object_of(self._asked(f"{PLANS}?{query}" if query else PLANS, c.dump(body)))

    def smallest_coalitions(self, partition: str, epsilon: str = "") -> c.Object:
        """The fewest consumers that together would exceed a cap on a partition. Raises: Refused, Unreachable.

        Args:
            epsilon: the cap; the lineages' own if empty.
        """
        query = {"partition": partition, **({"epsilon": epsilon} if epsilon else {})}
        return self._get("/v1/smallest-coalitions", query)

    def open_partitions(self) -> tuple[str, ...]:
        """The references of all partitions that are not retired. Raises: Refused, Unreachable."""
        return tuple(str(one["partition"]) for one in self._list("/v1/partitions", {})[1] if not one.get("retired"))

    def frozen_accounts(self, partition: str) -> list[c.Object]:
        """The accounts of a partition that are over their cap. Raises: Refused, Unreachable."""
        return self._list("/v1/frozen-accounts", {"partition": partition})[1]

    def policy_impact(self, data: bytes) -> c.Object:
        """What publishing a policy would change; records nothing. Raises: Refused, Unreachable."""
        return object_of(self._asked("/v1/policy-impacts", data, BYTES_TYPE))

    def merger_impact(self, organisations: Sequence[str]) -> list[c.Object]:
        """The accounts that a merger would change; records nothing. Raises: Refused, Unreachable."""
        return self._listed("/v1/merger-impacts", c.dump({"organisations": [*organisations]}))

    def handover_impact(self, handover: c.Object) -> list[c.Object]:
        """The accounts that a transfer or a publication would change; records nothing. Raises: Refused, Unreachable."""
        return self._listed("/v1/handover-impacts", c.dump(handover))

    def cap_report(self, data: bytes) -> list[c.Object]:
        """What could run under the caps of a policy or a contract; records nothing. Raises: Refused, Unreachable."""
        return self._listed("/v1/cap-reports", data, BYTES_TYPE)

    def _listed(self, path: str, data: bytes, content_type: str = JSON_TYPE) -> list[c.Object]:
        return objects_of(object_of(self._asked(path, data, content_type)).get("items"))

    def _asked(self, path: str, data: bytes, content_type: str = JSON_TYPE) -> httpx.Response:
        return self._guard.send("POST", path, data, {"content-type": content_type})

    def _list(self, path: str, query: Mapping[str, str]) -> tuple[c.Object, list[c.Object]]:
        """What all items share, and the items of every page."""
        items: list[c.Object] = []
        parameters = {**query, "limit": str(PAGE)}
        for _ in range(PAGES_MAX):
            page = self._get(path, parameters)
            listed, cursor = page.pop("items", None), page.pop("next_cursor", None)
            items += objects_of(listed)
            if not isinstance(cursor, str):
                return page, items
            parameters["cursor"] = cursor
        raise Malformed("answer.next_cursor", f"leads beyond {PAGES_MAX} pages")

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> c.Object:
        return object_of(self._guard.send("GET", path, query=query))
