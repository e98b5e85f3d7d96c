"""The header ``host`` of a request: exactly one, and it names a host (RFC 9112, section 3.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~%!$&'()*+,;=-]{1,255})(:[0-9]{0,5})?\Z")
"""A host and perhaps a port (RFC 9110, section 7.2)."""


def host_error(headers: Iterable[tuple[bytes, bytes]], http_version: str) -> str:
    """What is wrong with the host that a request names; empty if nothing is. HTTP/1.0 need not name one."""
    named = [value for name, value in headers if name == b"host"]
    if len(named) > 1:
        return "the request has more than one header 'host'"
    if not named:
        return "" if http_version == "1.0" else "the request has no header 'host'"
    return "" if _HOST.match(named[0]) else "the header 'host' names no host"
