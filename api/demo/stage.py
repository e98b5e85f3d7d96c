"""Setting the stage: a folder, a book, a service on a free loopback port; and what is left when the story ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console

from api.app import create_app
from api.cli import unix_ms
from api.demo.story import Story, verification
from api.key_store import FileKeyStore
from api.server import serving
from client.service import Service
from client.signer import Signer, load_private
from ledger.engines import url_of
from ledger.book import Book
from ledger.verifier import LogKey
from policy.evaluate import gate

ORIGIN: Final = "ledger.demo.invalid"
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
        with serving(create_app(book, keys, log=log, clock=unix_ms)) as url, Service(url) as service:
            story = Story(folder, service, url, keys, console)
            story.begin(now)
            story.contracts()
            story.until_refused()
            story.renewal()
    finally:
        book.close()
    verification(folder, console, lambda line: console.print(line, highlight=False))
    _write_profile(folder, log)
    console.print()
    console.print(story.table())
    console.print("\nTo try next:\n")
    for command in next_commands(folder):
        console.print(f"  {command}", highlight=False, soft_wrap=True)


def next_commands(folder: Path) -> list[str]:
    """Three commands that work as printed, from where this one was started."""
    epsilon = _shown(Path(sys.argv[0])) if Path(sys.argv[0]).name == "epsilon" else f"{_shown(Path(sys.executable))} -m epsilon_ledger"
    shown = _shown(folder)
    return [
        f"{epsilon} log {shown}/book.sqlite",
        f"{epsilon} log {shown}/book.sqlite --refused",
        f"{epsilon} verify {shown}/book.sqlite --json",
    ]


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
    text = f"""v = 1

[serve]
book = "book.sqlite"
keys = "data-keys"
log_key = "log.pem"
origin = "{ORIGIN}"
host = "127.0.0.1"
port = 8000

[client]
service = "http://127.0.0.1:8000"
key = "keys/banyan-cedar.pem"
actor = "did:web:banyan-cedar.demo.invalid"
log = "{log.vkey}"
"""
    (folder / "profile.toml").write_text(text, encoding="utf-8")
