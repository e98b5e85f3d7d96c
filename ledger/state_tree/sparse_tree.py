"""A sparse Merkle tree: records at hashed keys, in a binary tree of fixed depth whose empty subtrees have one hash.

The tree has 2^64 places (:data:`ledger.verifier.STATE_DEPTH`), and a record is at the first 64 bits of its hashed
key. So a proof shows neither a key nor how many records there are beyond about their order of magnitude, which the size
of the log shows too, and the proof that a record is absent is a path to an empty place (Dahlberg, Pulls and Peeters
2016, "Efficient sparse Merkle trees", section 3). Two records whose keys agree in 64 bits share a place; each is still
bound to its whole key.

Only places that hold records and the forks above them are nodes here: n records take O(n) memory. A node is never
changed; an update makes new ones on the way to the root, so a tree that was handed out stays as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ledger.verifier import EMPTY_STATE, STATE_DEPTH, state_node_hash, state_place, state_place_hash


class Leaf(NamedTuple):
    """A record in the tree.

    Attributes:
        key: its hashed name, 32 bytes.
        hash: what commits to its salt and bytes, 32 bytes.
        content: what the leaf was made of, for its maker.
    """

    key: bytes
    hash: bytes
    content: Any


class _Place(NamedTuple):
    """A place that holds records, sorted by their keys; ``half_way`` is the hash at :data:`_HALF_WAY`."""

    depth: int
    position: int
    leaves: tuple[Leaf, ...]
    hash: bytes
    half_way: bytes


class _Fork(NamedTuple):
    """The lowest node above two nodes. ``position`` is one below it; each side's hash is that at ``depth + 1``."""

    depth: int
    position: int
    left: _Node
    right: _Node
    left_hash: bytes
    right_hash: bytes
    hash: bytes


PIECE: Final = 8
"""Records that are hashed at once: few enough that what waits for this thread waits about 0.5 ms."""
_HALF_WAY: Final = STATE_DEPTH // 2
"""Hardly any way forks below this depth. A place that gets a new neighbour is hashed from here on, not from its own."""
_Node = _Place | _Fork
_Side = tuple[_Node | None, bytes]
_Changes = dict[int, dict[bytes, Leaf | None]]
"""By place and key: the leaf that is set, None for one that goes."""


class Path(NamedTuple):
    """The way from a key's place to the root.

    Attributes:
        leaf: the record of the key; None if there is none.
        beside: the other records at its place.
        siblings: by depth, the hashes beside the way that are not of empty subtrees.
    """

    leaf: Leaf | None
    beside: tuple[Leaf, ...]
    siblings: dict[int, bytes]


class SparseTree:
    """A tree of leaves, never changed."""

    def __init__(self, top: _Node | None = None) -> None:
        """The empty tree, or the one below ``top``."""
        self._top = top

    @property
    def root(self) -> bytes:
        """The root hash."""
        return _hash_at(self._top, 0)

    def updated(
        self, removed: Iterable[bytes], added: Iterable[Leaf], rest: Callable[[], object] | None = None
    ) -> SparseTree:
        """The tree without the leaves of some keys, and with leaves that are new or replace those of their keys.

        Args:
            rest: is called before every :data:`PIECE` places, or fewer, are hashed.
        """
        changes: _Changes = {}
        for key in removed:
            changes.setdefault(state_place(key), {})[key] = None
        for leaf in added:
            changes.setdefault(state_place(leaf.key), {})[leaf.key] = leaf
        return SparseTree(_update(self._top, sorted(changes), changes, rest))

    def path(self, key: bytes) -> Path:
        """The path of a key, whether or not it has a leaf."""
        place, node, siblings = state_place(key), self._top, dict[int, bytes]()
        while node is not None:
            depth = min(node.depth, _fork_depth(place, node.position))
            if depth < node.depth:
                # The whole node is beside the way, below which everything is empty.
                siblings[depth] = _hash_at(node, depth + 1)
                break
            if isinstance(node, _Place):
                found = {leaf.key: leaf for leaf in node.leaves}
                return Path(found.pop(key, None), tuple(found.values()), siblings)
            left, right, left_hash, right_hash = node[2:6]
            node, siblings[depth] = (right, left_hash) if _bit(place, depth) else (left, right_hash)
        return Path(None, (), siblings)

    def beside(self, key: bytes) -> Iterator[SparseTree]:
        """The subtree of each hash beside the way of a key, and the other records at its place: what a path shows."""
        place, node = state_place(key), self._top
        while isinstance(node, _Fork) and _fork_depth(place, node.position) >= node.depth:
            left, right = node.left, node.right
            node, other = (right, left) if _bit(place, node.depth) else (left, right)
            yield SparseTree(other)
        if isinstance(node, _Place) and node.position == place:
            # Each by itself: their leaf hashes are shown.
            for leaf in node.leaves:
                if leaf.key != key:
                    yield SparseTree().updated([], [leaf])
        elif node is not None:
            yield SparseTree(node)

    def __iter__(self) -> Iterator[Leaf]:
        """Every leaf, by place."""
        waiting = [] if self._top is None else [self._top]
        while waiting:
            node = waiting.pop()
            if isinstance(node, _Place):
                yield from node.leaves
            else:
                waiting += (node.right, node.left)


def _update(
    node: _Node | None, places: list[int], changes: _Changes, rest: Callable[[], object] | None = None
) -> _Node | None:
    """A node with the changes at some places, in order, which lie below it or beside it."""
    if not places:
        return node
    if rest is not None and len(places) <= PIECE:
        rest()
        rest = None
    known = places[0] if node is None else node.position
    depth = min(_fork_depth(places[0], places[-1]), _fork_depth(places[0], known), node.depth if node else STATE_DEPTH)
    if depth == STATE_DEPTH:
        before = node.leaves if isinstance(node, _Place) else ()
        return _place_with(known, before, changes[known])
    middle = bisect_left(places, 1, key=lambda place: _bit(place, depth))
    sides: list[tuple[_Node, bytes]] = []
    for (old, old_hash), some in zip(_sides(node, depth), (places[:middle], places[middle:]), strict=True):
        new = _update(old, some, changes, rest)
        if new is not None:
            sides.append((new, old_hash if new is old and old_hash else _hash_at(new, depth + 1)))
    if len(sides) < 2:
        return sides[0][0] if sides else None
    (left, left_hash), (right, right_hash) = sides
    return _Fork(depth, known, left, right, left_hash, right_hash, state_node_hash(left_hash, right_hash))


def _sides(node: _Node | None, depth: int) -> tuple[_Side, _Side]:
    """What is to the left and to the right of a fork at some depth, each with its hash at ``depth + 1`` if known."""
    if isinstance(node, _Fork) and node.depth == depth:
        return (node.left, node.left_hash), (node.right, node.right_hash)
    none, whole = (None, b""), (node, b"")
    return (none, whole) if node is not None and _bit(node.position, depth) else (whole, none)


def _place_with(position: int, leaves: Iterable[Leaf], changed: dict[bytes, Leaf | None]) -> _Place | None:
    kept = {leaf.key: leaf for leaf in leaves} | changed
    found = tuple(leaf for _, leaf in sorted(kept.items()) if leaf is not None)
    if not found:
        return None
    made = state_place_hash([(leaf.key, leaf.hash) for leaf in found])
    return _Place(STATE_DEPTH, position, found, made, _hash_above(made, position, STATE_DEPTH, _HALF_WAY))


def _hash_at(node: _Node | None, depth: int) -> bytes:
    """The hash of the subtree at some depth that holds this node alone."""
    if node is None:
        return EMPTY_STATE
    if depth <= _HALF_WAY and isinstance(node, _Place):
        return _hash_above(node.half_way, node.position, _HALF_WAY, depth)
    return _hash_above(node.hash, node.position, node.depth, depth)


def _hash_above(made: bytes, position: int, start: int, depth: int) -> bytes:
    """The hash at some depth above a subtree at ``start`` that holds all there is, from the hash of that subtree."""
    for above in range(start - 1, depth - 1, -1):
        # Most of the work that a statement of the state takes: one call a hash, and no other.
        right = position >> (STATE_DEPTH - 1 - above) & 1
        made = state_node_hash(EMPTY_STATE, made) if right else state_node_hash(made, EMPTY_STATE)
    return made


def _bit(place: int, depth: int) -> int:
    """1 where the way to a place goes right at some depth."""
    return place >> (STATE_DEPTH - 1 - depth) & 1


def _fork_depth(one: int, other: int) -> int:
    """The depth at which the ways to two places part."""
    return STATE_DEPTH - (one ^ other).bit_length()
