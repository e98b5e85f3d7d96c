"""The window of a rotation of the log's key: the key before it signs beside the new one, for who knows it alone."""

from __future__ import annotations

import logging

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Engine

from ledger.book.submitted_command import BookUnusable
from ledger.log.checkpoint import LogSigner, RotatingSigner
from ledger.store.log_key.rotation_proofs import rotation_places, signs_beside
from ledger.store.snapshot import Snapshot

_LOG = logging.getLogger("ledger.book")


def signer_of_both(reads: Engine, signer: LogSigner, old_key: Ed25519PrivateKey | None) -> LogSigner:
    """The signer of a log's checkpoints: both keys as far as the rotation's window goes, then the new one alone.

    Args:
        reads: the database of the book, which was checked.
        signer: by the key in force.
        old_key: the key that it has replaced.

    Raises:
        BookUnusable: if another key, or none, came before the one in force.
    """
    if old_key is None:
        return signer
    old = LogSigner(old_key, signer.key.origin)
    with reads.begin() as connection:
        book = Snapshot(connection)
        beside = signs_beside(connection, signer.key, rotation_places(book))
        size = book.size
    if beside is None or beside[0] != old.key:
        raise BookUnusable(f"the log's key {signer.key.vkey} has not replaced {old.key.vkey}: take it from the profile")
    if size >= beside[1]:
        _LOG.info("the window of the log's old key is over: take it from the profile, and destroy it")
        return signer
    return RotatingSigner(old, signer.private, beside[1])
