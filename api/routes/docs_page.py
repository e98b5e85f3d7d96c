"""GET /v1/openapi.json, and GET /docs: the same as one page that needs nothing but itself: no script, no other address.

Operations and forms are folded (``<details>``); a form that is referred to is a link to where it is told.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from api.wire.responses import shows_text
from client.http.endpoints import JSON_TYPE
from ledger.wire import canonical_json as c

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENT: Final = "/v1/openapi.json"
_STYLE: Final = (
    "body{font-family:sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;line-height:1.4}"
    "code,pre{font-family:monospace}pre{background:#f4f4f4;padding:.6rem;overflow-x:auto;max-height:24rem}"
    "h2{font-size:1.2rem;margin:2rem 0 .3rem}h4{margin:.8rem 0 .2rem}summary{cursor:pointer;padding:.15rem 0}"
    "details>:not(summary){margin-left:1.2rem}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:.15rem .5rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
)
_PAGE: Final = shows_text(description="A page", media_type="text/html")
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
NESTED: Final = 1
"""How deep the forms inside a body or an answer are told in place; deeper ones are links."""
_BOUNDS: Final = ("pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "default")


def docs_router(document: Callable[[], dict[str, Any]]) -> APIRouter:
    """Both routes; ``document`` gives the OpenAPI document."""
    router = APIRouter(tags=["operation"])
    written, dumped = cache(lambda: page(document())), cache(lambda: c.dump(document()))

    @router.get(DOCUMENT, operation_id="read_openapi", include_in_schema=False)
    def read_openapi() -> Response:
        return Response(dumped(), headers={"cache-control": "no-cache"}, media_type=JSON_TYPE)

    @router.get("/docs", operation_id="read_docs", responses=_PAGE, response_class=HTMLResponse)
    def read_docs() -> Response:
        return HTMLResponse(written(), headers=HEADERS)

    return router


def page(document: dict[str, Any]) -> str:
    """The page."""
    return _Page(document).whole()


class _Page:
    """Writes one document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._info, self._tags = document["info"], document["tags"]
        self._problems, self._forms = document["components"]["responses"], document["components"]["schemas"]
        told = [(path, method, what) for path, methods in document["paths"].items() for method, what in methods.items()]
        self._operations = sorted(told, key=lambda one: one[:2])

    def whole(self) -> str:
        """All of it."""
        title, summary, version = (escape(self._info[name]) for name in ("title", "summary", "version"))
        problems = "".join(
            _folded(f"problem-{name}", name, self._content(told["description"], told))
            for name, told in self._problems.items()
        )
        forms = "".join(_folded(f"form-{name}", name, self._form(form, 0)) for name, form in self._forms.items())
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style></head><body><h1>{title}</h1><p>{summary}. Version {version}; for programs: "
            f'<a href="{DOCUMENT}">{DOCUMENT}</a>. </p>'
            f"{''.join(map(self._tag, self._tags))}<h2>Problems</h2>{problems}<h2>Forms</h2>{forms}</body></html>"
        )

    def _tag(self, tag: dict[str, Any]) -> str:
        told = (self._operation(*one) for one in self._operations if tag["name"] in one[2]["tags"])
        return f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>{''.join(told)}"

    def _operation(self, path: str, method: str, what: dict[str, Any]) -> str:
        """One operation, folded."""
        name = escape(what["operationId"])
        who = "" if what["security"] else " Asks for no token."
        asked = _parameters(what.get("parameters", [])) + self._content("Body", what.get("requestBody", {}))
        answers = "".join(self._answer(status, told) for status, told in what["responses"].items())
        return (
            f'<details id="{name}"><summary><code>{method.upper()} {escape(path)}</code> '
            f"{escape(what['summary'])}</summary><p>{escape(what['description'])}{who} "
            f"Operation id: <code>{name}</code>.</p>{asked}{answers}</details>"
        )

    def _answer(self, status: str, told: dict[str, Any]) -> str:
        if "$ref" not in told:
            return self._content(f"{status}: {told['description']}", told)
        name = _name(told)
        said = escape(self._problems[name]["description"])
        return f'<h4><a href="#problem-{escape(name)}">{escape(status)}</a></h4><p>{said}</p>'

    def _content(self, title: str, told: dict[str, Any]) -> str:
        """A body or an answer: its types, their forms, an example of each."""
        parts = "".join(
            f"<p><code>{escape(media_type)}</code></p>{self._form(content['schema'], NESTED)}{_example(content)}"
            for media_type, content in told.get("content", {}).items()
        )
        return f"<h4>{escape(title)}</h4>{parts}" if told else ""

    def _form(self, form: dict[str, Any], nested: int) -> str:
        """A form as a table of its fields, forms inside it folded as deep as ``nested``; what has none, in a line."""
        if "$ref" in form and nested:
            return f"<p>{_in_line(form)}</p>{self._form(self._forms[_name(form)], nested)}"
        if "properties" not in form:
            return f"<p>{_in_line(form)}</p>"
        rows = "".join(
            f"<tr><td><code>{escape(name)}</code></td><td>{'' if name in form.get('required', []) else 'optional'}</td>"
            f"<td>{self._field(one, nested)}</td></tr>"
            for name, one in form["properties"].items()
        )
        base = "".join(f"<p>{_in_line(one)}, and of it:</p>" for one in form.get("allOf", []))
        said = f"<p>{escape(form['description'])}</p>" if "description" in form else ""
        return f"{said}{base}<table><tr><th>Field</th><th></th><th>What</th></tr>{rows}</table>"

    def _field(self, form: dict[str, Any], nested: int) -> str:
        inside = self._forms[_name(form)] if "$ref" in form else form
        if nested == 0 or "properties" not in inside:
            return _in_line(form)
        told = _in_line(form) if "$ref" in form else "object"
        return f"<details><summary>{told}</summary>{self._form(inside, nested - 1)}</details>"


def _name(referring: dict[str, Any]) -> str:
    return str(referring["$ref"].rpartition("/")[2])


def _parameters(parameters: list[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}"
        f"{', required' if one.get('required') else ''}</td>"
        f"<td>{escape(one.get('description', ''))} {_in_line(one['schema'])}</td>"
        f"<td><code>{escape(str(one.get('example', '')))}</code></td></tr>"
        for one in parameters
    )
    head = "<tr><th>Parameter</th><th>In</th><th>What</th><th>Example</th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


def _folded(anchor: str, name: str, inside: str) -> str:
    return f'<details id="{escape(anchor)}"><summary><code>{escape(name)}</code></summary>{inside}</details>'


def _example(content: dict[str, Any]) -> str:
    if "example" not in content:
        return ""
    shown = content["example"]
    text = shown if isinstance(shown, str) else json.dumps(shown, indent=1, ensure_ascii=False)
    return f"<details><summary>Example</summary><pre>{escape(text)}</pre></details>"


def _in_line(form: dict[str, Any]) -> str:
    """A form in a few words, with a link where it is told elsewhere."""
    if "$ref" in form:
        name = escape(_name(form))
        return f'<a href="#form-{name}">{name}</a>'
    told = [f"{name} {form[name]}" for name in _BOUNDS if name in form]
    bounds = f" <code>{escape(', '.join(told))}</code>" if told else ""
    said = f" {escape(form['description'])}" if "description" in form else ""
    return f"{_what(form)}{bounds}{said}"


def _what(form: dict[str, Any]) -> str:
    """Which values a form allows, but for their bounds."""
    words = form.get("enum", [form["const"]] if "const" in form else [])
    if words:
        return " | ".join(f"<code>{escape(json.dumps(one))}</code>" for one in words)
    others = form.get("oneOf", form.get("anyOf"))
    if others:
        return " or ".join(map(_in_line, others))
    if form.get("type") == "array":
        return f"list of {_in_line(form['items'])}"
    if "properties" in form:
        fields = "; ".join(f"<code>{escape(name)}</code> {_in_line(one)}" for name, one in form["properties"].items())
        return f"object ({fields})"
    if isinstance(form.get("additionalProperties"), dict):
        return f"object of {_in_line(form['additionalProperties'])}"
    told = form.get("type", "anything")
    return escape(told if isinstance(told, str) else " or ".join(told))
