"""What a login leaves: one file for each person's profile, mode 0600, in the folder of this program's settings.

    {"access_token":"...","client_id":"epsilon","expires_s":1795233900,"issuer":"https://login.example",
     "log":"epsilon.example/ledger+8f2c1a90+AQ...","service":"https://ledger.example","subject":"asha","v":1}

It is not beside the profile: a profile is passed around, and may be read by many. The file says for what the login
was; a profile that has come to say something else finds nobody logged in, and the token goes nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Final

from client.http.problems import Refused
from client.keys.private_file import read_private, write_private
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

FILE_BYTES_MAX: Final = 32_768
TOKEN_LENGTH_MAX: Final = 8_192
TIME_S_MAX: Final = 253_402_300_799
LOGIN_NEEDED: Final = "login_needed"
_NAMES: Final = ("access_token", "client_id", "expires_s", "issuer", "log", "service", "subject", "v")


@dataclass(frozen=True, slots=True)
class Purpose:
    """For what a login is: at which issuer, as which program, to read which log at which service."""

    issuer: str
    client_id: str
    service: str
    log: str


@dataclass(frozen=True, slots=True)
class Login:
    """A person's access token, until when it holds (Unix seconds), and who that person is to the issuer."""

    purpose: Purpose
    subject: str
    expires_s: int
    access_token: str = field(repr=False)

    def to_json(self) -> c.Object:
        """As the file has it."""
        return {
            "access_token": self.access_token,
            "client_id": self.purpose.client_id,
            "expires_s": self.expires_s,
            "issuer": self.purpose.issuer,
            "log": self.purpose.log,
            "service": self.purpose.service,
            "subject": self.subject,
            "v": 1,
        }

    @classmethod
    def parse(cls, data: bytes) -> Login:
        """Read what :meth:`to_json` gives. Raises: Malformed."""
        known = c.fields(c.parse(data, FILE_BYTES_MAX, "login"), "login", _NAMES)
        c.integer(known["v"], "login.v", 1, 1)
        issuer, client_id, service, log = (
            c.string(known[name], f"login.{name}") for name in ("issuer", "client_id", "service", "log")
        )
        return cls(
            Purpose(issuer, client_id, service, log),
            subject=c.string(known["subject"], "login.subject"),
            expires_s=c.integer(known["expires_s"], "login.expires_s", 0, TIME_S_MAX),
            access_token=c.string(known["access_token"], "login.access_token", TOKEN_LENGTH_MAX),
        )


class LoginFile:
    """Where the login of one profile is kept."""

    def __init__(self, profile: Path) -> None:
        """Of the profile in this file, by its absolute path."""
        self._profile = profile
        name = sha256(str(profile.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
        self.path = _folder() / f"{name}.json"

    def write(self, login: Login) -> None:
        """Keep a login in place of the one before. Raises: OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.path, c.dump(login.to_json()))

    def read(self, purpose: Purpose, now: float) -> Login:
        """The login that was kept, if it is for this and holds ``now``, in Unix seconds. Raises: Refused, OSError."""
        try:
            login = Login.parse(read_private(self.path, FILE_BYTES_MAX + 1, "login"))
        except FileNotFoundError:
            raise self._needed("nobody is logged in") from None
        except Malformed as fault:
            raise self._needed(f"what the login left cannot be used ({fault})") from None
        if login.purpose != purpose:
            raise self._needed("the profile has changed since the login")
        if now >= login.expires_s:
            raise self._needed(f"the login of {login.subject} has expired")
        return login

    def remove(self) -> bool:
        """Forget it; whether there was one. Raises: OSError."""
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
