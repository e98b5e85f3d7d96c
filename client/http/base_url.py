"""A service's base URL, in the one spelling that signatures bind; and which addresses are this machine's own."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

import httpx

from ledger.wire.malformed import Malformed

BASE_LENGTH_MAX: Final = 300


def base_of(url: str, field: str = "service") -> str:
    """The base URL without a slash at its end and without a port that is its scheme's own; names in lower case.

    Raises:
        Malformed: naming ``field``, if it is no http or https URL, or says more than where the service is.
    """
    try:
        parsed = httpx.URL(url)
        # A name that cannot be encoded cannot be resolved; checked here, where the field can be named.
        sound = parsed.scheme in {"http", "https"} and parsed.host.encode("idna") != b"" and len(url) <= BASE_LENGTH_MAX
    except (httpx.InvalidURL, UnicodeError):
        sound = False
    if not sound:
        raise Malformed(field, f"must be an http or https URL, not {url[:200]!r}")
    if parsed.query or parsed.fragment or parsed.userinfo:
        raise Malformed(field, "must have no query, no fragment and no user")
    return str(parsed).rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def require_private(url: str, field: str) -> str:
    """The URL, if it is https or on this machine: no one on the way can read. Raises: Malformed, naming ``field``."""
    parsed = httpx.URL(base_of(url.partition("?")[0], field))
    if parsed.scheme != "https" and not is_loopback(parsed.host):
        raise Malformed(field, "must be an https URL, or http on this machine")
    return url
