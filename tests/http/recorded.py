"""What a service was asked and answered, kept for the examples of the OpenAPI document."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

import httpx

from tests.http.conforming import UNBOUNDED, Document, value_of
from tests.http.world import World

TEXT_MAX: Final = 2_000
"""Characters of a text that an example shows; the rest is left out."""

LISTS: Final = frozenset({"member"})
"""Parameters that may be given several times."""
NOT_SHOWN: Final = frozenset({"read_docs", "read_entry_bundle", "read_tile"})
"""Operations whose answer is no example: bytes that are no text, and the page that shows the others."""


@dataclass(frozen=True)
class Exchange:
    """One request and its answer."""

    operation: str
    parameters: dict[str, str]
    request: httpx.Request
    response: httpx.Response

    @property
    def status(self) -> str:
        """As the document names it."""
        return str(self.response.status_code)


class Recorder:
    """Keeps every exchange of a world with its service, in order."""

    def __init__(self, world: World, document: Document) -> None:
        """Listen from now on."""
        self._document = document
        self.exchanges: list[Exchange] = []
        for client in (world.http, world.service._http):  # noqa: SLF001 - the tests' own callers
            client.event_hooks["response"].append(self._keep)

    def _keep(self, response: httpx.Response) -> None:
        request = response.request
        asked = self._document.asked(request.method, request.url.path)
        if asked is None or asked[0] in UNBOUNDED:
            # A method that is not served is a problem too.
            asked = "", {}
        if not asked[0] and response.is_success:
            return
        response.read()
        query = dict(parse_qsl(request.url.query.decode()))
        known = {one["name"] for one in self._document.operations.get(asked[0], {}).get("parameters", [])}
        headers = {name: value for name, value in request.headers.items() if name in known}
        self.exchanges.append(Exchange(asked[0], {**asked[1], **query, **headers}, request, response))

    def keep_stream(self, operation: str, response: httpx.Response, data: bytes) -> None:
        """The beginning of an answer that does not end."""
        request, headers = response.request, response.headers
        known = {one["name"] for one in self._document.operations[operation]["parameters"]}
        asked = {**dict(parse_qsl(request.url.query.decode())), **request.headers}
        shown = {name: value for name, value in asked.items() if name in known}
        ended = httpx.Response(response.status_code, headers=headers, content=data, request=request)
        self.exchanges.append(Exchange(operation, shown, request, ended))

    def by_operation(self) -> dict[str, list[Exchange]]:
        """Answers that are no problems: of each operation, the ones that show most parameters first."""
        found: dict[str, list[Exchange]] = defaultdict(list)
        for one in sorted(self.exchanges, key=lambda one: -len(one.parameters)):
            if not one.response.is_error:
                found[one.operation].append(one)
        return found

    def examples(self) -> dict[str, Any]:
        """One of everything: by operation its parameters, its body and each status; and each problem by status."""
        told: dict[str, Any] = {name: _shown(these) for name, these in sorted(self.by_operation().items())}
        refused = [one for one in reversed(self.exchanges) if one.response.is_error]
        problems = {one.status: {"example": json.loads(one.response.content)} for one in refused}
        return {**told, "problems": dict(sorted(problems.items()))}


def _shown(exchanges: list[Exchange]) -> dict[str, Any]:
    parameters: dict[str, Any] = {name: told for one in reversed(exchanges) for name, told in one.parameters.items()}
    parameters |= {name: [parameters[name]] for name in LISTS & set(parameters)}
    first = exchanges[0]
    body = {"body": _told(first.request.headers.get("content-type", ""), first.request.content)}
    answers: dict[str, Any] = {}
    for one in exchanges:
        media_type = one.response.headers.get("content-type", "").partition(";")[0]
        if one.operation in NOT_SHOWN or one.status == "304":
            continue
        answers.setdefault(one.status, _cut(value_of(media_type, one.response)))
    return {**answers, **(body if first.request.content else {}), "parameters": dict(sorted(parameters.items()))}


def _told(media_type: str, data: bytes) -> Any:  # noqa: ANN401 - JSON
    return json.loads(data) if media_type == "application/json" else data.decode()


def _cut(value: Any) -> Any:  # noqa: ANN401 - JSON
    return value if not isinstance(value, str) or len(value) <= TEXT_MAX else f"{value[:TEXT_MAX]}..."
