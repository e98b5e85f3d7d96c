"""Our proofs, checkpoints, receipts and tiles, before verifiers that are not ours; and ours before theirs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.verifier import (
    Checkpoint,
    LogKey,
    Note,
    VerificationError,
    WitnessKey,
    leaf_hash,
    verify_consistency,
    verify_inclusion,
    verify_tiles,
)
from tests.factories.third_party import other, run
from tests.ledger.log.memory_log import KEY, ORIGIN, Cosigner, Log, log_of
from tests.ledger.log.test_merkle import tampered
from tests.ledger.log.test_tiles import published

LOG = log_of(300)
SIZES = (1, 2, 3, 7, 8, 9, 33, 255, 256, 257, 300)
PAIRS = [(old, size) for size in SIZES for old in SIZES if old <= size]
WITNESS = Cosigner("witness.example/w1", 7)


class Metamorphic:
    """metamorphic-log: Rust, compiled."""

    def __init__(self) -> None:
        self.module: Any = other("metamorphic_log")

    def inclusion(self, leaf: bytes, index: int, size: int, proof: list[bytes], root: bytes) -> bool:
        """Whether it accepts the proof."""
        return self._holds(lambda: self.module.verify_inclusion(index, size, leaf, proof, root))

    def consistency(self, old: int, size: int, proof: list[bytes], roots: tuple[bytes, bytes]) -> bool:
        """Whether it accepts the proof."""
        return self._holds(lambda: self.module.verify_consistency(old, size, proof, *roots))

    def checkpoint(self, note: str, key: LogKey) -> Checkpoint | None:
        """What it reads in a signed note, None if it refuses it."""
        try:
            head = self.module.checkpoint_verify(note, [key.vkey])
        except self.module.VerifyError:
            return None
        return Checkpoint(head.origin, head.size, bytes(head.root))

    def _holds(self, check: Any) -> bool:  # noqa: ANN401 - the library brings no types
        try:
            return check() is not False
        except self.module.VerifyError:
            return False


class Aics:
    """aics-tlog: Python."""

    def __init__(self) -> None:
        self.module: Any = other("aics_tlog")

    def inclusion(self, leaf: bytes, index: int, size: int, proof: list[bytes], root: bytes) -> bool:
        """Whether it accepts the proof."""
        return bool(self.module.verify_inclusion(leaf, index, size, proof, root))

    def consistency(self, old: int, size: int, proof: list[bytes], roots: tuple[bytes, bytes]) -> bool:
        """Whether it accepts the proof."""
        return bool(self.module.verify_consistency(old, size, *roots, proof))

    def checkpoint(self, note: str, key: LogKey) -> Checkpoint | None:
        """What it reads in a signed note, None if it refuses it."""
        try:
            found = self.module.verify_checkpoint(
                self.module.parse_note(note.encode()), self.module.parse_vkey(key.vkey), [], quorum=0
            )
        except ValueError:
            return None
        return Checkpoint(found.origin, found.size, found.root) if found.ok else None


@pytest.fixture(scope="module", params=[Metamorphic, Aics], ids=["metamorphic-log", "aics-tlog"])
def theirs(request: pytest.FixtureRequest) -> Metamorphic | Aics:
    """One of them."""
    verifier: Metamorphic | Aics = request.param()
    return verifier


def test_inclusion(theirs: Metamorphic | Aics) -> None:
    """First, last and middle entries at many sizes: accepted; each changed proof: refused, as we refuse it."""
    for size in SIZES:
        root = LOG.checkpoint(size).root
        for index in sorted({0, 1, size // 2, size - 1} & set(range(size))):
            leaf, proof = leaf_hash(LOG.entries[index]), _proof(index, size)
            assert theirs.inclusion(leaf, index, size, proof, root)
            assert not theirs.inclusion(leaf, index, size, proof, bytes(32))
            for changed in tampered(proof):
                assert not theirs.inclusion(leaf, index, size, changed, root)
                assert not verify_inclusion(leaf, index, size, changed, root)


def test_consistency(theirs: Metamorphic | Aics) -> None:
    """Between any two of many sizes: accepted; changed: refused."""
    for old, size in PAIRS:
        proof = LOG.consistency(old, size)
        roots = LOG.checkpoint(old).root, LOG.checkpoint(size).root
        assert theirs.consistency(old, size, proof, roots)
        assert not theirs.consistency(old, size, proof, (bytes(32), roots[1]))
        for changed in tampered(proof):
            assert not theirs.consistency(old, size, changed, roots)
            assert not verify_consistency(old, size, changed, *roots)


def test_checkpoints(theirs: Metamorphic | Aics) -> None:
    """Read as they are, cosigned or not; refused when tampered with, or signed by another key."""
    other_key = LogKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32).public_key().public_bytes_raw())
    for size in SIZES:
        note = LOG.note(size)
        assert theirs.checkpoint(note, KEY) == LOG.checkpoint(size)
        assert theirs.checkpoint(note + WITNESS.line(note), KEY) == LOG.checkpoint(size)
        assert theirs.checkpoint(note, other_key) is None
        assert theirs.checkpoint(note.replace(f"\n{size}\n", f"\n{size + 1}\n"), KEY) is None


def test_a_fork_is_no_consistent_log(theirs: Metamorphic | Aics) -> None:
    """A rewritten history, with the best proof that it has, is refused by theirs too."""
    forged = Log([*LOG.entries[:10], b"another", *LOG.entries[11:]])
    roots = LOG.checkpoint(33).root, forged.checkpoint(300).root
    assert not theirs.consistency(33, 300, forged.consistency(33, 300), roots)


def test_their_proofs_before_ours() -> None:
    """A tree, a checkpoint and cosignatures made by theirs verify with ours."""
    library: Any = other("aics_tlog")
    private = Ed25519PrivateKey.from_private_bytes(bytes([5]) * 32)
    tree = library.MerkleTree(LOG.entries)
    key = LogKey("their.example/log", private.public_key().public_bytes_raw())
    note = library.sign_checkpoint(library.Checkpoint(key.origin, 300, tree.root()), private, key.origin)
    assert Checkpoint.open(note.serialise(), key).root == LOG.checkpoint(300).root
    _, line = library.sign_cosignature(private, "their.example/witness", 1_679_315_147, key.origin, 300, tree.root())
    witness = WitnessKey("their.example/witness", key.public)
    assert Note(note.text, ((line.name, line.key_id + line.signature),)).signature_of(witness) is not None
    for index in (0, 255, 299):
        assert verify_inclusion(
            leaf_hash(LOG.entries[index]), index, 300, tree.inclusion_proof(index, 300), tree.root()
        )
    for old in (1, 255, 256, 299):
        proof = tree.consistency_proof(old, 300)
        assert verify_consistency(old, 300, proof, tree.root(old), tree.root())


@pytest.mark.parametrize("size", [300, 256, 5])
def test_tiles(size: int, tmp_path: Path) -> None:
    """Their command reads our folder: the cosigned checkpoint under a quorum, and an entry out of its bundle."""
    note = LOG.note(size)
    files = {**published(LOG, size), "checkpoint": (note + WITNESS.line(note)).encode()}
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    keys = ("--log-key", KEY.vkey, "--tiles", tmp_path)
    quorum = ("--witness-key", WITNESS.key.vkey, "--quorum", "1")
    found = run("aics_tlog", "verify-checkpoint", *keys, *quorum)
    assert (found.returncode, json.loads(found.stdout)["ok"]) == (0, True)
    found = run("aics_tlog", "verify-inclusion", *keys, "--index", str(size - 1), "--entry-out", tmp_path / "entry")
    assert (found.returncode, json.loads(found.stdout)["ok"]) == (0, True)
    assert (tmp_path / "entry").read_bytes() == LOG.entries[size - 1]
    tile = tmp_path / ("tile/0/001.p/44" if size == 300 else "tile/0/000" if size == 256 else "tile/0/000.p/5")
    tile.write_bytes(bytes(32) + tile.read_bytes()[32:])
    assert run("aics_tlog", "verify-inclusion", *keys, "--index", str(size - 1)).returncode != 0
    with pytest.raises(VerificationError, match="tile/0"):
        verify_tiles(lambda path, _: (tmp_path / path).read_bytes() if (tmp_path / path).is_file() else None, KEY)


def test_their_cosignature_key_is_ours() -> None:
    """A vkey of type 04 is read alike, and the same line verifies."""
    library: Any = other("aics_tlog")
    note = LOG.note(9)
    both = note + WITNESS.line(note)
    found = library.verify_checkpoint(
        library.parse_note(both.encode()),
        library.parse_vkey(KEY.vkey),
        [library.parse_vkey(WITNESS.key.vkey)],
        quorum=1,
    )
    assert found.ok
    assert Note.parse(both).signature_of(WitnessKey.parse(WITNESS.key.vkey)) is not None


def _proof(index: int, size: int) -> list[bytes]:
    """As it stands in a receipt."""
    return [base64.b64decode(line) for line in LOG.receipt(index, size).partition("\n\n")[0].split("\n")[2:]]
