"""Copies of one founded book on either engine: quicker to have than a book that is founded anew."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ledger.store.engine import url_of
from tests.factories.stored import StoredWorld, fresh_book
from tests.postgres import databases, new_book


class Copies:
    """Of a book that was founded once, and that nobody has open since.

    Attributes:
        engine: of this book and of its copies.
        founded: how many entries it has.
    """

    def __init__(self, folder: Path, engine: str, stack: ExitStack, make: type[StoredWorld] = StoredWorld) -> None:
        """Found it. ``stack`` lets go of what is kept for it."""
        self.engine = engine
        if engine == "sqlite":
            stack.enter_context(fresh_book(folder))
            world = make(folder)
        else:
            self._database = stack.enter_context(new_book())
            world = make(folder, self._database.url)
        outcomes = world.submit(*world.founding())
        assert {one.code.word for one in outcomes} == {"permitted"}, outcomes
        self.founded = len(outcomes)
        world.book.close()
        self._path = world.path

    @contextmanager
    def one(self, folder: Path) -> Iterator[str]:
        """The URL of a copy while the block runs: in a folder that is made for it, or on the same server."""
        folder.mkdir()
        try:
            if self.engine == "sqlite":
                shutil.copyfile(self._path, folder / self._path.name)
                yield url_of(folder / self._path.name)
            else:
                database = databases().copy(self._database)
                try:
                    yield database.url
                finally:
                    databases().drop(database)
        finally:
            shutil.rmtree(folder)
