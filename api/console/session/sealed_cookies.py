"""Cookies that only this service reads and makes: AES-256-GCM under a key that all its processes share.

    epsilon-session=<base64url of nonce (12 bytes), ciphertext and tag>

What a cookie is for is authenticated with it, so that none is taken for another. Over TLS its name begins with
``__Host-``: a browser then takes it from this host alone, over TLS alone, and sends it to no other.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

COOKIE_BYTES_MAX: Final = 4_000
"""What every browser keeps of a cookie, its name included (RFC 6265, section 6.1)."""
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class SealedCookies:
    """Cookies of one service; ``secure``: it is reached over TLS."""

    key: bytes
    secure: bool

    def name(self, purpose: str) -> str:
        """The cookie's name."""
        return f"__Host-epsilon-{purpose}" if self.secure else f"epsilon-{purpose}"

    def seal(self, purpose: str, value: c.Object) -> str:
        """The cookie's text. Raises: Malformed, if it is too long for a browser."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + AESGCM(self.key).encrypt(nonce, c.dump(value), self.name(purpose).encode())
        text = c.base64url(sealed)
        if len(text) + len(self.name(purpose)) > COOKIE_BYTES_MAX:
            raise Malformed("cookie", f"would have more than {COOKIE_BYTES_MAX} bytes")
        return text

    def open(self, purpose: str, header: str) -> c.Object | None:
        """What the cookie of a purpose holds, from a request's header field; None if this service did not make it."""
        text = _cookie(header, self.name(purpose))
        try:
            data = c.unbase64url(text, "cookie") if text and len(text) <= COOKIE_BYTES_MAX else b""
            plain = AESGCM(self.key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], self.name(purpose).encode())
            document = c.parse(plain, COOKIE_BYTES_MAX, "cookie")
        except (InvalidTag, ValueError, Malformed):
            return None
        return document if isinstance(document, dict) else None

    def is_sent(self, purpose: str, header: str) -> bool:
        """Whether a request has such a cookie, valid or not."""
        return bool(_cookie(header, self.name(purpose)))

    def set(self, purpose: str, text: str, life_s: int) -> str:
        """The header field that stores it; an empty text removes it.

        ``Lax``: the browser sends it when the issuer or a link leads here, and never with a form of another site.
        """
        secure = "; Secure" if self.secure else ""
        life = max(0, life_s) if text else 0
        return f"{self.name(purpose)}={text}; Path=/; HttpOnly; SameSite=Lax; Max-Age={life}{secure}"


def _cookie(header: str, name: str) -> str:
    """The value of one cookie; empty if it is absent or the header is unreadable."""
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value
