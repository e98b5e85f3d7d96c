"""Books whose log's key is replaced: by whom, with what proof, and what each key signed."""

from __future__ import annotations

from typing import Any, Final

from ledger.book.log_key.rotation import Rotated, rotate_log_key
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


def rotate(world: StoredWorld, **changes: Any) -> Rotated:  # noqa: ANN401 - any argument of the rotation
    """Replace the key of a closed book's log by the second one."""
    usual = {"gate": gate, "log_key": LOG_KEY, "new_key": NEW_KEY, "origin": ORIGIN, "volatile": True}
    return rotate_log_key(world.url, **{**usual, "clock": world.clock, **changes})


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
