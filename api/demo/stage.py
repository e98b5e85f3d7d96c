"""Setting the stage: a folder, a book, a service on a free loopback port; and what is left when the story ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console

from api.app import create_app
from api.server.http_server import unix_ms
from api.demo.participants import Enrol
from api.demo.story import Story, verification
from api.demo.trainer import Address
from api.dev_issuer.issuer import DevelopmentIssuer
from api.dev_issuer.routes import create_issuer_app
from api.keys.key_store import FileKeyStore, KeyStore
from api.server.http_server import LOOPBACK, base_url, listen, serving
from api.auth.access_tokens import Issuer
from client.service.service import Service
from client.keys.signer import Signer, load_private
from client.http.access_tokens import ClientCredentials
from ledger.wire import canonical_json as c
from ledger.store.engine import url_of
from ledger.book.book import Book
from ledger.verifier import LogKey
from policy.decisions.gate import gate

ORIGIN: Final = "ledger.demo.invalid"
SERVICE_PORT: Final = 8000
ISSUER_PORT: Final = 8100
_MARK: Final = ".epsilon-demo"


class StageTaken(RuntimeError):  # noqa: N818 - what is the case
    """The folder holds something that no demonstration made."""


def perform(folder: Path, console: Console) -> None:
    """Tell the whole story. Raises: StageTaken, OSError, TrainerFailed."""
    _clear(folder)
    log_key = _log_key(folder)
    log = LogKey(ORIGIN, log_key.public_key().public_bytes_raw())
    (folder / "log.vkey").write_text(f"{log.vkey}\n", encoding="ascii")
    book_path = folder / "book.sqlite"
    subprocess.run(_epsilon("db", "upgrade", str(book_path)), check=True, capture_output=True)
    keys = FileKeyStore(folder / "data-keys")
    console.print(f"[dim]Data keys lie unencrypted in {folder / 'data-keys'}: for demonstrations only.[/dim]")
    book = Book.open(url_of(book_path), gate=gate, log_key=log_key, origin=ORIGIN, clock=unix_ms)
    now = unix_ms() // 1000 * 1000
    try:
        with opened(book, keys, log) as (address, enrol):
            story = Story(folder, address, enrol, keys, console)
            story.begin(now)
            story.contracts()
            story.until_refused()
            story.renewal()
    finally:
        book.close()
    verification(folder, console, lambda line: console.print(line, highlight=False))
    _write_profile(folder, log)
    served, issuing = (f"http://{LOOPBACK}:{port}" for port in (SERVICE_PORT, ISSUER_PORT))
    job = story.leave_job(Address(served, issuing, log))
    console.print()
    console.print(story.table())
    console.print("\nA run that still fits is ready. Each in a terminal of its own:\n")
    profile = f"{_shown(folder)}/profile.toml"
    for words in (f"serve {profile}", f"dev-issuer {profile}", f"train {_shown(job)}"):
        console.print(f"  {_program()} {words}", highlight=False, soft_wrap=True)
    console.print("\nTo try next:\n")
    for command in next_commands(folder):
        console.print(f"  {command}", highlight=False, soft_wrap=True)


@contextmanager
def opened(
    book: Book, keys: KeyStore, log: LogKey, clock: Callable[[], int] = unix_ms
) -> Iterator[tuple[Address, Enrol]]:
    """A service and a development issuer, each on a free loopback port, while the block runs; ``clock`` tells ms."""
    listener = listen(LOOPBACK, 0)
    url = base_url(listener)
    issuer = DevelopmentIssuer(url, log.origin, Signer.generate(), {}, {}, clock)
    believed = [Issuer.parse(issuer.url, issuer.jwks)]
    door = listen(LOOPBACK, 0)
    app = create_app(book, keys, url=base_url(door), log=log, clock=clock, issuers=believed)
    with ExitStack() as stack:
        stack.enter_context(serving(create_issuer_app(issuer), listener))
        service = stack.enter_context(serving(app, door))

        def seconds() -> float:
            return clock() / 1000

        def enrol(did: str, signer: Signer) -> Service:
            issuer.add(did, signer.public)
            credentials = ClientCredentials(issuer.url, did, signer, log.origin, seconds)
            return stack.enter_context(Service(service, credentials, clock=seconds))

        yield Address(service, issuer.url, log), enrol


def next_commands(folder: Path) -> list[str]:
    """Three commands that work as printed, from where this one was started."""
    epsilon, shown = _program(), _shown(folder)
    return [
        f"{epsilon} log {shown}/book.sqlite",
        f"{epsilon} log {shown}/book.sqlite --refused",
        f"{epsilon} verify {shown}/book.sqlite --json",
    ]


def _program() -> str:
    called = Path(sys.argv[0])
    return _shown(called) if called.name == "epsilon" else f"{_shown(Path(sys.executable))} -m epsilon_ledger"


def _shown(path: Path) -> str:
    # Not resolved: in an environment the interpreter is a link, and what it links to lacks our packages.
    absolute = Path.cwd() / path
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(path)


def _epsilon(*words: str) -> list[str]:
    return [sys.executable, "-m", "epsilon_ledger", *words]


def _clear(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).is_file():
            raise StageTaken(f"{folder} holds something that no demonstration made: name another folder")
        shutil.rmtree(folder)
    for name in ("data", "jobs", "keys", "runs"):
        (folder / name).mkdir(parents=True)
    (folder / _MARK).touch()


def _log_key(folder: Path) -> Ed25519PrivateKey:
    Signer.generate().save(folder / "log.pem")
    return load_private(folder / "log.pem")


def _write_profile(folder: Path, log: LogKey) -> None:
    issuer = Signer.generate()
    issuer.save(folder / "issuer.pem")
    (folder / "issuer.jwks").write_bytes(c.dump({"keys": [issuer.jwk]}))
    parties = (path.stem for path in sorted((folder / "keys").glob("*.pem")) if path.stem != "attester")
    clients = "\n".join(f'"did:web:{slug}.demo.invalid" = "keys/{slug}.pem"' for slug in parties)
    text = f"""v = 1

[serve]
book = "book.sqlite"
keys = "data-keys"
log_key = "log.pem"
origin = "{ORIGIN}"
host = "{LOOPBACK}"
port = {SERVICE_PORT}

[serve.issuers]
"http://{LOOPBACK}:{ISSUER_PORT}" = "issuer.jwks"

[issuer]
host = "{LOOPBACK}"
port = {ISSUER_PORT}
audience = "{ORIGIN}"
key = "issuer.pem"

[issuer.clients]
{clients}

[issuer.people.auditor]
organisation = "did:web:health-council.demo.invalid"
roles = ["AUDITOR"]

[client]
service = "http://{LOOPBACK}:{SERVICE_PORT}"
key = "keys/banyan-cedar.pem"
actor = "did:web:banyan-cedar.demo.invalid"
log = "{log.vkey}"
issuer = "http://{LOOPBACK}:{ISSUER_PORT}"
"""
    (folder / "profile.toml").write_text(text, encoding="utf-8")
    _write_auditor(folder, log)


def _write_auditor(folder: Path, log: LogKey) -> None:
    """A person's profile: the development issuer lets anybody in as the auditor that it knows."""
    text = f"""v = 1

[client]
service = "http://127.0.0.1:8000"
client_id = "epsilon"
log = "{log.vkey}"
issuer = "http://127.0.0.1:8100"
"""
    (folder / "auditor.toml").write_text(text, encoding="utf-8")
