"""Books whose log's key is replaced: by whom, with what proof, and what each key signed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.book.log_key.own_entry import BookPlace
from ledger.book.log_key.rotation import Replacement, Rotated, rotate_log_key
from ledger.log.checkpoint import LogSigner
from ledger.store.log_key.rotation_proofs import all_rotations
from policy.decisions.gate import gate
from tests.factories.documents import SMALL
from tests.factories.people import LOG_KEY, ORIGIN, private_key
from tests.factories.stored import StoredWorld

NEW_KEY: Final = private_key("the log's second key")
THIRD_KEY: Final = private_key("the log's third key")
NEW: Final = LogSigner(NEW_KEY, ORIGIN).key
THIRD: Final = LogSigner(THIRD_KEY, ORIGIN).key


def place_of(world: StoredWorld, **changes: Any) -> BookPlace:  # noqa: ANN401 - any field of a place
    """A closed book, for an entry on its own key."""
    usual = {"url": world.url, "gate": gate, "log_key": LOG_KEY, "origin": ORIGIN, "clock": world.clock}
    return BookPlace(**{**usual, "volatile": True, **changes})


def rotate(  # noqa: PLR0913 - the terms of a rotation
    world: StoredWorld,
    *,
    log_key: Ed25519PrivateKey = LOG_KEY,
    new_key: Ed25519PrivateKey = NEW_KEY,
    kept: tuple[Path, Path] | None = None,
    overlap: int | None = None,
    stolen: str | None = None,
    stolen_since: int = 0,
) -> Rotated:
    """Replace the key of a closed book's log by the second one."""
    terms = Replacement(new_key, overlap, stolen, stolen_since)
    return rotate_log_key(place_of(world, log_key=log_key), terms, kept)


def restart(world: StoredWorld, **changes: Any) -> None:  # noqa: ANN401 - any argument of Book.open
    """Open the book by the second key, stating its state."""
    world.book.close()
    world.book = world.open(**{"log_key": NEW_KEY, "statements": True, **changes})


def rotated(world: StoredWorld) -> Rotated:
    """A book with entries of its own by both keys, open by the second one."""
    world.book.close()
    world.book = world.open(statements=True)
    world.submit(world.charge("before", run=SMALL))
    world.book.close()
    done = rotate(world)
    restart(world)
    world.submit(world.charge("after", run=SMALL))
    return done


def proofs(world: StoredWorld) -> str:
    """The rotations of the log."""
    with world.book.read() as facts:
        return all_rotations(facts.connection)


def proven(world: StoredWorld, name: str = "") -> tuple[str, bytes]:
    """An entry's receipt under the newest checkpoint, and the entry; of the first one, if none is named."""
    with world.book.read() as facts:
        index = facts.entry_index(name) if name else 0
        assert index is not None
        return facts.receipt(index), facts.entry(index)
