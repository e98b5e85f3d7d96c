"""A browser without a screen: it follows redirects, and on the issuer's page chooses who to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx

CALLBACK: Final = "/callback"


def with_query(url: str, **changes: str | None) -> str:
    """The URL with these parameters instead of its own; None takes one away."""
    parts = urlsplit(url)
    query = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **changes}
    return urlunsplit(parts._replace(query=urlencode({name: one for name, one in query.items() if one is not None})))


class Browser:
    """Opens a URL and goes wherever it is sent; ``detour`` may change each address on the way."""

    def __init__(self, person: str, detour: Callable[[str], str] = lambda url: url) -> None:
        """Choose ``person`` where somebody has to be chosen."""
        self._person, self._detour = person, detour
        self.pages: list[httpx.Response] = []

    def __call__(self, url: str) -> None:
        """Open a page, as somebody who logs in does."""
        with httpx.Client(trust_env=False, verify=False) as http:  # noqa: S501 - no TLS here, and nothing to load for it
            self.pages.append(http.get(self._detour(url)))
            self.pages[-1].raise_for_status()
            to = with_query(url, person=self._person)
            while to:
                self.pages.append(http.get(self._detour(to)))
                to = self.pages[-1].headers.get("location", "")
