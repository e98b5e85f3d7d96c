"""The layout of tlog-tiles: every path, the bytes at it, and what an auditor makes of a whole folder."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.log.tiles import Tile, tile_bytes, tiles_of
from ledger.verifier import EMPTY_ROOT, Checkpoint, Fetch, VerificationError, read_bundle, verify_tiles
from ledger.wire.malformed import Malformed
from tests.ledger.log.memory_log import KEY, ORIGIN, Log, log_of
from tests.ledger.log.test_merkle import naive_root

SIZES = (1, 2, 5, 255, 256, 257, 600)
LOGS = {size: log_of(size) for size in SIZES}


def published(log: Log, size: int | None = None) -> dict[str, bytes]:
    """Every file of a log, by its path."""
    size = len(log.entries) if size is None else size

    def hashes(level: int, start: int, stop: int) -> list[bytes]:
        return [log.read(level, place) for place in range(start, stop)]

    def entries(start: int, stop: int) -> list[bytes]:
        return log.entries[start:stop]

    files = {tile.path: tile_bytes(tile, size, hashes, entries) for tile in tiles_of(size)}
    return {**files, "checkpoint": log.note(size).encode()}


def fetch_of(files: dict[str, bytes]) -> Fetch:
    """A server of these files."""
    return lambda path, _: files.get(path)


LEVELS = st.one_of(st.none(), st.integers(0, 63))


@given(LEVELS, st.integers(0, 10**18 - 1), st.integers(1, 256))
def test_a_path_is_read_as_it_is_written(level: int | None, index: int, width: int) -> None:
    """The parser is the inverse of the formatter."""
    tile = Tile(level, index, width)
    assert Tile.parse(tile.path) == tile


def test_published_paths() -> None:
    """The specification's own examples: an index of seven digits, and a log of 70,000 entries."""
    assert Tile(0, 1_234_067).path == "tile/0/x001/x234/067"
    tiles = list(tiles_of(70_000))
    hashes = [tile for tile in tiles if tile.level is not None]
    assert len([tile for tile in hashes if (tile.level, tile.width) == (0, 256)]) == 273
    assert [tile.path for tile in hashes if tile.width < 256 or tile.level != 0] == [
        "tile/0/273.p/112",
        "tile/1/000",
        "tile/1/001.p/17",
        "tile/2/000.p/1",
    ]
    assert len([tile for tile in tiles if tile.level is None]) == 274
    assert [tile.path for tile in tiles_of(256)] == ["tile/entries/000", "tile/0/000", "tile/1/000.p/1"]
    assert [*tiles_of(0)] == []


@pytest.mark.parametrize(
    "path",
    [
        "",
        "checkpoint",
        "/tile/0/000",
        "tile/0/000/",
        "tile/0/0",
        "tile/0/0000",
        "tile/0/x000/001",
        "tile/0/001/002",
        "tile/0/x001/x002",
        "tile/00/000",
        "tile/64/000",
        "tile/-1/000",
        "tile/0/000.p/0",
        "tile/0/000.p/01",
        "tile/0/000.p/256",
        "tile/0/000.p/",
        "tile/0/000.p/1\n",
        "tile/0/٠٠٠",
        "tile/entry/000",
        "tile/entries/../000",
        "tile/0/" + "x001/" * 6 + "000",
    ],
)
def test_no_other_path_is_one(path: str) -> None:
    """Another spelling of the same place, or no place at all: refused by name."""
    with pytest.raises(Malformed, match=r"^path: "):
        Tile.parse(path)


@pytest.mark.parametrize("size", SIZES)
def test_tiles_are_the_hashes_of_the_definition(size: int) -> None:
    """MTH(D[(n·256 + i)·256^l : (n·256 + i + 1)·256^l]), by the recursion of RFC 9162."""
    log = LOGS[size]
    leaves = [hashlib.sha256(b"\x00" + entry).digest() for entry in log.entries]
    files = published(log)
    for tile in tiles_of(size):
        start = tile.index * 256
        if tile.level is None:
            assert read_bundle(files[tile.path], tile.path) == log.entries[start : start + tile.width]
        else:
            span = 256**tile.level
            places = range(start, start + tile.width)
            expected = [naive_root(tuple(leaves[place * span : (place + 1) * span])) for place in places]
            assert files[tile.path] == b"".join(expected)


def test_what_a_log_has_not() -> None:
    """A tile beyond its entries, or wider than they reach: no bytes, but the narrower ones of earlier sizes."""
    log = LOGS[257]

    def hashes(level: int, start: int, stop: int) -> list[bytes]:
        return [log.read(level, place) for place in range(start, stop)]

    def asked(tile: Tile) -> bytes:
        return tile_bytes(tile, 257, hashes, lambda start, stop: log.entries[start:stop])

    for tile in (Tile(0, 1), Tile(0, 1, 2), Tile(0, 2, 1), Tile(1, 0), Tile(2, 0, 1), Tile(None, 1, 2), Tile(63, 0)):
        with pytest.raises(KeyError):
            asked(tile)
    for tile in (Tile(0, 0), Tile(None, 0), Tile(0, 0, 101), Tile(1, 0, 1)):
        with pytest.raises(KeyError):
            tile_bytes(tile, 100, hashes, lambda start, stop: log.entries[start:stop])
    assert asked(Tile(0, 0, 17)) == asked(Tile(0, 0))[: 17 * 32]
    assert len(asked(Tile(None, 1, 1))) == 2 + len(log.entries[256])


@pytest.mark.parametrize("size", SIZES)
def test_a_whole_log_is_recomputed(size: int) -> None:
    """Every entry, every hash and the root; and what was kept at any size before."""
    log, files = LOGS[size], published(LOGS[size])
    assert verify_tiles(fetch_of(files), KEY) == log.checkpoint(size)
    for kept in {0, 1, size // 2, size - 1, size}:
        assert verify_tiles(fetch_of(files), KEY, log.checkpoint(kept)).size == size


def test_an_empty_log_is_whole() -> None:
    """Its checkpoint is all that there is."""
    empty = Log([])
    assert verify_tiles(fetch_of(published(empty, 0)), KEY) == Checkpoint(ORIGIN, 0, EMPTY_ROOT)


def test_full_tiles_stand_for_partial_ones() -> None:
    """A log that grew may have deleted the partial tiles that an earlier checkpoint was published with."""
    grown, log = published(LOGS[600]), LOGS[600]
    files = {path: data for path, data in grown.items() if path.startswith("tile/") and ".p/" not in path}
    files |= {path: data for path, data in published(log, 256 + 17).items() if "/1/" in path or "/001.p/" in path}
    del files["tile/0/001.p/17"]
    del files["tile/entries/001.p/17"]
    files["checkpoint"] = log.note(256 + 17).encode()
    assert verify_tiles(fetch_of(files), KEY).size == 256 + 17


def test_every_byte_counts() -> None:
    """One byte changed, anywhere in any file of a small log: the file, or the checkpoint, is named."""
    files = published(LOGS[5])
    for path, data in files.items():
        for place in range(len(data)):
            for bit in (0, 7):
                changed = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
                with pytest.raises(VerificationError):
                    verify_tiles(fetch_of({**files, path: changed}), KEY)


@pytest.mark.parametrize("seed", range(20))
def test_every_file_counts(seed: int) -> None:
    """In a log of two levels, a file gone, cut, doubled, or changed at one place."""
    dice = random.Random(seed)  # noqa: S311 - a place to damage
    files = published(LOGS[600])
    changes: list[Callable[[bytes], bytes | None]] = [
        lambda _: None,
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data + data[:32],
        lambda _: b"",
        lambda data: _turned(data, dice.randrange(len(data)), dice.randrange(8)),
    ]
    for path, data in files.items():
        for change in changes:
            made = change(data)
            damaged = {name: content for name, content in files.items() if name != path}
            if made is not None:
                damaged[path] = made
            with pytest.raises(VerificationError):
                verify_tiles(fetch_of(damaged), KEY)


def _turned(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def test_the_fault_names_the_entry() -> None:
    """An entry changed in its bundle, a hash in its tile: the first that differ."""
    files = published(LOGS[600])
    bundle, tile = bytearray(files["tile/entries/001"]), bytearray(files["tile/0/001"])
    bundle[files["tile/entries/001"].index(b"entry 300")] ^= 1
    tile[32 * 5] ^= 1
    above = bytearray(files["tile/1/000.p/2"])
    above[32] ^= 1
    for path, data, said in (
        ("tile/entries/001", bundle, "tile/0/001: has another hash than entry 300 as published"),
        ("tile/0/001", tile, "tile/0/001: has another hash than entry 261 as published"),
        ("tile/1/000.p/2", above, "tile/1/000.p/2: has another hash than entries 256 to 511 as published"),
    ):
        with pytest.raises(VerificationError) as fault:
            verify_tiles(fetch_of({**files, path: bytes(data)}), KEY)
        assert str(fault.value) == said


def test_a_bundle_has_as_many_entries_as_its_path_says() -> None:
    """One more, of no tile, is one too many: in a partial bundle, and in a full one."""
    for size, path in ((600, "tile/entries/002.p/88"), (256, "tile/entries/000"), (600, "tile/entries/000")):
        files = published(LOGS[size])
        with pytest.raises(VerificationError, match=path):
            verify_tiles(fetch_of({**files, path: files[path] + b"\x00\x04more"}), KEY)


def test_what_is_published_is_what_was_signed() -> None:
    """Entries and tiles that fit one another, under a checkpoint of other ones."""
    log = LOGS[257]
    forged = Log([b"another", *log.entries[1:]])
    with pytest.raises(VerificationError, match="has another root than the 257 entries have"):
        verify_tiles(fetch_of({**published(forged), "checkpoint": log.note(257).encode()}), KEY)


def test_a_rewritten_history_is_a_fork() -> None:
    """Everything published fits together, signed by the log's own key; the checkpoint that was kept does not."""
    log = LOGS[600]
    forged = Log([*log.entries[:40], b"entry 40, another one", *log.entries[41:]])
    files = published(forged)
    assert verify_tiles(fetch_of(files), KEY).size == 600
    assert verify_tiles(fetch_of(files), KEY, log.checkpoint(40)).size == 600
    for kept, said in ((41, "its first 41 entries"), (599, "its first 599 entries"), (600, "two roots for 600")):
        with pytest.raises(VerificationError, match=said):
            verify_tiles(fetch_of(files), KEY, log.checkpoint(kept))
    with pytest.raises(VerificationError, match="600 were signed before: some are gone"):
        verify_tiles(fetch_of(published(log, 257)), KEY, log.checkpoint(600))
