"""The folder of ``epsilon up``: what lies in it, and how it is made.

Its mark is written first, with what never changes: the origin of the log and the two ports. Everything else is made
where it is missing, so that a folder whose making was interrupted is completed by the next start. The mark is also the
lock: one process runs a folder.

    {"issuer_port":8100,"origin":"localhost/development-4f1c...","port":8000,"v":1}
"""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from api.setup.key_files import signing_key, verifier_key, write_jwk_set, write_verifier_key
from api.setup.profile_files import Value, create_profile
from client.profile.profile import read_table
from ledger.files.atomic_file import create_file, remove_leftovers
from ledger.wire import canonical_json as c
from ledger.wire.field_types import between, constant, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, read, write

MARK: Final = ".epsilon-up"
MARK_BYTES_MAX: Final = 4_096
PORT_MAX: Final = 65_535
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Party:
    """One organisation of the folder: by what its files are named, its role and its name."""

    slug: str
    role: str
    name: str

    @property
    def did(self) -> str:
        """Its DID; names below localhost belong to no one (RFC 6761, section 6.3)."""
        return f"did:web:{self.slug}.localhost"


SRO: Final = Party("sro", "SRO", "Development regulator")
TDP: Final = Party("tdp", "TDP", "Development data provider")
TDC: Final = Party("tdc", "TDC", "Development data consumer")
AUDITOR: Final = Party("auditor", "AUDITOR", "Development auditor")
PARTIES: Final = (SRO, TDP, TDC, AUDITOR)


class FolderTaken(Exception):  # noqa: N818 - what is the case
    """The folder is another's, or another process runs it; the sentence says what to do."""


class Mark(Record, frozen=True):
    """What is decided when a folder is made."""

    issuer_port: Annotated[int, between(1, PORT_MAX)]
    origin: Annotated[str, text(200)]
    port: Annotated[int, between(1, PORT_MAX)]
    v: Literal[1] = constant(1)


@dataclass(frozen=True, slots=True)
class DevelopmentFolder:
    """A folder with its mark; every path in it."""

    path: Path
    mark: Mark

    @property
    def book(self) -> Path:
        """The SQLite file."""
        return self.path / "book.sqlite"

    @property
    def profile(self) -> Path:
        """Of the service and its issuer."""
        return self.path / "profile.toml"

    @property
    def data_keys(self) -> Path:
        """Where the service keeps data keys, unencrypted."""
        return self.path / "data-keys"

    @property
    def service(self) -> str:
        """The URL of the service."""
        return f"http://{HOST}:{self.mark.port}"

    @property
    def issuer(self) -> str:
        """The URL of the issuer."""
        return f"http://{HOST}:{self.mark.issuer_port}"

    def key(self, name: str) -> Path:
        """The file of a private key."""
        return self.path / "keys" / f"{name}.pem"

    @property
    def log_key(self) -> Path:
        """The file of the log's private key: the one that the profile names, once there is one. Raises: Malformed."""
        made = self.key("log")
        stated = read_table(self.profile, "serve").get("log_key") if self.profile.exists() else None
        return made if stated is None else self.path / c.string(stated, "serve.log_key")

    def profile_of(self, party: Party) -> Path:
        """The profile of a party."""
        return self.path / f"{party.slug}.toml"


def is_ours_or_free(folder: Path) -> bool:
    """Whether ``epsilon up`` made a folder, or may: it is empty or not there. Raises: OSError."""
    if not folder.exists() and not folder.is_symlink():
        return True
    if not folder.is_dir():
        return False
    remove_leftovers(folder / MARK)
    return (folder / MARK).is_file() or not any(folder.iterdir())


def read_mark(folder: Path) -> Mark | None:
    """The mark of a folder; None if it has none. Raises: FolderTaken, for a mark of another form; OSError."""
    try:
        with (folder / MARK).open("rb") as file:
            return read(Mark, file.read(MARK_BYTES_MAX + 1), MARK_BYTES_MAX, "mark")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Malformed:
        raise FolderTaken(f"{folder / MARK} is not as `epsilon up` writes it: name another folder") from None


def claim(folder: Path, port: int, issuer_port: int) -> None:
    """Make a folder that is free: readable by its owner alone, with its mark. Raises: OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    mark = Mark(issuer_port=issuer_port, origin=f"localhost/development-{secrets.token_hex(8)}", port=port)
    create_file(folder / MARK, write(mark))


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold a marked folder for this process. Raises: FolderTaken, if another one does; OSError."""
    lock = os.open(folder / MARK, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderTaken(
                f"another `epsilon up` runs {folder}: use it, stop it with Ctrl-C, or name another folder"
            ) from None
        yield
    finally:
        os.close(lock)


def complete(folder: DevelopmentFolder) -> None:
    """Make what is missing of a folder, and bring its book to this program's schema. Raises: Malformed, OSError.

    Raises:
        FolderTaken: if the book cannot be made, with what ``epsilon db upgrade`` says.
    """
    for party in PARTIES:
        signing_key(folder.key(party.slug))
    signing_key(folder.key("attester"))
    signing_key(folder.key("log"))
    log = verifier_key(folder.log_key, folder.mark.origin)
    write_verifier_key(folder.path / "log.vkey", log)
    write_jwk_set(folder.path / "issuer.jwks", signing_key(folder.key("issuer")))
    for party in PARTIES:
        if not folder.profile_of(party).exists():
            create_profile(folder.profile_of(party), {"client": _client(folder, party, log.vkey)})
    if not folder.profile.exists():
        create_profile(folder.profile, _service(folder), "The service and the development issuer of `epsilon up`.")
    upgrade = [sys.executable, "-m", "epsilon_ledger", "db", "upgrade", str(folder.book)]
    done = subprocess.run(upgrade, check=False, capture_output=True, text=True)  # noqa: S603 - our own command
    if done.returncode:
        # It names the book.
        raise FolderTaken(done.stderr.strip())


def _client(folder: DevelopmentFolder, party: Party, vkey: str) -> dict[str, Value]:
    return {
        "service": folder.service,
        "issuer": folder.issuer,
        "log": vkey,
        "actor": party.did,
        "key": f"keys/{party.slug}.pem",
    }


def _service(folder: DevelopmentFolder) -> dict[str, dict[str, Value]]:
    mark = folder.mark
    return {
        "serve": {
            "book": folder.book.name,
            "keys": folder.data_keys.name,
            "log_key": "keys/log.pem",
            "origin": mark.origin,
            "host": HOST,
            "port": mark.port,
            "issuers": {folder.issuer: "issuer.jwks"},
        },
        "issuer": {
            "host": HOST,
            "port": mark.issuer_port,
            "audience": mark.origin,
            "key": "keys/issuer.pem",
            "clients": {party.did: f"keys/{party.slug}.pem" for party in PARTIES},
        },
    }
