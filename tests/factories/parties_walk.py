"""The first steps of three parties (docs/guides/three_parties.md), run line by line against a served book."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from api.dev_issuer.routes import create_issuer_app
from api.server.http_server import serving
from client.keys.signer import Signer
from ledger.book.wall_clock import unix_ms
from tests.factories.callers import OfTheWorld
from tests.factories.command_runs import run_command
from tests.factories.people import ORIGIN
from tests.factories.service import ServedWorld, open_world

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "guides" / "three_parties.md"


@dataclass(frozen=True)
class Ran:
    """What one command did."""

    line: str
    code: int
    out: str
    err: str


class Desk:
    """A folder with the example's files, in which commands run."""

    def __init__(self, folder: Path, world: ServedWorld) -> None:
        """The example's files, with today's dates and the world's log; the service is put in when it is known."""
        self.folder, self.world = folder, world
        self.began = datetime.fromtimestamp(world.clock.now / 1000, UTC)
        shutil.copytree(ROOT / "docs" / "example", folder)
        for path in folder.iterdir():
            path.write_text(self.today(path.read_text()))
        everybody = world.everybody
        self.issuer = OfTheWorld(everybody.url, ORIGIN, everybody.signer, {}, {}, unix_ms)
        self.issuer.world = world.clock
        self.profiles(log=world.log.vkey, service=world.url)

    def today(self, text: str) -> str:
        """The dates of the page, as days from today."""
        for date, days in (("2026-12-01", 0), ("2026-12-02", 1), ("2027-12-01", 365)):
            text = text.replace(f"{date}T00:00:00Z", (self.began + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ"))
        return text

    def known_to_the_issuer(self, slug: str) -> None:
        """Whose key it is, the issuer learns outside of the ledger."""
        self.issuer.add(f"did:web:{slug}.example", Signer.load(self.folder / f"{slug}.pem").public)

    def profiles(self, **said: str) -> None:
        """Put values into every profile."""
        for path in self.folder.glob("*.toml"):
            text = path.read_text()
            for name, value in said.items():
                text = re.sub(f'^{name} = ".*"$', f'{name} = "{value}"', text, flags=re.MULTILINE)
            path.write_text(text)

    def run(self, line: str) -> Ran:
        """Run a line of shell: one command of ours, and where its output goes."""
        # The world's time goes on as the machine's does, by which commands tell theirs.
        self.world.clock.now = max(self.world.clock.now, unix_ms() // 1000 * 1000)
        words = shlex.split(self.today(line))
        target = words[words.index(">") + 1] if ">" in words else ""
        given = words[1 : words.index(">")] if target else words[1:]
        with chdir(self.folder):
            done = run_command(given)
        if target:
            (self.folder / target).write_text(done.out)
        return Ran(line, *done)


def lines_of_the_page() -> list[list[str]]:
    """The commands of the page, block by block."""
    page = PAGE.read_text(encoding="utf-8")
    return [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)]


@contextmanager
def walked(folder: Path) -> Iterator[tuple[Desk, list[Ran]]]:
    """A served book after the walk, at today's time; and what each command did."""
    with open_world(folder) as world:
        world.clock.now = unix_ms() // 1000 * 1000
        desk = Desk(folder / "desk", world)
        keys, *rest = lines_of_the_page()
        ran = [desk.run(line) for line in keys]
        for slug in ("sro", "hospital", "bank-a"):
            desk.known_to_the_issuer(slug)
        with serving(create_issuer_app(desk.issuer), world.listener) as issuer:
            desk.profiles(issuer=issuer)
            ran += [desk.run(line) for block in rest for line in block]
            yield desk, ran
