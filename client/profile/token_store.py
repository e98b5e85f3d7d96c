"""A stored login: one file for each person's profile, mode 0600, in the folder of this program's settings.

    {"access_token":"...","client_id":"epsilon","expires_s":1795233900,"issuer":"https://login.example",
     "log":"epsilon.example/ledger+8f2c1a90+AQ...","service":"https://ledger.example","subject":"asha","v":1}

It is not beside the profile, which others may read or copy. The file records the purpose of the login: after a change
of the profile a new login is needed, and the token is sent nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Annotated, Final, Literal

from client.http.problems import Refused
from client.keys.private_file import read_private
from ledger.files.atomic_file import replace_file
from ledger.wire.field_types import between, constant, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, read, write

FILE_BYTES_MAX: Final = 32_768
TOKEN_LENGTH_MAX: Final = 8_192
TIME_S_MAX: Final = 253_402_300_799
LOGIN_NEEDED: Final = "login_needed"


class Purpose(Record, frozen=True):
    """The purpose of a login: at which issuer, as which program, to read which log at which service."""

    client_id: Annotated[str, text(200, description="the id under which the issuer knows this program")]
    issuer: Annotated[str, text(1_000, description="the URL of the issuer at which the person logs in")]
    log: Annotated[str, text(1_000, description="the log's verifier key: whose signature is believed")]
    service: Annotated[str, text(1_000, description="the URL of the service")]


class Login(Purpose, frozen=True):
    """A person's access token, its expiry (Unix seconds), and the issuer's identifier of the person."""

    access_token: Annotated[str, text(TOKEN_LENGTH_MAX)]
    expires_s: Annotated[int, between(0, TIME_S_MAX)]
    subject: Annotated[str, text(1_000)]
    v: Literal[1] = constant(1)

    def __repr__(self) -> str:
        """Show who is logged in, without the token."""
        return f"Login({self.subject} at {self.issuer} until {self.expires_s})"


class LoginFile:
    """The file of one profile's login."""

    def __init__(self, profile: Path) -> None:
        """Of the profile in this file, by its absolute path."""
        self._profile = profile
        name = sha256(str(profile.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
        self.path = _folder() / f"{name}.json"

    def write(self, login: Login) -> None:
        """Store a login in place of the one before. Raises: OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self.path, write(login))

    def read(self, purpose: Purpose, now: float) -> Login:
        """The stored login, if it is for ``purpose`` and valid ``now``, in Unix seconds. Raises: Refused, OSError."""
        try:
            login = read(Login, read_private(self.path, FILE_BYTES_MAX + 1, "login"), FILE_BYTES_MAX, "login")
        except FileNotFoundError:
            raise self._needed("not logged in") from None
        except Malformed as error:
            raise self._needed(f"the stored login cannot be used ({error})") from None
        if any(getattr(login, name) != getattr(purpose, name) for name in Purpose.__struct_fields__):
            raise self._needed("the profile has changed since the login")
        if now >= login.expires_s:
            raise self._needed(f"the login of {login.subject} has expired")
        return login

    def remove(self) -> bool:
        """Delete it; whether there was one. Raises: OSError."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def _needed(self, why: str) -> Refused:
        detail = f"{why}: run `epsilon login {quote(str(self._profile))}`"
        return Refused(401, {"code": LOGIN_NEEDED, "detail": detail, "field": str(self._profile)})


class LoginCredentials:
    """A person's own: the token that the last login left."""

    def __init__(self, file: LoginFile, purpose: Purpose, clock: Callable[[], float] = time.time) -> None:
        """Show what ``file`` keeps for ``purpose``; ``clock`` gives Unix seconds."""
        self._file, self._purpose, self._clock = file, purpose, clock

    def token(self) -> str:
        """The token, read anew each time, so that a login meanwhile counts. Raises: Refused, OSError."""
        return self._file.read(self._purpose, self._clock()).access_token


def _folder() -> Path:
    from typer import get_app_dir

    return Path(get_app_dir("epsilon-ledger")) / "logins"
