"""The log of a book checked quickly: every entry hashed, every node compared, the newest checkpoint's root.

No command is decided again and no account computed: that is ``epsilon db check``. This check runs after a migration,
and before a backup is trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Integer, Result, Select, cast, select

from ledger.audit.replay import VerificationFailed
from ledger.log import merkle
from ledger.log.verification import open_checkpoint
from ledger.store.log_key.rotation_proofs import Trust, trusted
from ledger.store.merkle_tables import Tree, latest_checkpoint
from ledger.store.tables import ENTRY, TREE_NODE
from ledger.verifier import Checkpoint, LogKey
from ledger.wire.malformed import Malformed

_AT_ONCE: Final = 1_000
"""How many rows are fetched at a time."""
Step = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a log: its size, its root, and the newest checkpoint's note, None if it is empty."""

    size: int
    root: bytes
    note: str | None

    @property
    def origin(self) -> str | None:
        """The log's name, as its newest checkpoint states it."""
        return None if self.note is None else self.note.partition("\n")[0]


def head_of(connection: Connection) -> Head:
    """The head that the book states, unverified. Raises: VerificationFailed, if a node is missing."""
    tree = Tree(connection)
    try:
        return Head(tree.size, tree.root(), latest_checkpoint(connection))
    except KeyError as error:
        raise VerificationFailed(None, f"the tree lacks the node {error}") from None


def verify_log(connection: Connection, key: LogKey | None, step: Step) -> Head:
    """Hash every entry and compare every node.

    Args:
        connection: reads the book on one snapshot.
        key: the log's key; without it the newest checkpoint's root is compared and its signature is not.
        step: called with how many entries are done, and of how many.

    Raises:
        VerificationFailed: naming the first entry that is wrong, or another first error.
    """
    size, tree = Tree(connection).size, merkle.CompactRange()
    entries = streamed(connection, select(ENTRY.c.position, ENTRY.c.data).order_by(ENTRY.c.position))
    level, position = TREE_NODE.c.level, TREE_NODE.c.position
    # In the order in which appending completes them.
    completed = (position + 1).bitwise_lshift(cast(level, Integer))
    with streamed(connection, select(level, position, TREE_NODE.c.hash).order_by(completed, level)) as nodes, entries:
        for index, row in enumerate(entries):
            if index != row.position:
                raise VerificationFailed(index, "is missing")
            for made in tree.append(bytes(row.data)):
                if nodes.fetchone() != made:
                    raise VerificationFailed(index, f"tree node {made[0]}/{made[1]} is not that of the entries")
            step(index + 1, size)
        if nodes.fetchone() is not None:
            raise VerificationFailed(None, "the tree has a node of no entry")
    head = Head(tree.size, tree.root(), latest_checkpoint(connection))
    check_note(head, None if key is None else trust_of(connection, key))
    return head


def trust_of(connection: Connection, key: LogKey) -> Trust:
    """All keys that a log had. Raises: VerificationFailed, if one of its rotations is not proven."""
    try:
        return trusted(connection, key)
    except Malformed as error:
        raise VerificationFailed(None, str(error)) from None


def check_note(head: Head, trust: Trust | None) -> None:
    """Check the newest checkpoint against these entries, and its signature if ``trust`` is given.

    Raises:
        VerificationFailed.
    """
    if head.note is None:
        if head.size:
            raise VerificationFailed(None, "no checkpoint covers the newest entries")
        return
    text = Checkpoint(str(head.origin), head.size, head.root).text
    if not head.note.startswith(f"{text}\n"):
        raise VerificationFailed(None, f"the newest checkpoint is not that of these {head.size} entries")
    if trust is not None:
        try:
            open_checkpoint(head.note, trust)
        except Malformed as error:
            raise VerificationFailed(None, str(error)) from None


def check_trusted(connection: Connection, kept: Checkpoint, name: str) -> None:
    """Check that a log holds every entry under a checkpoint kept outside it.

    Raises:
        VerificationFailed: if it is older than the checkpoint, or another log under the same key.
    """
    tree = Tree(connection)
    refuse_older(tree.size, kept, name)
    if merkle.root(kept.size, tree.read) != kept.root:
        raise VerificationFailed(
            None, f"{name} is a fork: its first {kept.size} entries are not those of the kept checkpoint"
        )


def refuse_older(size: int, kept: Checkpoint, name: str) -> None:
    """Raises: VerificationFailed, if a log of this size lacks entries that a kept checkpoint has."""
    if size < kept.size:
        raise VerificationFailed(
            None,
            f"{name} has {size} entries and the kept checkpoint {kept.size}: it would give back budgets spent since. "
            "Use one that is not older",
        )


def streamed(connection: Connection, chosen: Select[Any]) -> Result[tuple[Any, ...]]:
    """The rows of a query in batches; a context manager, since it may not be read to its end."""
    return connection.execute(chosen, execution_options={"yield_per": _AT_ONCE})
