"""Every request to a service and its answer, recorded to hold the answers to the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl

import httpx

from tests.api.wire.conforming import UNBOUNDED, Document
from tests.factories.service import ServedWorld


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

    def __init__(self, world: ServedWorld, document: Document) -> None:
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
