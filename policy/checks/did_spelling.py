"""One spelling of each DID: two that mean the same would be two organisations, each with an account of its own.

A DID is compared letter by letter. What a method or a network takes for the same is written in one way, therefore:
percent-encoding only of what cannot be written plainly, in capital digits; the host of a ``did:web``, which has no
capitals, no point at its end and no port 443, in lower case. Paths are case-sensitive and stay as they are.
"""

from __future__ import annotations

import re
from typing import Final

_ENCODED: Final = re.compile(r"%([0-9A-Fa-f]{0,2})")
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]")
_WEB: Final = "did:web:"
_HTTPS: Final = "%3A443"


def canonical_did(did: str) -> str | None:
    """The one spelling of a DID; None where a percent sign begins no octet."""
    octets = _ENCODED.findall(did)
    if any(len(digits) < 2 for digits in octets):
        return None
    spelled = _ENCODED.sub(_octet, did)
    if not spelled.startswith(_WEB):
        return spelled
    host, *path = spelled.removeprefix(_WEB).split(":")
    name, _, port = host.partition("%3A")
    name = name.lower().rstrip(".")
    port = f"%3A{port}" if port and f"%3A{port}" != _HTTPS else ""
    return _WEB + ":".join([_ENCODED.sub(_octet, name) + port, *path])


def _octet(match: re.Match[str]) -> str:
    plain = chr(int(match[1], 16))
    return plain if _PLAIN.fullmatch(plain) else f"%{match[1].upper()}"
