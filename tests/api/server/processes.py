"""Real ``epsilon serve`` processes over one book, and a world of parties in front of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from api.keys.data_key_store import FileKeyStore
from client.keys.signer import Signer, load_private
from ledger.book.book import Book
from ledger.book.wall_clock import unix_ms
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.callers import Everybody
from tests.factories.people import ORIGIN
from tests.factories.service import ServedWorld, machine_clock

ISSUER: Final = "http://127.0.0.1:9"
"""An issuer that nobody can ask: its tokens are made here, and its keys are in the profile."""
_READY: Final = " at "
_INFO: Final = '"level": "info"'


class Served:
    """One process, from when it listens."""

    def __init__(self, profile: Path, *options: str) -> None:
        """Start it on a free port and wait until it says where it serves; ``before`` is what it said first."""
        command = [sys.executable, "-m", "epsilon_ledger", "serve", str(profile), *options]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=profile.parent)
        assert self._process.stderr is not None
        self._told = self._process.stderr
        self.before: list[str] = []
        line = next((one for one in self._told if self._serves(one)), "")
        assert line, f"ended with {self._process.wait()}: {self.before}"
        self._said: list[str] = []
        self.killed = False
        # Its log is read as it comes: a pipe that nobody reads would stop it.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = line.rpartition(_READY)[2].split()[0]

    def _serves(self, line: str) -> bool:
        self.before.append(line)
        return line.startswith("Serving ")

    def _read(self) -> None:
        with self._told:
            self._said += [line for line in self._told if _INFO not in line]

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """As the kernel kills: nothing of it runs any more."""
        self.killed = True
        self._process.kill()
        self._process.wait()

    def end(self) -> str:
        """Interrupt it, and wait; its log since it served, requests left out, which is nothing if all was well."""
        died = not self.runs and not self.killed
        if self.runs:
            self._process.terminate()
        code = self._process.wait(60)
        self._reader.join(60)
        return "".join([*self._said, f"ended by itself with {code}"] if died else self._said)


def write_profile(folder: Path, book: str, log_key: Signer, everybody: Everybody, more: str = "") -> Path:
    """A folder with the profile of one server: its own copy of the log's key, and whose tokens it believes."""
    folder.mkdir(exist_ok=True)
    log_key.save(folder / "log.pem")
    (folder / "issuer.jwks").write_bytes(c.dump({"keys": [everybody.signer.jwk]}))
    lines = (
        "v = 1\n[serve]",
        f'book = "{book}"',
        'log_key = "log.pem"',
        f'origin = "{ORIGIN}"',
        'host = "127.0.0.1"\nport = 0',
        more,
        "[serve.issuers]",
        f'"{everybody.url}" = "issuer.jwks"',
    )
    path = folder / "profile.toml"
    path.write_text("\n".join(lines))
    return path


class Servers:
    """Servers of one book and one log, started as they are wanted, and a world of parties. It is today in it."""

    def __init__(self, folder: Path, book: str) -> None:
        """Before any runs."""
        self.book = book
        self._folder, self._parties = folder, ExitStack()
        self._served: list[Served] = []
        self._started: list[Served] = []
        self._clock = machine_clock()
        self._everybody = Everybody(ISSUER, ORIGIN, self._clock)
        self._log_key = Signer.generate()
        self._log_key.save(folder / "log.pem")
        (first,) = self.running(1)
        private = load_private(folder / "log.pem")
        log = LogKey(ORIGIN, private.public_key().public_bytes_raw())
        opened = Book.open(book, gate=gate, log_key=private, origin=ORIGIN, clock=unix_ms)
        self._parties.callback(opened.close)
        keys = FileKeyStore(folder / "keys")
        self.world = ServedWorld(opened, first.url, clock=self._clock, keys=keys, log=log, everybody=self._everybody)
        self._parties.callback(self.world.service.close)
        self._parties.callback(self.world.http.close)

    def running(self, number: int) -> list[Served]:
        """So many of them; those that were killed are replaced. The world speaks to the first there ever was."""
        # What is signed from now on is signed now.
        self._clock.now = unix_ms()
        self._served = [one for one in self._served if one.runs]
        while len(self._served) < number:
            place = self._folder / f"server-{len(list(self._folder.glob('server-*')))}"
            # They run on one machine, and share what is kept outside the book.
            # A race for a budget is mostly refusals, more of them than one organisation has in an hour.
            kept = f'kept = "{self._folder / "kept"}"\nquotas = {{refusals_per_hour = 100000}}'
            self._served.append(Served(write_profile(place, self.book, self._log_key, self._everybody, kept)))
            self._started.append(self._served[-1])
        return self._served[:number]

    def close(self) -> str:
        """End them all; what they logged beside requests, which is nothing if all was well."""
        self._parties.close()
        return "".join([one.end() for one in self._started])
