"""The OpenAPI document: every route named once, with its problems and its signature."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from api.access import PUBLIC
from api.schemas import command as command_schema
from client.paths import PATHS, PROBLEM_TYPE, SIGNATURE_HEADER
from ledger import canonical as c
from ledger.commands import Command, read_body
from tests.http.world import World

COMMITTED: Final = Path(__file__).parents[2] / "api" / "openapi.json"


@pytest.fixture
def operations(quiet: World) -> dict[tuple[str, str], dict[str, Any]]:
    """Each operation by method and path."""
    paths = quiet.http.get("/v1/openapi.json").json()["paths"]
    return {(method, path): what for path, methods in paths.items() for method, what in methods.items()}


def test_every_kind_has_its_path(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The client's table and the service's routes are one."""
    commands = {what["operationId"]: path for (_, path), what in operations.items() if "submit_" in what["operationId"]}
    assert commands == {f"submit_{kind}": path for kind, path in PATHS.items()}


def test_operation_ids_differ(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    """No two operations share an id."""
    names = [what["operationId"] for what in operations.values()]
    assert len(set(names)) == len(names)


def test_every_error_is_declared_as_a_problem(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    """405 and 500 everywhere, and every response from 400 on has the problem's type."""
    for what in operations.values():
        errors = {status: response for status, response in what["responses"].items() if status >= "400"}
        assert {"405", "500"} <= set(errors)
        assert all(list(response["content"]) == [PROBLEM_TYPE] for response in errors.values())


def test_a_token_is_asked_for_but_where_it_is_not(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Bearer everywhere but on what anybody may compare, with the problems that a wrong one gets."""
    free = {what["operationId"] for what in operations.values() if not what["security"]}
    assert free == PUBLIC - {"read_openapi"}
    for what in operations.values():
        assert what["security"] in ([], [{"token": []}])
        assert not what["security"] or {"401", "403"} <= set(what["responses"])


def test_whatever_moves_something_asks_for_a_signature(
    operations: dict[tuple[str, str], dict[str, Any]],
) -> None:
    """Every POST and PUT but what moves nothing, and a batch, whose every item has one."""
    unsigned = {
        path
        for (method, path), what in operations.items()
        if method != "get" and SIGNATURE_HEADER not in [item["name"] for item in what.get("parameters", [])]
    }
    assert unsigned == {
        "/v1/challenges",
        "/v1/charges/batch",
        "/v1/charges/{id}/progress",
        "/v1/merger-impacts",
        "/v1/plans",
        "/v1/policy-impacts",
    }


def test_the_document_is_the_committed_one(quiet: World) -> None:
    """Whoever changes an operation sees what changes for callers: ``python -m tests.http.write_openapi`` writes it."""
    assert quiet.http.get("/v1/openapi.json").json() == json.loads(COMMITTED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", PATHS)
def test_an_example_is_a_command(kind: str) -> None:
    """Its schema allows it, and so does the reader of commands."""
    schema = command_schema(kind)
    Draft202012Validator(schema).validate(schema["example"])
    read_body(Command.parse(c.dump(schema["example"])))


def test_the_page_needs_nothing_but_itself(quiet: World) -> None:
    """Every operation is on it, no address but our own, and its policy lets nothing else in."""
    page = quiet.http.get("/docs")
    assert all(name in page.text for name in ("submit_charge", "read_checkpoint", "stream_events"))
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert re.findall(r'(?:src|href)="([^"]*)"', page.text) == ["/v1/openapi.json"]
    assert "<script" not in page.text
