"""The tree against RFC 9162 written again as the recursion it is, and Certificate Transparency's vectors."""

import hashlib
from functools import cache

import pytest

from ledger.log import merkle
from ledger.verifier import leaf_hash, node_hash, verify_consistency, verify_inclusion

SIZE_MAX = 70
LEAVES = tuple(leaf_hash(f"entry {place}".encode()) for place in range(SIZE_MAX))
PUBLISHED = [
    bytes.fromhex(text)
    for text in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
    )
]  # fmt: skip
PUBLISHED_ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@cache
def naive_root(leaves: tuple[bytes, ...]) -> bytes:
    """MTH of section 2.1.1, on leaf hashes."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = _below(len(leaves))
    return hashlib.sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def naive_path(m: int, leaves: tuple[bytes, ...]) -> list[bytes]:
    """PATH of section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = _below(len(leaves))
    if m < k:
        return [*naive_path(m, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_path(m - k, leaves[k:]), naive_root(leaves[:k])]


def naive_subproof(m: int, leaves: tuple[bytes, ...], *, whole: bool) -> list[bytes]:
    """SUBPROOF of section 2.1.4.1."""
    if m == len(leaves):
        return [] if whole else [naive_root(leaves)]
    k = _below(len(leaves))
    if m <= k:
        return [*naive_subproof(m, leaves[:k], whole=whole), naive_root(leaves[k:])]
    return [*naive_subproof(m - k, leaves[k:], whole=False), naive_root(leaves[:k])]


def _below(size: int) -> int:
    k = 1
    while k * 2 < size:
        k *= 2
    return k


class Tree:
    """Nodes kept as the book keeps them: what each append completes."""

    def __init__(self, leaves: tuple[bytes, ...]) -> None:
        self.nodes: dict[tuple[int, int], bytes] = {}
        for size, leaf in enumerate(leaves):
            for level, position, value in merkle.append(size, leaf, self.read):
                assert (level, position) not in self.nodes
                self.nodes[level, position] = value

    def read(self, level: int, position: int) -> bytes:
        """The hash of a complete subtree."""
        return self.nodes[level, position]


TREE = Tree(LEAVES)


def tampered(hashes: list[bytes]) -> list[list[bytes]]:
    """Each list that differs in one hash: one bit turned, one left out, one twice; and one more at the end."""
    turned = [[*hashes[:at], bytes([one[0] ^ 1]) + one[1:], *hashes[at + 1 :]] for at, one in enumerate(hashes)]
    left_out = [[*hashes[:at], *hashes[at + 1 :]] for at in range(len(hashes))]
    twice = [[*hashes[: at + 1], *hashes[at:]] for at in range(len(hashes))]
    return [*turned, *left_out, *twice, [*hashes, bytes(32)]]


def test_published_roots() -> None:
    """The reference vectors of Certificate Transparency (RFC 6962), sizes 0 to 8."""
    tree = Tree(tuple(leaf_hash(entry) for entry in PUBLISHED))
    assert [merkle.root(size, tree.read).hex() for size in range(9)] == PUBLISHED_ROOTS


def test_roots_of_every_size() -> None:
    """Each size's root from kept subtrees is the recursion's; a smaller tree's root can still be read."""
    for size in range(SIZE_MAX + 1):
        assert merkle.root(size, TREE.read) == naive_root(LEAVES[:size])


def test_many_leaves_at_once_complete_what_one_after_the_other_do() -> None:
    """From every size to every greater one, from the edge alone: the same nodes, each in its place."""
    for old in range(SIZE_MAX + 1):
        edge = {level: TREE.nodes[level, (old >> level) - 1] for level in range(8) if old >> level}
        for size in range(old + 1, SIZE_MAX + 1):
            made = enumerate(merkle.extend(old, list(LEAVES[old:size]), edge))
            placed = {(level, first + at): one for level, (first, some) in made for at, one in enumerate(some)}
            wanted = {place for place in TREE.nodes if old < (place[1] + 1) << place[0] <= size}
            assert placed == {place: TREE.nodes[place] for place in wanted}


def test_inclusion_of_every_leaf_in_every_size() -> None:
    """The proof is the recursion's and verifies, for its own leaf, index, size and root only."""
    for size in range(1, SIZE_MAX + 1):
        root = naive_root(LEAVES[:size])
        for index in range(size):
            proof = merkle.inclusion_proof(index, size, TREE.read)
            assert proof == naive_path(index, LEAVES[:size])
            assert verify_inclusion(LEAVES[index], index, size, proof, root)
            assert not verify_inclusion(LEAVES[index - 1], index, size, proof, root) or size == 1
            assert not verify_inclusion(LEAVES[index], index, size, proof, bytes(32))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 33, 64, 70])
def test_inclusion_refuses_every_change(size: int) -> None:
    """One hash changed, dropped, doubled or added; another index: refused."""
    root = naive_root(LEAVES[:size])
    for index in range(size):
        proof = naive_path(index, LEAVES[:size])
        for other in tampered(proof):
            assert not verify_inclusion(LEAVES[index], index, size, other, root)
        for wrong in (-1, index - 1, index + 1, index ^ 1, size, 2**64):
            if wrong != index:
                assert not verify_inclusion(LEAVES[index], wrong, size, proof, root)


def test_an_index_beyond_the_tree_is_refused_even_where_the_hashes_fit() -> None:
    """The bound is checked: in a tree of one leaf, no index but 0 leads to the root."""
    for index in (1, 2, -1):
        assert not verify_inclusion(LEAVES[0], index, 1, [], LEAVES[0])
    assert not verify_inclusion(LEAVES[0], 0, 0, [], LEAVES[0])
    for index in (3, 5, -1):
        assert not verify_inclusion(LEAVES[2], index, 3, naive_path(2, LEAVES[:3]), naive_root(LEAVES[:3]))


def test_consistency_of_every_pair_of_sizes() -> None:
    """The proof is the recursion's and verifies between its own two roots only."""
    for size in range(1, SIZE_MAX + 1):
        root = naive_root(LEAVES[:size])
        for old in range(1, size + 1):
            before = naive_root(LEAVES[:old])
            proof = merkle.consistency_proof(old, size, TREE.read)
            assert proof == naive_subproof(old, LEAVES[:size], whole=True)
            assert verify_consistency(old, size, proof, before, root)
            assert not verify_consistency(old, size, proof, bytes(32), root)
            assert not verify_consistency(old, size, proof, before, bytes(32))


@pytest.mark.parametrize("size", [2, 3, 8, 33, 64, 70])
def test_consistency_refuses_every_change(size: int) -> None:
    """One hash changed, dropped, doubled or added; sizes swapped: refused."""
    root = naive_root(LEAVES[:size])
    for old in range(1, size + 1):
        before = naive_root(LEAVES[:old])
        proof = naive_subproof(old, LEAVES[:size], whole=True)
        for other in tampered(proof):
            assert not verify_consistency(old, size, other, before, root)
        if old < size:
            assert not verify_consistency(size, old, proof, root, before)
            assert not verify_consistency(0, size, proof, before, root)


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0)])
def test_no_proof_outside_the_tree(index: int, size: int) -> None:
    """Asking for one is an error of the caller."""
    with pytest.raises(ValueError, match="not in a tree"):
        merkle.inclusion_proof(index, size, TREE.read)


@pytest.mark.parametrize(("old", "size"), [(0, 3), (4, 3), (-1, 3)])
def test_no_consistency_from_a_larger_or_empty_tree(old: int, size: int) -> None:
    """Asking for one is an error of the caller."""
    with pytest.raises(ValueError, match="does not extend"):
        merkle.consistency_proof(old, size, TREE.read)


def test_a_node_is_never_a_leaf() -> None:
    """The prefixes keep an entry made of two hashes from passing for a node."""
    left, right = LEAVES[:2]
    assert leaf_hash(left + right) != node_hash(left, right)
    assert leaf_hash(b"") == hashlib.sha256(b"\x00").digest()
