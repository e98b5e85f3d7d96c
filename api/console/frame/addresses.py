"""Addresses of the console's own pages, below the path of the service's public URL.

A proxy that serves other things beside the service gives it a path of its own, and takes that path away from requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final
from urllib.parse import quote, urlencode

ROOT: Final = "/console"
_NEXT_LENGTH_MAX: Final = 2_000
_SERVICE_PATH: Final = ContextVar("service_path", default="")


@contextmanager
def served_below(path: str) -> Iterator[None]:
    """Addresses begin with this path, that of the service's public URL, while the block runs."""
    token = _SERVICE_PATH.set(path)
    try:
        yield
    finally:
        _SERVICE_PATH.reset(token)


def service_path(path: str) -> str:
    """A path of the service as a browser reaches it."""
    return f"{_SERVICE_PATH.get()}{path}"


def address(*parts: str, **query: str | int | None) -> str:
    """The page at these parts of a path, each quoted as one segment, with what of the query is given."""
    path = "/".join((service_path(ROOT), *(quote(part, safe=":@") for part in parts or ("",))))
    known = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(known)}" if known else path


def given(values: Mapping[str, str]) -> dict[str, str | None]:
    """Those of the values of a form that are not empty; an address has no others."""
    return {name: value or None for name, value in values.items()}


def local_path(value: str) -> str:
    """Where to go on after logging in: a page of this console, and the first page for anything else.

    A browser takes two slashes, or a slash and a backslash, for the beginning of another host.
    """
    home = address()
    inside = value.startswith(home)
    plain = value.isascii() and value.isprintable() and "\\" not in value and "//" not in value.partition("?")[0]
    return value if inside and plain and len(value) <= _NEXT_LENGTH_MAX and "/../" not in f"{value}/" else home
