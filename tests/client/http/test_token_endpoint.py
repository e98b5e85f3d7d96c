"""Where a machine sends its assertion, and by which name of the algorithm, as an issuer's metadata says."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI, Response

from api.server.http_server import LOOPBACK, base_url, listen, serving
from client.http.problems import Unreachable
from client.http.token_endpoint import resource_of, token_endpoint
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

ALGORITHMS = "token_endpoint_auth_signing_alg_values_supported"
ELSEWHERE = "https://login.example/realms/ledger/protocol/openid-connect/token"


def asked(said: dict[str, Any] | None) -> tuple[str, tuple[str, str, str]]:
    """The issuer's name and what is found there; None has no metadata, and a name of None is its own."""
    app, listener = FastAPI(), listen(LOOPBACK, 0)
    url = base_url(listener)
    if said is not None:

        @app.get("/.well-known/openid-configuration")
        def metadata() -> Response:
            return Response(c.dump({"issuer": url, "token_endpoint": ELSEWHERE, **said}))

    with serving(app, listener):
        return url, token_endpoint(url)


def test_the_metadata_say_where_and_how() -> None:
    """Ed25519 where the issuer knows the name or lists none; EdDSA where it knows that one alone."""
    for listed, algorithm in (
        ({}, "Ed25519"),
        ({ALGORITHMS: ["RS256", "EdDSA"]}, "EdDSA"),
        ({ALGORITHMS: ["EdDSA", "Ed25519"]}, "Ed25519"),
    ):
        url, found = asked(listed)
        assert found == (ELSEWHERE, url, algorithm)


def test_an_issuer_without_metadata_has_its_endpoint_under_its_name() -> None:
    """As before there was any."""
    url, found = asked(None)
    assert found == (f"{url}/token", f"{url}/token", "Ed25519")


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"issuer": "https://other.example"}, "metadata.issuer"),
        ({"issuer": None}, "metadata.issuer"),
        ({"token_endpoint": "http://login.example/token"}, "metadata.token_endpoint"),
        ({"token_endpoint": None}, "metadata.token_endpoint"),
    ],
)
def test_metadata_of_another_and_open_endpoints_are_refused(said: dict[str, Any], field: str) -> None:
    """An assertion goes to no one else, and nowhere where it can be read."""
    with pytest.raises(Malformed) as caught:
        asked(said)
    assert caught.value.field == field


@pytest.mark.parametrize("url", ["\0", "login.example", "ftp://login.example", "https://[::1"])
def test_an_issuer_that_is_no_url_is_named(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(Malformed, match=r"^issuer: must be an http or https URL"):
        token_endpoint(url)


def test_an_issuer_that_does_not_answer_is_unreachable() -> None:
    """Nobody listens."""
    with listen(LOOPBACK, 0) as closed:
        url = base_url(closed)
    with pytest.raises(Unreachable):
        token_endpoint(url)


def test_a_resource_is_an_absolute_uri_or_not_said() -> None:
    """RFC 8707: strict issuers refuse any other."""
    assert resource_of("epsilon.example/ledger") == {}
    assert resource_of("https://epsilon.example/ledger") == {"resource": "https://epsilon.example/ledger"}
    assert resource_of("urn:epsilon:ledger") == {"resource": "urn:epsilon:ledger"}
