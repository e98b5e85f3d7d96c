"""A log as files: C2SP tlog-tiles, made from the book's own nodes and entries.

    checkpoint
    tile/0/x001/x234/067        256 leaf hashes, 8,192 bytes
    tile/1/000.p/17             its 17 hashes so far, each over 256 of the level below
    tile/entries/000.p/112      112 entries, each after its length in two bytes

A path without ``.p/`` is that of a full tile. The file at a path never changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ledger.verifier import TILE_WIDTH, tile_path
from ledger.wire.malformed import Malformed

Hashes = Callable[[int, int, int], Sequence[bytes]]
"""The hashes of the complete subtrees at a level, from one position up to another."""
Entries = Callable[[int, int], Sequence[bytes]]
"""The bytes of the entries from one index up to another."""
_BITS: Final = 8
_PATH: Final = re.compile(
    r"tile/(?:(?P<level>0|[1-9][0-9]?)|entries)/(?P<index>(?:x[0-9]{3}/){0,5}[0-9]{3})"
    r"(?:\.p/(?P<width>[1-9][0-9]{0,2}))?\Z"
)
_LEVEL_MAX: Final = 63


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of hashes at a level, or a bundle of entries where ``level`` is None.

    Attributes:
        index: its place among those of its level.
        width: how many hashes or entries it holds; 256 if it is full.
    """

    level: int | None
    index: int
    width: int = TILE_WIDTH

    @property
    def path(self) -> str:
        """Its path below the log's prefix."""
        return tile_path(self.level, self.index, self.width)

    @classmethod
    def parse(cls, path: str) -> Tile:
        """Read a path; the exact inverse of :attr:`path`. Raises: Malformed."""
        match = _PATH.match(path)
        if match is None:
            raise Malformed(
                "path", "must be tile/<level>/<index>, tile/entries/<index>, or one of them with .p/<width>"
            )
        level = None if match["level"] is None else int(match["level"])
        tile = cls(level, int(re.sub("[x/]", "", match["index"])), int(match["width"] or TILE_WIDTH))
        if tile.path != path or (level or 0) > _LEVEL_MAX or tile.width > TILE_WIDTH:
            raise Malformed("path", "is not spelled as tlog-tiles spells it")
        return tile


def tile_bytes(tile: Tile, size: int, hashes: Hashes, entries: Entries) -> bytes:
    """The file at a tile's path in a log of ``size`` entries. Raises: KeyError, if there is none."""
    start = tile.index * TILE_WIDTH
    stop = start + tile.width
    if stop > size >> _BITS * (tile.level or 0):
        raise KeyError(tile.path)
    if tile.level is None:
        data = [len(entry).to_bytes(2, "big") + entry for entry in entries(start, stop)]
    else:
        data = [*hashes(_BITS * tile.level, start, stop)]
    if len(data) != tile.width:
        raise KeyError(tile.path)
    return b"".join(data)


def tiles_of(size: int) -> Iterator[Tile]:
    """Every tile and bundle of a log of ``size`` entries: all full ones, and a partial one where one is due."""
    level, there = 0, size
    while there:
        full, rest = divmod(there, TILE_WIDTH)
        for name in (None, 0) if level == 0 else (level,):
            yield from (Tile(name, index) for index in range(full))
            if rest:
                yield Tile(name, full, rest)
        level, there = level + 1, full
