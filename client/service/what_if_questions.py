"""Planning requests, which sign and record nothing, and the lists that a service answers page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import httpx

from client.http.endpoints import BYTES_TYPE, JSON_TYPE, PLANS
from client.http.transport import object_of, objects_of
from client.service.checkpoint_guard import CheckpointGuard
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

PAGE: Final = 200
PAGES_MAX: Final = 1_000


class WhatIfQuestions:
    """The questions of planning, to one service by one caller."""

    _guard: CheckpointGuard

    def plan_report(  # noqa: PLR0913 - each of the request
        self,
        body: c.Object,
        as_of: int | None = None,
        at: int | None = None,
        days: int | None = None,
        policy: str = "",
        *,
        search: bool = True,
    ) -> c.Object:
        """What a run would get, how much fits, and what would pass instead. Raises: Refused, Unreachable.

        Args:
            as_of: a size of the log: the state after so many entries, instead of the current one.
            at: the time to decide at, in Unix milliseconds, instead of that of the state.
            days: how many past days of charges make the rate; 30 if not given.
            policy: the text of a policy, JSON or YAML, to decide under instead of those in force.
            search: whether to look for the most steps and the least noise, of a run that would be admitted.
        """
        question: c.Object = {**body, "policy": policy} if policy else body
        path = _with(PLANS, as_of=as_of, at=at, days=days, search=None if search else "false")
        return object_of(self._post(path, c.dump(question)))

    def smallest_coalitions(self, partition: str, epsilon: str = "", at: int | None = None) -> c.Object:
        """The fewest consumers that together would exceed a cap on a partition. Raises: Refused, Unreachable.

        Args:
            epsilon: the cap; the lineages' own if empty.
        """
        query = {"partition": partition, **({"epsilon": epsilon} if epsilon else {}), **_at(at)}
        return self._get("/v1/smallest-coalitions", query)

    def open_partitions(self) -> tuple[str, ...]:
        """The references of all partitions that are not retired. Raises: Refused, Unreachable."""
        return tuple(
            str(partition["partition"])
            for partition in self._list("/v1/partitions", {})[1]
            if not partition.get("retired")
        )

    def frozen_accounts(self, partition: str, at: int | None = None) -> list[c.Object]:
        """The accounts of a partition that are over their cap, at a time (ms). Raises: Refused, Unreachable."""
        return self._list("/v1/frozen-accounts", {"partition": partition, **_at(at)})[1]

    def policy_impact(self, data: bytes, at: int | None = None) -> c.Object:
        """What publishing a policy would change, at a time (ms); records nothing. Raises: Refused, Unreachable."""
        return object_of(self._post(_with("/v1/policy-impacts", at=at), data, BYTES_TYPE))

    def merger_impact(self, organisations: Sequence[str], at: int | None = None) -> list[c.Object]:
        """The accounts that a merger would change, at a time (ms); records nothing. Raises: Refused, Unreachable."""
        return self._post_for_items(_with("/v1/merger-impacts", at=at), c.dump({"organisations": [*organisations]}))

    def handover_impact(self, handover: c.Object, at: int | None = None) -> list[c.Object]:
        """The accounts that a transfer or a publication would change, at a time (ms). Raises: Refused, Unreachable."""
        return self._post_for_items(_with("/v1/handover-impacts", at=at), c.dump(handover))

    def cap_report(self, data: bytes) -> list[c.Object]:
        """What could run under the caps of a policy or a contract; records nothing. Raises: Refused, Unreachable."""
        return self._post_for_items("/v1/cap-reports", data, BYTES_TYPE)

    def _post_for_items(self, path: str, data: bytes, content_type: str = JSON_TYPE) -> list[c.Object]:
        return objects_of(object_of(self._post(path, data, content_type)).get("items"))

    def _post(self, path: str, data: bytes, content_type: str = JSON_TYPE) -> httpx.Response:
        return self._guard.send("POST", path, data, lambda: {"content-type": content_type})

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


def _with(path: str, **parameters: int | str | None) -> str:
    """A path with the parameters that are given."""
    query = "&".join(f"{name}={value}" for name, value in parameters.items() if value is not None)
    return f"{path}?{query}" if query else path


def _at(at: int | None) -> dict[str, str]:
    return {} if at is None else {"at": str(at)}
