"""A place with two services, real processes on one PostgreSQL book: a balancer gives each request to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from api.demo.trainer import Address
from api.dev_issuer.issuer import DevelopmentIssuer
from api.dev_issuer.routes import create_issuer_app
from api.keys.data_key_store import FileKeyStore
from api.server.http_server import LOOPBACK, base_url, listen, serving
from client.http.access_tokens import ClientCredentials
from client.keys.signer import Signer
from client.service.service import Service
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from tests.api.server.balancer import balanced, door
from tests.api.server.processes import Served
from tests.postgres import Databases, Server
from tests.trainer_adapter.cut_place import StoredBook
from tests.trainer_adapter.live_service import FOLDERS, ORIGIN, Clock, Place, furnished

SERVICES = 2


@contextmanager
def open_balanced_place(folder: Path) -> Iterator[Place]:
    """As open_place, of two services of which each is asked every other request."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    clock, log_signer = Clock(), Signer.generate()
    log_signer.save(folder / "log.pem")
    log = LogKey(ORIGIN, c.unbase64url(log_signer.public.x, "x"))
    with ExitStack() as stack:
        # One that waits for its disk, as a server of ours asks of it.
        server = stack.enter_context(closing(Server()))
        databases = Databases(server.dsn)
        stack.callback(databases.let_go)
        book = databases.make(book=True).url
        listener = listen(LOOPBACK, 0)
        issuer = DevelopmentIssuer(base_url(listener), ORIGIN, Signer.generate(), {}, {}, clock)
        stack.enter_context(serving(create_issuer_app(issuer), listener))
        public, url = door()
        started = []
        for number in range(SERVICES):
            with closing(listen(LOOPBACK, 0)) as free:
                port = int(free.getsockname()[1])
            started.append(f"http://{LOOPBACK}:{port}")
            served = Served(_profile(folder, number, book, issuer, url, port))
            stack.callback(_end, served)
        stack.enter_context(balanced(public, started, each_request=True))

        def enrol(did: str, signer: Signer) -> Service:
            issuer.add(did, signer.public)
            credentials = ClientCredentials(issuer.url, did, signer, ORIGIN, lambda: clock() / 1000)
            return stack.enter_context(Service(url, credentials))

        stored = stack.enter_context(closing(StoredBook(book)))
        address = Address(url, issuer.url, log)
        yield furnished(folder, stored, FileKeyStore(folder / "data-keys"), address, enrol, {}, clock)


def _end(served: Served) -> None:
    assert not served.end()


def _profile(  # noqa: PLR0913, PLR0917 - what a profile says
    folder: Path, number: int, book: str, issuer: DevelopmentIssuer, url: str, port: int
) -> Path:
    (folder / "issuer.jwks").write_bytes(issuer.jwks)
    lines = (
        f'v = 1\n[serve]\nbook = "{book}"\nkeys = "data-keys"\nlog_key = "log.pem"\nkept = "kept"',
        f'origin = "{ORIGIN}"\nhost = "{LOOPBACK}"\nport = {port}\nurl = "{url}"',
        # One consumer asks for all of the runs here.
        "quotas = {commands_per_minute = 1000000, anonymous_per_minute = 1000000}",
        f'[serve.issuers]\n"{issuer.url}" = "issuer.jwks"',
    )
    path = folder / f"service-{number}.toml"
    path.write_text("\n".join(lines))
    return path
