"""A cache between the service and its callers shows nobody what the service would not."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from api.server.http_server import serving
from tests.api.http.shared_cache import cached, direct
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld

STRANGER = "did:web:bank-b.example"


def _paths(world: ServedWorld) -> list[str]:
    """What is read of a log: every entry, tiles of entries and of hashes, documents, and what answers under a tag."""
    size = world.size
    entries = [f"/v1/entries/{index}" for index in range(size)]
    tiles = [f"/tile/entries/000.p/{size}", f"/tile/0/000.p/{size}"]
    documents = [f"/v1/documents/{world.contract}", f"/v1/documents/{world.contract}?entry=run-1"]
    resources = ["/v1/charges/run-1", "/v1/decisions/run-1", "/v1/receipts/run-1", "/v1/policies/health", "/v1/charges"]
    public = ["/v1/checkpoint", "/v1/log", f"/v1/consistency/1?new={size}"]
    return [*entries, *tiles, *documents, *resources, f"/v1/accounts?partition={PARTITION}", *public]


def test_a_shared_cache_gives_nobody_what_another_was_shown(world: ServedWorld, room: CleanRoom) -> None:
    """The SRO reads everything through it; then each caller gets what the service itself answers it."""
    world.register(STRANGER, "TDC", CleanRoom().signer)
    shown = [world.everybody.shown(did) for did in (SRO, HOSPITAL, BANK_A, STRANGER)]
    callers = [*shown, world.everybody.shown_by(room.signer), {}]
    paths = _paths(world)
    with cached(world.url) as (cache, behind), direct(world.url) as client:
        assert {behind.get(path, headers=callers[0]).status_code for path in paths} == {200}
        refused = 0
        for headers in callers[1:]:
            for path in paths:
                through, right = behind.get(path, headers=headers), client.get(path, headers=headers)
                assert (through.status_code, through.content) == (right.status_code, right.content), path
                refused += right.status_code in {401, 403, 404}
        assert refused > len(paths)
        hashes = f"/tile/0/000.p/{world.size}"
        assert cache.upstream.count(hashes) == 1


def test_tiles_of_hashes_are_public_and_all_else_is_not(world: ServedWorld, room: CleanRoom) -> None:
    """Whatever needs a token is private or not stored, and varies with the token; so are its refusals."""
    del room
    shown, to_all = world.everybody.shown(SRO), ("/v1/checkpoint", "/v1/log", "/v1/consistency")
    with direct(world.url) as client:
        asked = [(path, client.get(path, headers=token)) for path in _paths(world) for token in (shown, {})]
    for path, answer in asked:
        cache, is_hashes = answer.headers["cache-control"], path.startswith("/tile/0/")
        assert (cache == "public, immutable, max-age=31536000") is is_hashes
        assert is_hashes or cache.startswith(("private", "no-"))
        assert answer.headers.get("vary") == (None if is_hashes or path.startswith(to_all) else "authorization")
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize(
    ("headers", "leaks"),
    [
        ({"cache-control": "public, max-age=60"}, True),
        ({"cache-control": "max-age=60"}, False),
        ({"cache-control": "private, max-age=60"}, False),
        ({"cache-control": "public, max-age=60", "vary": "authorization"}, False),
        ({"cache-control": "no-store"}, False),
        ({"cache-control": "public, no-cache", "etag": '"a"'}, False),
    ],
)
def test_the_cache_of_these_tests_leaks_what_it_may(headers: dict[str, str], leaks: bool) -> None:  # noqa: FBT001 - a table's column
    """Its rules are those of RFC 9111: a careless service is found out by it."""
    app = FastAPI(openapi_url=None)

    @app.get("/secret")
    def secret() -> PlainTextResponse:
        return PlainTextResponse("secret", headers=headers)

    with serving(app) as url, cached(url) as (cache, client):
        for token in ("one", "two"):
            client.get("/secret", headers={"authorization": token})
        assert cache.upstream.count("/secret") == (1 if leaks else 2)
