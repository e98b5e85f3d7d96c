"""The bytes of a snapshot of the state: every record that has a leaf, and the names that are used, at one size.

    {"log":"example+5ec5f1f3+AQ...","names":41,"records":17,"root":"9f86...","size":23,"v":1}
    ["accounts",["did:web:hospital.example/images/2026","global"],["did:...","global",[[1],[0]],[[2],[0]]],"60303a..."]
    ...
    41 times 17 bytes, and 32 bytes

The first line names the log by its key, the size and the state's root. Then comes one line a record, in order of the
hashed names: the part, the key, the record and the salt of its leaf, as canonical JSON. Behind the last line stand the
names as the leaf of the log hashes them (:class:`ledger.state_tree.leaves.LogFacts`), and the SHA-256 of everything
before it. So the root follows from these bytes alone. Whether it is that of the log's entries, a statement of state in
the log says; the digest at the end shows at once that a file is torn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from hashlib import sha256
from types import GenericAlias
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import msgspec

from ledger.accounts.account_sums import Prices
from ledger.state_tree.leaves import LOG, PARTS, LogFacts, StatedRecord, stated_value
from ledger.state_tree.sparse_tree import Leaf, SparseTree
from ledger.wire.field_types import Sha256, between, constant, read_custom, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, read, write

HEADER_BYTES_MAX: Final = 4_096
"""The first line of a snapshot."""
SIZE_MAX: Final = 2**53 - 1
NAME_BYTES: Final = 17
"""A name that is used: its kind, 8 bytes of its digest, and the entry's index in 8 bytes."""
_DIGEST_BYTES: Final = 32


class SnapshotHeader(Record, frozen=True):
    """The first line: of which log and size the state is, its root, and how many records and names follow."""

    log: Annotated[str, text(1_024)]
    names: Annotated[int, between(0, SIZE_MAX)]
    records: Annotated[int, between(0, SIZE_MAX)]
    root: Sha256
    size: Annotated[int, between(1, SIZE_MAX)]
    v: Literal[1] = constant(1)


class StateSnapshot(NamedTuple):
    """The state of a log at one size.

    Attributes:
        tree: its leaves, each with its :class:`StatedRecord`.
        names: the names that are used, in order, of :data:`NAME_BYTES` each.
    """

    log: str
    size: int
    tree: SparseTree
    names: bytes

    def parts(self) -> dict[str, dict[Any, Any]]:
        """The records by part and key; in each part by the entries that made them, where they say which."""
        found: dict[str, dict[Any, Any]] = {part: {} for part in PARTS}
        for leaf in sorted(self.tree, key=_made):
            found[leaf.content.part][leaf.content.key] = leaf.content.value
        return found


def _made(leaf: Leaf) -> tuple[int, bytes]:
    """What orders the records of a part: the index of the entry that made it, if it says one, and its name."""
    record: StatedRecord = leaf.content
    first = record.value[0] if record.part in {"policies", "streams"} else record.value
    index = getattr(first, "index", 0)
    return index if isinstance(index, int) else 0, leaf.key


def write_snapshot(log: str, size: int, tree: SparseTree, names: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a snapshot, in pieces.

    Args:
        log: the log's verifier key.
        size: how many entries the tree is of.
        tree: with a :class:`StatedRecord` in each leaf.
        names: those that the log's leaf covers, in pieces.
    """
    leaves, kept = [*tree], [*names]
    count = sum(map(len, kept)) // NAME_BYTES
    whole = sha256()
    for piece in _pieces(SnapshotHeader(log, count, len(leaves), tree.root.hex(), size), leaves, kept):
        whole.update(piece)
        yield piece
    yield whole.digest()


def _pieces(header: SnapshotHeader, leaves: list[Leaf], names: list[bytes]) -> Iterator[bytes]:
    yield write(header) + b"\n"
    for leaf in leaves:
        record: StatedRecord = leaf.content
        yield write((record.part, record.key, stated_value(record.value), record.salt.hex())) + b"\n"
    yield from names


def read_snapshot(data: bytes, log: str) -> StateSnapshot:
    """Read a snapshot, and recompute its root.

    Args:
        log: the verifier key of the log that it must be of.

    Raises:
        Malformed: if it is torn, of another log or another version, or its root is not that of its records.
    """
    body = memoryview(data)[:-_DIGEST_BYTES]
    if sha256(body).digest() != data[-_DIGEST_BYTES:]:
        raise Malformed("", "is torn or was changed")
    at = data.find(b"\n")
    header = read(SnapshotHeader, data[: max(at, 0)], HEADER_BYTES_MAX, "the first line")
    if header.log != log:
        raise Malformed("log", "is another log's")
    first_name = len(body) - header.names * NAME_BYTES
    *lines, rest = bytes(body[at + 1 : max(first_name, 0)]).split(b"\n")
    if rest or len(lines) != header.records:
        raise Malformed("records", f"there are {len(lines)} lines, not {header.records}")
    tree = SparseTree().updated([], [_read_record(line).leaf for line in lines])
    names = bytes(body[first_name:])
    if tree.root.hex() != header.root:
        raise Malformed("root", "is not that of the records")
    _check_names(tree, names)
    return StateSnapshot(log, header.size, tree, names)


def _check_names(tree: SparseTree, names: bytes) -> None:
    facts = next((one.content.value for one in tree if one.content.part == LOG), None)
    if not isinstance(facts, LogFacts) or facts.names != sha256(names).hexdigest():
        raise Malformed("names", "are not those that the state's leaf of the log covers")


def _read_record(line: bytes) -> StatedRecord:
    """A record from its line. Raises: Malformed."""
    part = line[2 : line.find(b'"', 2)].decode(errors="replace")
    if part not in PARTS:
        raise Malformed("records", f"{part[:40]} is no part of the state")
    try:
        _, key, value, salt = _decoder(part)(line)
        record = StatedRecord(part, key, value, bytes.fromhex(salt))
    except (msgspec.MsgspecError, ValueError) as error:
        raise Malformed("records", f"a record of {part} cannot be read: {error}") from None
    if write((part, key, stated_value(value), record.salt.hex())) != line:
        raise Malformed("records", f"a record of {part} is not canonical JSON")
    return record if part != "charges" else record._replace(value=value._replace(prices=_shared(value.prices)))


@lru_cache(maxsize=4_096)
def _shared(prices: Prices) -> Prices:
    """Prices are long, and the same for many charges: equal ones are one value."""
    return prices


@cache
def _decoder(part: str) -> Callable[[bytes], tuple[str, Any, Any, str]]:
    line: Any = GenericAlias(tuple, (str, *get_args(PARTS[part]), str))
    return msgspec.json.Decoder(line, dec_hook=read_custom).decode
