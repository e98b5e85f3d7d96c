"""Who a connection comes from: an IPv4 address, or the /64 of IPv6 that one machine may choose its addresses from."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

PREFIX_BITS: Final = 64


@lru_cache(maxsize=4_096)
def sender_of(host: str) -> str:
    """The sender behind an address as sockets name it; what is no address is its own sender."""
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((found, PREFIX_BITS), strict=False))
