"""The OpenAPI document: every route named once, with its problems and its signature."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest

from api.auth.authorisation import PUBLIC
from api.routes.docs_page import ASSETS
from api.wire.openapi_examples import packaged_json
from client.http.endpoints import JSON_TYPE, PROBLEM_TYPE, SIGNATURE_HEADER
from ledger.commands.registry import PATHS, read_command
from ledger.wire import canonical_json as c
from tests.api.wire.conforming import committed
from tests.api.wire.openapi_build import DIGEST, digest_line, pretty
from tests.api.wire.tour import Tour
from tests.factories.service import ServedWorld, open_world

OPERATIONS: Final = sorted(committed().operations)
UNVERSIONED: Final = frozenset(
    {"read_docs", "read_docs_file", "read_live", "read_metrics", "read_ready", "read_tile", "read_entry_bundle"}
)
"""Operations at paths that others fix: of people, of operators, and of tlog-tiles."""
NOT_SHOWN: Final = frozenset({"read_docs", "read_docs_file", "read_entry_bundle", "read_tile"})
"""Operations whose answer has no example: bytes that are no text, and the page that shows the other examples."""


@pytest.fixture
def operations(quiet: ServedWorld) -> dict[tuple[str, str], dict[str, Any]]:
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
    document = committed()
    for what in operations.values():
        errors = [int(status) for status in what["responses"] if status >= "400"]
        assert {405, 500, 503} <= set(errors)
        for status in errors:
            told = document.answer(what["operationId"], status)
            assert list(told["content"]) == [PROBLEM_TYPE]
            assert told["content"][PROBLEM_TYPE]["example"]["status"] == status


def test_a_token_is_requested_but_where_it_is_not(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
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
        "/v1/cap-reports",
        "/v1/challenges",
        "/v1/charges/batch",
        "/v1/charges/{id}/progress",
        "/v1/handover-impacts",
        "/v1/merger-impacts",
        "/v1/plans",
        "/v1/policy-impacts",
        "/v1/watermark-searches",
    }


def test_the_document_has_the_digest_that_is_checked_in(quiet: ServedWorld) -> None:
    """Whoever changes an operation sees what changes for callers: ``make openapi`` writes document and digest."""
    served = quiet.http.get("/v1/openapi.json").json()
    assert digest_line(pretty(served)) == DIGEST.read_text(encoding="ascii")


@pytest.mark.parametrize("kind", PATHS)
def test_an_example_is_a_command(kind: str) -> None:
    """The reader of commands takes it, and reads of its body all that the form has."""
    content = committed().operations[f"submit_{kind}"]["requestBody"]["content"][JSON_TYPE]
    assert read_command(c.dump(content["example"])).command.kind == kind


def _shown(operation: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each example of an operation, with where it is and the form it is of; None where there is none."""
    what = committed().operations[operation]
    for one in what.get("parameters", []):
        yield one["name"], one["schema"], one.get("example")
    answers = {status: committed().answer(operation, int(status)) for status in what["responses"]}
    for where, told in {"body": what.get("requestBody", {}), **answers}.items():
        for content in told.get("content", {}).values():
            yield where, content["schema"], content.get("example")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_examples_are_of_their_forms(operation: str) -> None:
    """Every parameter, body, answer and problem has one, and its form allows it."""
    for where, schema, example in _shown(operation):
        if operation in NOT_SHOWN and where == "200":
            continue
        assert example is not None, where
        committed().form(schema).validate(example)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_are_in_words_and_answers_have_forms(operation: str) -> None:
    """A summary, a sentence, a description of every parameter; a form of its own for every body and answer."""
    what = committed().operations[operation]
    assert what["summary"] != operation
    assert what["description"].endswith(".")
    assert all(one["description"] for one in what.get("parameters", []))
    assert all(schema for _, schema, _ in _shown(operation))


def test_texts_and_example_values_are_of_operations() -> None:
    """A text or a value for an operation, a problem or a field that no longer exists is dropped."""
    texts, values = packaged_json("operation_texts.json"), packaged_json("example_values.json")
    assert sorted(texts["operations"]) == OPERATIONS
    assert {tag for what in committed().operations.values() for tag in what["tags"]} == set(texts["tags"])
    assert set(values["operations"]) <= set(OPERATIONS)
    responses = committed().told["components"]["responses"]
    assert {f"Problem{status}" for status in values["problems"]} <= set(responses)
    shown = {
        name for operation in OPERATIONS for where, _, example in _shown(operation) for name in _names(where, example)
    }
    assert set(values["fields"]) <= shown


def _names(where: str, example: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """The name of a parameter, and of every field of a body or an answer."""
    yield where
    if isinstance(example, dict):
        yield from example
        for value in example.values():
            yield from _names("", value)
    elif isinstance(example, list):
        for value in example:
            yield from _names("", value)


def test_forms_of_objects_are_closed() -> None:
    """No field but those that are named; what may hold anything is listed here."""
    found = [*_open(committed().told["components"]["schemas"], "")]
    assert found == [".Decision.properties.request", ".EntryBody.properties.request"]


def _open(form: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(form, list):
        for one in form:
            yield from _open(one, where)
    elif isinstance(form, dict):
        if form.get("type") == "object" and "additionalProperties" not in form:
            yield where
        for name, one in form.items():
            yield from _open(one, f"{where}.{name}")


@pytest.fixture(scope="module")
def toured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    """A service that was asked everything; each answer was held to the document as it came."""
    with open_world(tmp_path_factory.mktemp("toured")) as world:
        tour = Tour(world)
        tour.go()
        yield tour


def test_every_operation_answers_as_it_says(toured: Tour) -> None:
    """On its good path; commands with both statuses, and whatever has a tag with 304 too."""
    answered: dict[str, set[str]] = {name: set() for name in OPERATIONS}
    for one in toured.recorder.exchanges:
        if not one.response.is_error:
            committed().check(one.response)
            answered[one.operation].add(one.status)
    told = {name: {one for one in what["responses"] if one < "400"} for name, what in committed().operations.items()}
    assert answered == told


TIMES: Final = frozenset(
    {
        "at",
        "closes",
        "deadline",
        "effective",
        "ends",
        "expires",
        "not_after",
        "opened",
        "projected_until",
        "rate_since",
        "room_until",
        "since",
        "starts",
        "time",
        "until",
    }
)
"""The names of all members and parameters that are times."""
WRITTEN: Final = "2026-12-01T00:00:00Z"


def _forms(form: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ANN401 - JSON
    """Each form that is told, alternatives too, by the name of the member or the parameter that has it."""
    if isinstance(form, list):
        for one in form:
            yield from _forms(one, name)
    elif isinstance(form, dict):
        if "type" in form and isinstance(form["type"], str):
            yield name, form
        for field, one in form.get("properties", {}).items():
            yield from _forms(one, field)
        inner = form.get("name", name) if "schema" in form else name
        for key, one in form.items():
            if key not in {"properties", "example", "examples"}:
                yield from _forms(one, inner if key in {"schema", "anyOf", "oneOf", "items"} else "")


def test_every_time_is_reported_in_milliseconds() -> None:
    """A number, whatever it is of: no form of a text is that of a time, and what is in milliseconds is listed here."""
    found, said = {name: set[str]() for name in TIMES}, set[str]()
    for name, form in _forms({part: committed().told[part] for part in ("components", "paths")}):
        if name in TIMES:
            found[name].add(form["type"])
        if "Unix milliseconds" in form.get("description", ""):
            assert form["type"] == "integer"
            said.add(name)
        assert form.get("format") != "date-time", name
        assert "pattern" not in form or not re.search(form["pattern"], WRITTEN), name
    assert {name: types - {"null"} for name, types in found.items()} == {name: {"integer"} for name in TIMES}
    assert said <= TIMES


def test_no_answer_writes_a_time_out(toured: Tour) -> None:
    """None but what a policy's own date would become, as the page of versions says."""
    written = {
        (one.operation, name)
        for one in toured.recorder.exchanges
        if one.response.headers.get("content-type", "").startswith("application/json")
        for name in _written(one.response.json())
    }
    assert written == {("ask_policy_impact", "after"), ("ask_policy_impact", "before")}
    page = (Path(__file__).parents[3] / "docs" / "api_versions.md").read_text("utf-8")
    assert "`effective` is RFC 3339 there" in " ".join(page.split())


def _written(value: Any, name: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        for field, one in value.items():
            yield from _written(one, field)
    elif isinstance(value, list):
        for one in value:
            yield from _written(one, name)
    elif isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d([T ].*)?", value):
        yield name


class Page(HTMLParser):
    """What is opened is closed, in order; its text, its anchors and where it points to are kept."""

    def __init__(self, text: str) -> None:
        """Read it. Raises: AssertionError, if it is not well formed."""
        super().__init__()
        self._open: list[str] = []
        self.anchors: list[str] = []
        self.addresses: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open one."""
        self._open += [] if tag in {"meta", "link"} else [tag]
        for name, value in attrs:
            assert not name.startswith("on")
            self.anchors += [str(value)] if name == "id" else []
            self.addresses += [str(value)] if name in {"href", "src"} else []

    def handle_endtag(self, tag: str) -> None:
        """Close the last one."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text between them."""
        self.words += data


def test_what_the_page_of_versions_says_holds_of_every_operation(
    operations: dict[tuple[str, str], dict[str, Any]],
) -> None:
    """Its path has the version, a list declares its link, a quota may refuse it, and nothing is deprecated."""
    for (_, path), what in operations.items():
        assert path.startswith("/v1/") or what["operationId"] in UNVERSIONED, path
        assert "429" in what["responses"], path
        content = what["responses"].get("200", {}).get("content", {}).get(JSON_TYPE, {"schema": {}})
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        form = committed().told["components"]["schemas"].get(name, content["schema"])
        listed = "next_cursor" in form.get("properties", {})
        paged = listed and any(one["name"] == "cursor" for one in what.get("parameters", ()))
        assert paged == ("link" in what["responses"].get("200", {}).get("headers", {})), path
        assert not what.get("deprecated"), "then the page of versions names it"
    page = (Path(__file__).parents[3] / "docs" / "api_versions.md").read_text("utf-8")
    assert "No operation is deprecated today." in " ".join(page.split())


VIEWER: Final = Path(__file__).parents[3] / "api" / "routes" / "viewer"


def test_the_page_needs_nothing_but_what_the_service_brings(quiet: ServedWorld) -> None:
    """No script and no style of its own in it; each address is one that answers, by its type, under the same policy."""
    answer = quiet.http.get("/docs")
    page = Page(answer.text)
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert "<style" not in answer.text
    assert not re.search(r"<script(?! src=)|\son[a-z]+=|\sstyle=", answer.text)
    assert {one.removeprefix("docs/") for one in page.addresses} == {*ASSETS, "v1/openapi.json"}
    for address in page.addresses:
        found = quiet.http.get(f"/{address}")
        assert found.status_code == 200
        if name := address.partition("docs/")[2]:
            assert found.headers["content-type"].partition(";")[0] == ASSETS[name]
            assert found.headers["content-security-policy"] == answer.headers["content-security-policy"]
    for hidden in ("page.html", "vendored.json", "..%2f..%2fapp.py", "LICENSE"):
        assert quiet.http.get(f"/docs/{hidden}").status_code == 404


def test_the_viewer_is_as_its_makers_published_it() -> None:
    """Every file of it has the digest that was recorded when it was brought; beside it lie only our own."""
    recorded = json.loads((VIEWER / "vendored.json").read_bytes())
    assert (recorded["package"], recorded["licence"]) == ("swagger-ui-dist", "Apache-2.0")
    for name, digest in recorded["files"].items():
        assert sha256((VIEWER / name).read_bytes()).hexdigest() == digest, name
    own = {"page.html", "start.js", "vendored.json"}
    assert {one.name for one in VIEWER.iterdir()} == {*recorded["files"], *own}
    assert recorded["version"] in (VIEWER / "swagger-ui-bundle.js").read_text("utf-8")


def test_how_to_sign_a_call_comes_first(quiet: ServedWorld) -> None:
    """The document's own text, which viewers show before any operation; it is the guide's, word for word."""
    shown = quiet.http.get("/v1/openapi.json").json()["info"]["description"]
    guide = (VIEWER.parents[2] / "docs" / "signing.md").read_text("utf-8").splitlines()
    lines = [line for line in shown.splitlines() if not line.startswith("#")]
    assert shown.startswith("## How to sign a call\n")
    assert [line for line in lines if line not in guide] == []
    assert all(any(step in line for line in lines) for step in ("**Spell", "**Name", "**Write", "**Sign**", "**Send**"))
