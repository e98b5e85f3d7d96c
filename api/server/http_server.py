"""The service on a port: in a thread for the demonstration and the tests, or until interrupted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from fastapi import FastAPI

from api.http.quota_terms import QuotaTerms
from api.http.sender_address import sender_of
from api.server.connection_limits import Connection, Limits
from client.http.base_url import is_loopback
from ledger.wire.malformed import Malformed

LOOPBACK: Final = "127.0.0.1"
STOP_S: Final = 3


def base_url(listener: socket.socket) -> str:
    """Where a listening socket is reached from this machine."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_loopback(host: str) -> str:
    """The host, if it is an address that only this machine can reach. Raises: Malformed."""
    if host != "localhost" and is_loopback(host):
        return host
    raise Malformed("host", f"must be a loopback address as {LOOPBACK}, unless the service is in production")


def listen(host: str, port: int, *, anywhere: bool = False) -> socket.socket:
    """A listening socket, on loopback or ``anywhere``; port 0 takes a free one. Raises: Malformed, OSError."""
    family = socket.AF_INET6 if ":" in (host if anywhere else check_loopback(host)) else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


@contextmanager
def serving(
    app: FastAPI, listener: socket.socket | None = None, connection: type[Connection] = Connection
) -> Iterator[str]:
    """Serve ``app`` from a thread while the block runs, on a free port unless one is given; gives the base URL."""
    listener = listener or listen(LOOPBACK, 0)
    server = uvicorn.Server(_config(app, connection))
    # The server's own copy: an interrupt as this begins has its opener close the other before the server takes it up.
    copy = {"sockets": [listener.dup()]}
    thread = threading.Thread(target=server.run, kwargs=copy, name="epsilon-service", daemon=True)
    # The socket listens already, so a client that is faster than the server waits in its queue.
    thread.start()
    try:
        yield base_url(listener)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve ``app`` until the process is interrupted."""
    server_of(app).run(sockets=[listener])


def server_of(app: FastAPI, proxies: Iterable[str] = (), quotas: QuotaTerms | None = None) -> uvicorn.Server:
    """A server of ``app``, which runs until the process is interrupted or its ``should_exit`` is set.

    Args:
        proxies: addresses that speak for many callers each, and limit their connections themselves.
        quotas: how many connections may be open, in all and from one address; the usual numbers by default.
    """
    terms = quotas or QuotaTerms()

    class Behind(Connection):
        """A connection to a service behind these proxies."""

        limits = Limits(
            open=terms.connections,
            open_by_sender=terms.connections_per_address,
            proxies=frozenset(map(sender_of, proxies)),
        )

    return uvicorn.Server(_config(app, Behind))


def _config(app: FastAPI, connection: type[Connection] = Connection) -> uvicorn.Config:
    # Without a log configuration of its own the server logs through the process's, errors included.
    return uvicorn.Config(
        app,
        access_log=False,
        http=connection,
        lifespan="off",
        log_config=None,
        log_level="warning",
        loop="uvloop",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
        timeout_keep_alive=connection.limits.idle_s,
        ws="none",
    )
