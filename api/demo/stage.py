"""Setting the stage: a folder, a book, a service on a free loopback port; and what is left when the story ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from rich.console import Console

from api.app import create_app
from api.auth.access_tokens import Issuer
from api.demo.heartbeat import heartbeat
from api.demo.participants import Enrol
from api.demo.story import Story, verification
from api.demo.trainer import Address, rendered
from api.dev_issuer.issuer import DevelopmentIssuer
from api.dev_issuer.routes import create_issuer_app
from api.keys.data_key_store import FileKeyStore, KeyStore
from api.server.http_server import LOOPBACK, base_url, listen, serving
from client.http.access_tokens import ClientCredentials
from client.keys.signer import Signer, load_private
from client.service.service import Service
from ledger.book.book import Book
from ledger.book.checkpoint_file import default_path
from ledger.book.wall_clock import unix_ms
from ledger.command_line.shell_commands import epsilon_command
from ledger.store.engine import url_of
from ledger.store.sqlite_file.file_lock import is_locked
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate

ORIGIN: Final = "ledger.demo.invalid"
SERVICE_PORT: Final = 8000
ISSUER_PORT: Final = 8100
SERVICE: Final = f"http://{LOOPBACK}:{SERVICE_PORT}"
ISSUER: Final = f"http://{LOOPBACK}:{ISSUER_PORT}"
_MARK: Final = ".epsilon-demo"
_BOOK: Final = "book.sqlite"


class StageTaken(RuntimeError):  # noqa: N818 - what is the case
    """The folder holds something that no demonstration made, or a demonstration's book that a service runs."""


def perform(folder: Path, console: Console, *, replace: bool = False) -> None:
    """Run the whole story in ``folder``.

    Args:
        replace: delete what an earlier demonstration left there, rather than keep it under another name.

    Raises:
        StageTaken, OSError, TrainerFailed.
    """
    if (earlier := make_room(folder, replace=replace)) is not None:
        console.print(f"[dim]The earlier demonstration and its book are kept in {earlier}.[/dim]")
    prepare(folder)
    Signer.generate().save(folder / "log.pem")
    log_key = load_private(folder / "log.pem")
    log = LogKey(ORIGIN, log_key.public_key().public_bytes_raw())
    (folder / "log.vkey").write_text(f"{log.vkey}\n", encoding="ascii")
    book_path = folder / _BOOK
    upgrade = [sys.executable, "-m", "epsilon_ledger", "db", "upgrade", str(book_path)]
    with heartbeat(console, "making the book"):
        subprocess.run(upgrade, check=True, capture_output=True)  # noqa: S603 - our own command
    keys = FileKeyStore(folder / "data-keys")
    console.print(f"[dim]Data keys lie unencrypted in {folder / 'data-keys'}: for demonstrations only.[/dim]")
    kept = default_path(log)
    book = Book.open(url_of(book_path), gate=gate, log_key=log_key, origin=ORIGIN, clock=unix_ms, kept=kept)
    now = unix_ms() // 1000 * 1000
    try:
        with open_stage(book, keys, log) as (address, enrol):
            story = Story(folder, address, enrol, keys, console)
            story.begin(now)
            story.contracts()
            story.until_refused()
            story.renewal()
            story.answers(unix_ms() // 1000 * 1000)
    finally:
        book.close()
    verification(folder, console)
    _write_profiles(folder, log)
    job = story.leave_job(Address(SERVICE, ISSUER, log))
    console.print()
    console.print(story.table())
    console.print("\nA run that still fits is ready. Each in a terminal of its own:\n")
    profile = folder / "profile.toml"
    _print_commands(console, (("serve", profile), ("dev-issuer", profile), ("train", job)))
    console.print(f"\nWhile it is served, its pages are at {SERVICE}/ for a browser.")
    console.print("\nTo try next:\n")
    _print_commands(console, (("log", book_path), ("log", book_path, "--refused"), ("verify", book_path, "--json")))


@contextmanager
def open_stage(
    book: Book, keys: KeyStore, log: LogKey, clock: Callable[[], int] = unix_ms
) -> Iterator[tuple[Address, Enrol]]:
    """A service and a development issuer, each on a free loopback port, while the block runs; ``clock`` gives ms."""
    listener = listen(LOOPBACK, 0)
    url = base_url(listener)
    issuer = DevelopmentIssuer(url, log.origin, Signer.generate(), {}, {}, clock)
    issuers = [Issuer.parse(issuer.url, issuer.jwks)]
    service_listener = listen(LOOPBACK, 0)
    app = create_app(book, keys, url=base_url(service_listener), log=log, clock=clock, issuers=issuers)
    with ExitStack() as stack:
        stack.enter_context(serving(create_issuer_app(issuer), listener))
        service = stack.enter_context(serving(app, service_listener))

        def seconds() -> float:
            return clock() / 1000

        def enrol(did: str, signer: Signer) -> Service:
            issuer.add(did, signer.public)
            credentials = ClientCredentials(issuer.url, did, signer, log.origin, seconds)
            return stack.enter_context(Service(service, credentials, clock=seconds))

        yield Address(service, issuer.url, log), enrol


def _print_commands(console: Console, commands: Iterable[tuple[str | Path, ...]]) -> None:
    """Print commands that work as printed, from where this one was started."""
    for words in commands:
        # Neither wrapped nor read as markup: a folder's name may hold brackets.
        console.print(f"  {epsilon_command(*words)}", highlight=False, markup=False, soft_wrap=True)


def make_room(folder: Path, *, replace: bool) -> Path | None:
    """Rename what an earlier demonstration left, or delete it; its new name, if any. Raises: StageTaken, OSError."""
    if not folder.exists() or not any(folder.iterdir()):
        return None
    if not (folder / _MARK).is_file():
        raise _taken(folder)
    if is_locked(folder / _BOOK):
        # Its service would go on writing a book that is somewhere else.
        raise StageTaken(f"a service runs the book in {folder}: stop it with Ctrl-C, or name another folder")
    if replace:
        _delete(folder)
        return None
    name = folder.resolve().name
    free = (folder.resolve().with_name(f"{name}-{number}") for number in count(1))
    earlier = folder.rename(next(place for place in free if not place.exists()))
    return folder.with_name(earlier.name)


def prepare(folder: Path) -> None:
    """Make the folders of a demonstration, and the mark by which a later one knows it.

    The mark is made first: however this ends, the folder is empty or a demonstration's.

    Raises:
        StageTaken: if there is anything in the folder: a mark would give it to a later ``--replace``.
        OSError: if it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise _taken(folder)
    (folder / _MARK).touch()
    for name in ("data", "jobs", "keys", "runs"):
        (folder / name).mkdir()


def _taken(folder: Path) -> StageTaken:
    return StageTaken(f"{folder} holds something that no demonstration made: name another folder")


def _delete(folder: Path) -> None:
    """Delete a demonstration's folder, its mark last, so that a part of it is known. Raises: StageTaken, OSError."""
    if folder.is_symlink():
        raise StageTaken(f"{folder} is a symbolic link: name the folder that it leads to")
    for file in folder.iterdir():
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        elif file.name != _MARK:
            file.unlink()
    (folder / _MARK).unlink()
    folder.rmdir()


def _write_profiles(folder: Path, log: LogKey) -> None:
    """The service's profile with its issuer's, and the auditor's: the one person that the issuer knows."""
    issuer = Signer.generate()
    issuer.save(folder / "issuer.pem")
    (folder / "issuer.jwks").write_bytes(c.dump({"keys": [issuer.jwk]}))
    parties = (path.stem for path in sorted((folder / "keys").glob("*.pem")) if path.stem != "attester")
    values = {
        "clients": "\n".join(f'"did:web:{slug}.demo.invalid" = "keys/{slug}.pem"' for slug in parties),
        "issuer": ISSUER,
        "issuer_port": ISSUER_PORT,
        "log": log.vkey,
        "origin": ORIGIN,
        "service": SERVICE,
        "service_port": SERVICE_PORT,
    }
    for name in ("profile.toml", "auditor.toml"):
        (folder / name).write_text(rendered(name, **values), encoding="utf-8")
