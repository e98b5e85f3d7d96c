"""A place whose service is a process of its own behind a network that is cut: both are really killed, and come back."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

import migrations
from api.demo.trainer import Address
from api.dev_issuer.issuer import DevelopmentIssuer
from api.dev_issuer.routes import create_issuer_app
from api.keys.data_key_store import FileKeyStore
from api.server.http_server import LOOPBACK, base_url, listen, serving
from client.http.access_tokens import ClientCredentials
from client.keys.signer import Signer
from client.service.service import Service
from ledger.store.engine import engine_of
from ledger.store.snapshot import Snapshot
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from tests.api.server.processes import Served
from tests.trainer_adapter.live_service import FOLDERS, ORIGIN, Clock, Place, furnished

NETWORK: Final = Path(__file__).with_name("cut_network.py")


class Cut(NamedTuple):
    """Where a network is cut: see tests/trainer_adapter/cut_network.py."""

    path: str
    number: int
    point: str


class StoredBook:
    """The book in a file that another process writes."""

    def __init__(self, url: str) -> None:
        """By its URL."""
        self._engine = engine_of(url, writes=False)

    @contextmanager
    def read(self) -> Iterator[Snapshot]:
        """Its current state."""
        with self._engine.begin() as connection:
            yield Snapshot(connection)

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()


class Outages:
    """The service's process and its network's, as they are killed and started again."""

    def __init__(self, profile: Path, port: int, door: socket.socket) -> None:
        """Start both; ``door`` stays open whatever is killed, so that callers wait and are not turned away."""
        self._profile, self._port, self._door = profile, port, door
        self._service = Served(profile)
        self._network = self._started(None)

    def arm(self, cut: Cut) -> None:
        """From now on the network is one that will be cut."""
        self._kill_network()
        self._network = self._started(cut)

    def wait(self) -> None:
        """Return once it is cut."""
        assert self._network.stdout is not None
        assert self._network.stdout.readline() == "cut\n"

    def mend(self, *, restart: bool) -> None:
        """Kill the network, and the service too where it restarts, and start what was killed."""
        self._kill_network()
        if restart:
            self._service.kill()
            self._service = Served(self._profile)
        self._network = self._started(None)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End both."""
        self._kill_network()
        assert not self._service.end()

    def _started(self, cut: Cut | None) -> subprocess.Popen[str]:
        named = [str(one) for one in (self._door.fileno(), self._port, *(cut or ()))]
        command = [sys.executable, "-S", str(NETWORK), *named]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[self._door.fileno()])

    def _kill_network(self) -> None:
        with self._network:
            self._network.kill()


@contextmanager
def open_cut_place(folder: Path) -> Iterator[tuple[Place, Outages]]:
    """As open_place, of a service behind a network."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    url, clock, log_signer = f"sqlite:///{folder / 'book.sqlite'}", Clock(), Signer.generate()
    migrations.upgrade(url)
    log_signer.save(folder / "log.pem")
    log = LogKey(ORIGIN, c.unbase64url(log_signer.public.x, "x"))
    with ExitStack() as stack:
        listener, door = listen(LOOPBACK, 0), stack.enter_context(closing(listen(LOOPBACK, 0)))
        issuer = DevelopmentIssuer(base_url(listener), ORIGIN, Signer.generate(), {}, {}, clock)
        stack.enter_context(serving(create_issuer_app(issuer), listener))
        with closing(listen(LOOPBACK, 0)) as free:
            port = int(free.getsockname()[1])
        profile = _profile(folder, issuer, base_url(door), port)
        outages = stack.enter_context(Outages(profile, port, door))

        def enrol(did: str, signer: Signer) -> Service:
            issuer.add(did, signer.public)
            credentials = ClientCredentials(issuer.url, did, signer, ORIGIN, lambda: clock() / 1000)
            return stack.enter_context(Service(base_url(door), credentials))

        book = stack.enter_context(closing(StoredBook(url)))
        address = Address(base_url(door), issuer.url, log)
        yield furnished(folder, book, FileKeyStore(folder / "data-keys"), address, enrol, {}, clock), outages


def _profile(folder: Path, issuer: DevelopmentIssuer, url: str, port: int) -> Path:
    (folder / "issuer.jwks").write_bytes(issuer.jwks)
    lines = (
        'v = 1\n[serve]\nbook = "book.sqlite"\nkeys = "data-keys"\nlog_key = "log.pem"\nkept = "kept"',
        f'origin = "{ORIGIN}"\nhost = "{LOOPBACK}"\nport = {port}\nurl = "{url}"',
        f'[serve.issuers]\n"{issuer.url}" = "issuer.jwks"',
    )
    path = folder / "service.toml"
    path.write_text("\n".join(lines))
    return path
