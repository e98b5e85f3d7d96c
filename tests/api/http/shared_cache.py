"""A shared HTTP cache in front of a service: it stores and serves all that RFC 9111 allows, and nothing else.

It is as greedy as the rules permit, so what it never gives to the wrong caller no cache that keeps them does. What it
must ask again it asks in the name of who asks. It caches GET alone, and only answers with a lifetime or a tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final, NamedTuple

import httpx
from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from api.server.http_server import serving

_HOP: Final = frozenset({"connection", "content-length", "date", "host", "keep-alive", "transfer-encoding"})
_SHARED: Final = frozenset({"public", "must-revalidate", "s-maxage"})
"""With one of these an answer to a request with a token may be stored (section 3.5)."""


class Stored(NamedTuple):
    """One answer, and the headers of its request that it varies with."""

    asked: dict[str, str | None]
    answer: httpx.Response

    def fits(self, request: httpx.Headers) -> bool:
        """Whether it may answer this request (section 4.1)."""
        return all(request.get(name) == value for name, value in self.asked.items())


class SharedCache:
    """An ASGI application; ``upstream`` counts the requests that went to the service by path."""

    def __init__(self, service: str) -> None:
        """Empty, in front of the service at a URL."""
        self._client = httpx.Client(base_url=service, trust_env=False, timeout=60, verify=False)  # noqa: S501 - no TLS here
        self._stored: dict[str, list[Stored]] = {}
        self.upstream: list[str] = []

    def close(self) -> None:
        """End its connections."""
        self._client.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one GET."""
        del receive
        target = scope["raw_path"].decode() + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        headers = httpx.Headers([(k, v) for k, v in scope["headers"] if k.decode() not in _HOP])
        answer = await run_sync(self._answer, target, headers)
        kept = [(k.encode(), v.encode()) for k, v in answer.headers.multi_items() if k not in _HOP]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
        await send({"type": "http.response.body", "body": answer.content})

    def _answer(self, target: str, headers: httpx.Headers) -> httpx.Response:
        found = next((one.answer for one in self._stored.get(target, ()) if one.fits(headers)), None)
        if found is not None and _is_fresh(found):
            return found
        self.upstream.append(target)
        asked = headers.copy()
        if found is not None:
            asked["if-none-match"] = found.headers["etag"]
        answer = self._client.get(target, headers=asked)
        if found is not None and answer.status_code == httpx.codes.NOT_MODIFIED:
            return found
        if _may_store(headers, answer):
            names = [one.strip().lower() for one in answer.headers.get("vary", "").split(",") if one.strip()]
            self._stored.setdefault(target, []).insert(0, Stored({one: headers.get(one) for one in names}, answer))
        return answer


def _directives(answer: httpx.Response) -> dict[str, str]:
    """Of the header cache-control."""
    listed = [one.strip().lower().partition("=") for one in answer.headers.get("cache-control", "").split(",")]
    return {name: value for name, _, value in listed if name}


def _is_fresh(answer: httpx.Response) -> bool:
    """For as long as a test runs: a lifetime has seconds, and is not undone by no-cache (sections 4.2 and 5.2.2)."""
    known = _directives(answer)
    lifetime = known.get("s-maxage", known.get("max-age", "0"))
    return "no-cache" not in known and re.fullmatch(r"[1-9][0-9]*", lifetime) is not None


def _may_store(request: httpx.Headers, answer: httpx.Response) -> bool:
    """Section 3, for a shared cache."""
    known = _directives(answer)
    if "no-store" in known or "private" in known or answer.headers.get("vary") == "*":
        return False
    if "authorization" in request and not _SHARED & known.keys():
        return False
    return _is_fresh(answer) or "etag" in answer.headers


def direct(url: str) -> httpx.Client:
    """A client without a cache."""
    # Over plain HTTP no authority's certificate is read, which takes longer than all requests.
    return httpx.Client(base_url=url, trust_env=False, timeout=60, verify=False)  # noqa: S501 - no TLS here


@contextmanager
def cached(url: str) -> Iterator[tuple[SharedCache, httpx.Client]]:
    """A cache in front of the service at a URL, and a client of it."""
    cache = SharedCache(url)
    app = FastAPI(openapi_url=None)
    app.mount("/", cache)
    with closing(cache), serving(app) as door, direct(door) as client:
        yield cache, client
