"""Several services of one book behind a balancer, and a world of parties that knows them by its URL alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from api.app import create_app
from api.keys.data_key_store import FileKeyStore
from api.server.http_server import LOOPBACK, base_url, listen, serving
from ledger.book.book import Book
from ledger.verifier import LogKey
from policy.decisions.gate import gate
from tests.api.server.balancer import balanced, door
from tests.factories.callers import Everybody
from tests.factories.people import ORIGIN
from tests.factories.service import ServedWorld, machine_clock

SECRET: Final = bytes(range(32))


@contextmanager
def services(folder: Path, book: str, number: int, kind: type[Book] = Book) -> Iterator[ServedWorld]:
    """So many services, each with a writer of its own on the book of this URL."""
    clock, private, keys = machine_clock(), Ed25519PrivateKey.generate(), FileKeyStore(folder)
    log, (listener, public) = LogKey(ORIGIN, private.public_key().public_bytes_raw()), door()
    with ExitStack() as stack:
        unasked = stack.enter_context(listen(LOOPBACK, 0))
        everybody = Everybody(base_url(unasked), ORIGIN, clock)
        books, served = [], []
        for _ in range(number):
            opened = kind.open(
                book, gate=gate, log_key=private, origin=ORIGIN, clock=clock, volatile=True, statements=False
            )
            stack.callback(opened.close)
            app = create_app(
                opened, keys, url=public, log=log, clock=clock, issuers=[everybody.issuer()], secret=SECRET
            )
            served.append(stack.enter_context(serving(app)))
            books.append(opened)
        stack.enter_context(balanced(listener, served))
        world = ServedWorld(books[0], public, clock=clock, keys=keys, log=log, everybody=everybody)
        stack.callback(world.service.close)
        stack.callback(world.http.close)
        for client in (world.http, world.service._http):  # noqa: SLF001 - each request takes a connection of its own
            client.headers["connection"] = "close"
        world.contract = world.found_service(runs_max=100)
        yield world
