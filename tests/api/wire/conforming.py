"""Every answer against the OpenAPI document: its status, its type and its form have to be told there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import httpx
from jsonschema import Draft202012Validator

from client.http.endpoints import PROBLEM_TYPE
from tests.api.wire.openapi_build import document_bytes

UNBOUNDED: Final = frozenset({"stream_events"})
"""Operations whose answer does not end, so nothing waits for its end."""
_WITH_SLASHES: Final = frozenset({"path", "ref"})


class Document:
    """What a service says of itself."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        """The parsed document."""
        self.told = told
        self.operations: dict[str, dict[str, Any]] = {}
        self._routes: list[tuple[str, re.Pattern[str], str]] = []
        # A path that spells out more comes before one that leaves more open.
        for path in sorted(told["paths"], key=lambda one: (one.count("{"), -len(one))):
            for method, operation in told["paths"][path].items():
                self._routes.append((method.upper(), _pattern(path), operation["operationId"]))
                self.operations[operation["operationId"]] = operation

    def asked(self, method: str, path: str) -> tuple[str, dict[str, str]] | None:
        """The operation that a request is for, and what its path names; None where it is for none."""
        found = ((name, known.fullmatch(path)) for verb, known, name in self._routes if verb == method)
        return next(((name, match.groupdict()) for name, match in found if match), None)

    def answer(self, operation: str, status: int) -> dict[str, Any]:
        """What the document tells of one status. Raises: AssertionError, if nothing."""
        told = self.operations[operation]["responses"]
        assert str(status) in told, f"{operation} answered {status}, which the document does not tell"
        return self._resolved(told[str(status)])

    def _resolved(self, told: dict[str, Any]) -> dict[str, Any]:
        known: Any = told
        if "$ref" in told:
            known = self.told
            for part in told["$ref"].removeprefix("#/").split("/"):
                known = known[part]
        return dict(known)

    def form(self, schema: dict[str, Any]) -> Draft202012Validator:
        """Checks values against a form of the document."""
        return Draft202012Validator({**schema, "components": self.told["components"]})

    @cache  # noqa: B019 - as many as operations have statuses
    def _forms(self, operation: str, status: int) -> dict[str, Draft202012Validator]:
        content = self.answer(operation, status).get("content", {})
        return {media_type: self.form(told["schema"]) for media_type, told in content.items()}

    def check(self, response: httpx.Response) -> None:
        """Raises: AssertionError, or jsonschema's ValidationError, unless the answer is one that the document tells."""
        request = response.request
        asked = self.asked(request.method, request.url.path)
        if asked is None or asked[0] in UNBOUNDED:
            return
        forms = self._forms(asked[0], response.status_code)
        if not forms:
            assert not response.content
            return
        media_type = response.headers["content-type"].partition(";")[0]
        assert media_type in forms, f"{asked[0]} answered in {media_type}, which the document does not tell"
        value = value_of(media_type, response)
        forms[media_type].validate(value)
        check_links(value, response, deprecated=self.operations[asked[0]].get("deprecated", False))
        if media_type == PROBLEM_TYPE:
            check_problem(value, response, self.answer(asked[0], response.status_code)["description"])


def check_links(value: object, response: httpx.Response, *, deprecated: bool) -> None:
    """Raises: AssertionError, unless headers say what the versions page promises: of a next page, of a deprecation."""
    link = response.headers.get("link", "")
    cursor = value.get("next_cursor") if isinstance(value, dict) else None
    assert ('rel="next"' in link) == (cursor is not None), f"{response.request.url}: link is {link!r}"
    assert cursor is None or f"cursor={cursor}" in link
    if deprecated:
        assert {"deprecation", "sunset"} <= response.headers.keys()
        assert 'rel="deprecation"' in link


def check_problem(problem: dict[str, Any], response: httpx.Response, described: str) -> None:
    """Raises: AssertionError, unless a problem is flat, and its code is one that the document tells of its status."""
    nested = [name for name, value in problem.items() if isinstance(value, dict)]
    assert not nested, f"members of the problem are objects: {nested}"
    for one in (*problem["reasons"], *problem.get("remaining", ())):
        assert all(isinstance(value, str) for value in one.values()), one
    assert problem["status"] == response.status_code
    assert f"`{problem['code']}`:" in described, f"{problem['code']} is not told of {response.status_code}"


def value_of(media_type: str, response: httpx.Response) -> Any:  # noqa: ANN401 - JSON
    """A body, as a form describes it: JSON as its value, a text as itself, bytes as nothing but a string."""
    if media_type.endswith("json"):
        return json.loads(response.content)
    return response.content.decode("utf-8", "replace")


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", path)
    named = (f"(?P<{name}>{'.+' if name in _WITH_SLASHES else '[^/]+'})" for name in parts[1::2])
    return re.compile("".join(re.escape(text) + next(named, "") for text in parts[::2]))


@cache
def committed() -> Document:
    """The document whose digest is checked in."""
    return Document(json.loads(document_bytes()))


def conforms(response: httpx.Response) -> None:
    """A hook of httpx's: every answer that a test gets is held against the document."""
    asked = committed().asked(response.request.method, response.request.url.path)
    if asked is not None and asked[0] not in UNBOUNDED:
        response.read()
        committed().check(response)
