"""Addresses of the console's own pages."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

ROOT: Final = "/console"
HOME: Final = "/console/"
_NEXT_LENGTH_MAX: Final = 2_000


def address(*parts: str, **query: str | int | None) -> str:
    """The page at these parts of a path, each quoted as one segment, with what of the query is given."""
    path = "/".join((ROOT, *(quote(part, safe=":@") for part in parts or ("",))))
    known = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(known)}" if known else path


def local_path(value: str) -> str:
    """Where to go on after logging in: a page of this console, and the first page for anything else.

    A browser takes two slashes, or a slash and a backslash, for the beginning of another host.
    """
    inside = value.startswith(HOME)
    plain = value.isascii() and value.isprintable() and "\\" not in value and "//" not in value.partition("?")[0]
    return value if inside and plain and len(value) <= _NEXT_LENGTH_MAX and "/../" not in f"{value}/" else HOME
