"""A book against trusted checkpoints from outside it: the same history, a shorter one, or a fork."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.log.merkle import Read, consistency_proof, root
from ledger.log.verification import check_extends, open_checkpoint
from ledger.log.verification_findings import Fork, Shorter
from ledger.store.log_key.rotation_proofs import Trust
from ledger.store.merkle_tables import Tree
from ledger.store.snapshot import Snapshot
from ledger.verifier import Checkpoint
from ledger.wire.malformed import Malformed


def check_trusted(book: Snapshot, kept: Sequence[Checkpoint], trust: Trust) -> None:
    """Check that the book's newest head extends every trusted head, by a consistency proof (RFC 9162, section 2.1.4).

    The proof comes from the stored tree, which replay compares with the entries. A book whose newest checkpoint does
    not match its own tree is damaged, not forked; replay names the place, so nothing is reported here.

    Raises:
        Shorter: if the book ends before a trusted head.
        Fork: if the book's head, signed by the same key, does not extend one.
    """
    heads = sorted(kept, key=lambda head: head.size)
    if heads and heads[-1].size > book.size:
        raise Shorter(heads[-1], book.size)
    read = Tree(book.connection).read
    newest = _newest(book, trust, read)
    agreed = 0
    for head in heads if newest else ():
        assert newest is not None
        if not _extends(newest, head, read):
            raise Fork(head, newest, agreed)
        agreed = head.size


def _newest(book: Snapshot, trust: Trust, read: Read) -> Checkpoint | None:
    try:
        newest = open_checkpoint(book.checkpoint, trust)
        return newest if newest.size <= book.size and newest.root == root(newest.size, read) else None
    except (Malformed, KeyError):
        return None


def _extends(newest: Checkpoint, old: Checkpoint, read: Read) -> bool:
    try:
        proof = consistency_proof(old.size, newest.size, read) if old.size else []
        check_extends(old, newest, proof)
    except (KeyError, ValueError):
        return False
    return True
