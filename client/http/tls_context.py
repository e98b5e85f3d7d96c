"""The certificate authorities that TLS connections trust, read once a process."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def tls_context(*, trust_env: bool) -> ssl.SSLContext:
    """What httpx would make for each client; ``trust_env``: whether SSL_CERT_FILE and SSL_CERT_DIR count."""
    return httpx.create_ssl_context(trust_env=trust_env)
