"""The sender of a request: an IPv4 address, or the /64 of IPv6 that one machine may choose its addresses from.

Behind a proxy that the profile names, the address is in a header field that the proxy writes: ``Forwarded``
(RFC 7239) or ``X-Forwarded-For``. Each proxy appends the address that called it, so the last address that is no
proxy of ours is the caller's, whatever the caller wrote in front of it. From other callers the field is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

PREFIX_BITS: Final = 64
FORWARDED, X_FORWARDED_FOR = "forwarded", "x-forwarded-for"
FIELDS: Final = (FORWARDED, X_FORWARDED_FOR)
"""The header fields that a profile may name."""
_FOR: Final = re.compile(r'(?:^|;)\s*for\s*=\s*"?([^";]*)"?\s*(?:;|$)', re.IGNORECASE)
_NODE: Final = re.compile(r"\[([0-9a-fA-F:.]+)\](?::\d{1,5})?|([0-9.]+)(?::\d{1,5})?|([0-9a-fA-F:.]+)")
"""IPv6 in brackets, or IPv4, each with a port or without; IPv6 alone."""


@lru_cache(maxsize=4_096)
def sender_of(host: str) -> str:
    """The sender behind an address as sockets name it; what is no address is its own sender."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, PREFIX_BITS), strict=False))


class Senders:
    """The sender of each request, as far as requests are counted by sender."""

    def __init__(self, proxies: Iterable[str] = (), field: str = "") -> None:
        """Of a service behind proxies at these addresses, which name their callers in this header field, if in any."""
        self._proxies, self._field = frozenset(map(sender_of, proxies)), field.encode()

    def of(self, scope: Mapping[str, Any]) -> str:
        """The sender of a request (an ASGI scope); empty if it is unknown, or a proxy that speaks for many.

        A proxy that was to name its callers and did not is itself the sender.
        """
        host, _ = scope.get("client") or ("", 0)
        peer = sender_of(host) if host else ""
        if peer not in self._proxies:
            return peer
        if not self._field:
            return ""
        header = b",".join(value for name, value in scope["headers"] if name == self._field).decode("latin-1")
        return self._last(header) or peer

    def _last(self, header: str) -> str:
        """The last sender that is no proxy; empty if what would have to be read before it is no address."""
        for element in reversed(header.split(",")):
            host = _address_in(element, of_rfc_7239=self._field == FORWARDED.encode())
            if not host or (sender := sender_of(host)) not in self._proxies:
                return host and sender
        return ""


def _address_in(element: str, *, of_rfc_7239: bool) -> str:
    """The address of one element of a field, without its port; empty where it is none."""
    if of_rfc_7239:
        named = _FOR.search(element)
        element = named[1] if named else ""
    node = _NODE.fullmatch(element.strip())
    host = "" if node is None else next(filter(None, node.groups()))
    try:
        ip_address(host)
    except ValueError:
        return ""
    return host
