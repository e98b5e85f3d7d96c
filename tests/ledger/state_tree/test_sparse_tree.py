"""The sparse tree against its definition, computed over all 64 levels: roots, presence, absence, shared places."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ledger import verifier
from ledger.state_tree.sparse_tree import Leaf, Path, SparseTree
from ledger.verifier import EMPTY_STATE, STATE_DEPTH, state_key, state_place_hash

Model = dict[bytes, bytes]
# Keys of few different first bytes: many share a long prefix, and some the whole place.
KEYS = st.builds(
    lambda head, tail: bytes([head]) + bytes(6) + bytes([tail % 4]) + bytes(23) + bytes([tail]),
    st.sampled_from([0, 1, 128, 129, 255]),
    st.integers(0, 15),
)
CHANGES = st.lists(st.dictionaries(KEYS, st.none() | st.binary(min_size=32, max_size=32), max_size=12), max_size=6)


def defined_root(leaves: Mapping[bytes, bytes], depth: int = 0) -> bytes:
    """The root as the verifier's constants define it, one level after the other."""
    if not leaves:
        return EMPTY_STATE
    if depth == STATE_DEPTH:
        return state_place_hash(sorted(leaves.items()))
    sides = [
        {key: value for key, value in leaves.items() if key[depth // 8] >> (7 - depth % 8) & 1 == side}
        for side in (0, 1)
    ]
    return verifier.state_node_hash(*(defined_root(one, depth + 1) for one in sides))


def leads(path: Path, key: bytes) -> bytes:
    """The root that a path leads to."""
    found = (*path.beside, *(() if path.leaf is None else (path.leaf,)))
    return verifier.state_root(key, sorted((one.key, one.hash) for one in found), path.siblings)


@given(CHANGES)
def test_a_tree_is_what_its_definition_makes_it(changes: list[dict[bytes, bytes | None]]) -> None:
    """After each update: the root, the leaves, and for every key a path that shows whether it is there."""
    tree, model = SparseTree(), Model()
    for some in changes:
        before, root = tree, tree.root
        tree = tree.updated(
            [key for key, value in some.items() if value is None],
            [Leaf(key, value, None) for key, value in some.items() if value is not None],
        )
        for key, value in some.items():
            model.pop(key, None)
            if value is not None:
                model[key] = value
        assert before.root == root
        assert tree.root == defined_root(model)
        assert {one.key: one.hash for one in tree} == model
        for key in some:
            path = tree.path(key)
            assert leads(path, key) == tree.root
            assert (path.leaf.hash if path.leaf else None) == model.get(key)


def test_a_path_shows_nothing_else() -> None:
    """Neither another hash at the place, nor another key, nor a record where there is none."""
    tree = SparseTree().updated([], [Leaf(state_key(bytes([n])), bytes([n]) * 32, None) for n in range(100)])
    key = state_key(bytes([7]))
    path = tree.path(key)
    assert path.leaf is not None
    other = Leaf(key, bytes(31) + b"1", None)
    absent = state_key(b"absent")
    assert leads(path._replace(leaf=other), key) != tree.root
    assert leads(path._replace(leaf=None), key) != tree.root
    assert leads(path, absent) != tree.root
    assert leads(tree.path(absent)._replace(leaf=Leaf(absent, bytes(32), None)), absent) != tree.root


def test_an_update_changes_few_nodes() -> None:
    """A path has about as many siblings as the logarithm of the number of leaves, not as many as the tree is deep."""
    tree = SparseTree().updated([], [Leaf(state_key(n.to_bytes(2)), bytes(32), None) for n in range(4_096)])
    assert max(len(tree.path(state_key(n.to_bytes(2))).siblings) for n in range(4_096)) <= 30


@given(st.dictionaries(KEYS, st.binary(min_size=32, max_size=32), max_size=12), KEYS)
def test_subtrees_beside_a_way_hold_all_other_records(leaves: dict[bytes, bytes], key: bytes) -> None:
    """Each record but the key's own is in one of them, and each hash that a path shows is the hash of one."""
    tree = SparseTree().updated([], [Leaf(one, value, None) for one, value in leaves.items()])
    beside = [{leaf.key: leaf.hash for leaf in subtree} for subtree in tree.beside(key)]
    assert sorted(name for one in beside for name in one) == sorted(leaves.keys() - {key})
    shared = {one for one in leaves if one[:8] == key[:8] and one != key}
    # Those at the same place are shown each by itself; the others under one hash for each depth.
    at = [depth_of(key, next(iter(one))) for one in beside if not one.keys() & shared]
    path = tree.path(key)
    assert sorted(at) == sorted(path.siblings)
    assert {leaf.key for leaf in path.beside} == shared


def depth_of(one: bytes, other: bytes) -> int:
    """The depth at which the ways of two keys part."""
    return 64 - (int.from_bytes(one[:8], "big") ^ int.from_bytes(other[:8], "big")).bit_length()
