"""Headers of the console's answers."""

from __future__ import annotations

from typing import Final

_DIRECTIVES: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "font-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
POLICY: Final = "; ".join(_DIRECTIVES)
"""What a page may load: this service's own files, and nothing written into the page."""
PAGE: Final = {
    "cache-control": "no-store",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    # With no-referrer a browser sends the origin of a form as null, and no form could be held to its site.
    "referrer-policy": "same-origin",
    "vary": "cookie",
    "x-frame-options": "DENY",
}
"""Of every page: no cache keeps what one person is shown."""
ASSET: Final = {
    "cache-control": "public, immutable, max-age=31536000",
    "content-security-policy": "default-src 'none'",
    "cross-origin-resource-policy": "same-origin",
}
