"""``make depa``: play the scenario in a new folder.

    python -m api.demo.depa FOLDER [--level 2]

``EPSILON_DEPA=folder`` takes DEPA's own raw files, and its papers where they lie there or beside it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from api.demo.depa.scene import Scene, verify
from api.demo.heartbeat import heartbeat
from api.demo.stage import ORIGIN, make_room, open_stage, prepare
from api.keys.data_key_store import FileKeyStore
from client.keys.signer import Signer, load_private
from ledger.book.book import Book
from ledger.book.wall_clock import unix_ms
from ledger.store.engine import url_of
from ledger.verifier import LogKey
from policy.decisions.gate import gate


def play(folder: Path, console: Console, level: int = 1) -> Scene:
    """Everything, in a folder that is new or an earlier demonstration's, which is replaced. Raises: as the scene."""
    make_room(folder, replace=True)
    prepare(folder)
    Signer.generate().save(folder / "log.pem")
    log_key = load_private(folder / "log.pem")
    log = LogKey(ORIGIN, log_key.public_key().public_bytes_raw())
    (folder / "log.vkey").write_text(f"{log.vkey}\n", encoding="ascii")
    path, keys = folder / "book.sqlite", FileKeyStore(folder / "data-keys")
    upgrade = [sys.executable, "-m", "epsilon_ledger", "db", "upgrade", str(path)]
    with heartbeat(console, "making the book"):
        subprocess.run(upgrade, check=True, capture_output=True)  # noqa: S603 - our own command
    book = Book.open(url_of(path), gate=gate, log_key=log_key, origin=ORIGIN, clock=unix_ms)
    try:
        with open_stage(book, keys, log) as (address, enrol):
            scene = Scene(folder, address, enrol, keys, console, unix_ms() // 1000 * 1000, level)
            scene.play()
    finally:
        book.close()
    verify(folder, console)
    return scene


def main(
    folder: Annotated[Path, typer.Argument(help="Where the book, the keys and the model will be.")] = Path("demo-depa"),
    level: Annotated[int, typer.Option(min=1, max=2, help="The data's Level; at 2 no model leaves.")] = 1,
) -> None:
    """Play DEPA's COVID scenario, from its contract to a verified book."""
    play(folder, Console(), level)


if __name__ == "__main__":
    typer.run(main)
