"""When the book states its state, and the trees of what was stated.

A statement is due a while after a change, or after so many entries. The state at that moment is hashed by a thread of
its own while the writer goes on, and the statement is recorded with a later batch: no commit waits for it. Should so
many entries come meanwhile that it would describe a state that is too old, it is not recorded, and the state at that
moment is stated in its place. Of several processes each keeps its tree; the process that has the lock records, and the
others take over what was recorded.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from time import sleep
from typing import Final, NamedTuple

from ledger.commands.governance.state_statement import DISTANCE_MAX, Stated, StateStatement
from ledger.state_tree.journal import StateChanges, StateJournal
from ledger.state_tree.sparse_tree import SparseTree
from ledger.wire.malformed import Malformed

WAIT_MS: Final = 30_000
"""How long a change waits for a statement at most; what is left of a minute is for hashing and committing."""
EVERY: Final = DISTANCE_MAX // 2
"""Entries after which a state is stated; the same again, and more, may come while it is hashed."""
_HASHING_MS: Final = 50.0
"""How often the writer looks whether a tree is made."""
_KEPT: Final = 2
_BY_POSITION: Final = attrgetter("position")


class StatedTree(NamedTuple):
    """The tree of a state, the position of the entry that stated its root, and the names that are used, if kept."""

    position: int
    size: int
    tree: SparseTree
    names: tuple[bytes, ...] = ()


class _Building(NamedTuple):
    """The tree of a size, as it is being made; with the statement of another process, if one was recorded."""

    size: int
    names: tuple[bytes, ...]
    tree: Future[SparseTree]
    recorded: tuple[int, Stated] | None = None


class StateStatements:
    """The statements of one process, for its writing thread; :meth:`newest` is for all.

    Attributes:
        enabled: whether the book makes any; those of others are followed in any case.
        closing: whether the book is about to close, and states the last changes at once.
    """

    def __init__(self, journal: StateJournal, put_down: Callable[[], None]) -> None:
        """Of an empty log; ``put_down`` puts down in the journal what runs have added to accounts."""
        self.enabled = False
        self.closing = False
        self._journal, self._put_down = journal, put_down
        self._hashing = ThreadPoolExecutor(1, "state-tree")
        self._tree = SparseTree()
        self._own: _Building | None = None
        self._others: deque[_Building] = deque()
        self._unbuilt: tuple[StateChanges, tuple[int, Stated]] | None = None
        self._known: deque[StatedTree] = deque(maxlen=_KEPT)
        self._resumed: tuple[Stated, StatedTree] | None = None

    def resume(self, size: int, names: bytes, tree: SparseTree) -> None:
        """Go on from the tree of a size, whose statement is one of the next entries (:attr:`unconfirmed`)."""
        self._tree = tree
        self._resumed = Stated(size, tree.root.hex()), StatedTree(-1, size, tree, (names,))

    @property
    def unconfirmed(self) -> bool:
        """Whether no statement has come yet of the tree that this went on from."""
        return self._resumed is not None

    def newest(self, size: int) -> StatedTree | None:
        """The newest stated tree whose statement is one of the first ``size`` entries; None if it is not known yet."""
        return max((one for one in tuple(self._known) if one.position < size), default=None, key=_BY_POSITION)

    def rest_ms(self, now: int) -> float:
        """How long until :meth:`next` has something to do, if nothing more is recorded."""
        building = self._own or next(iter(self._others), None)
        if building is not None or self._unbuilt is not None:
            return 0 if building is None or building.tree.done() or self.closing else _HASHING_MS
        since = self._journal.waiting_since if self.enabled else None
        if since is None:
            return math.inf
        # A change of a later time than now was recorded before a clock correction.
        return 0 if self.closing or now < since else max(0, since + WAIT_MS - now)

    def next(self, now: int) -> StateStatement | None:
        """The statement to record now (ms), if one is due and its root is known.

        Raises:
            Malformed: if a root that another process stated is not that of the entries.
        """
        if self._others or self._unbuilt is not None:
            self._follow()
        own = self._own
        if own is not None and self._is_late(own) and (self.closing or own.tree.done()):
            # What it was to state is stated with all that came since.
            own = self._own = None
        if own is None and self._unbuilt is None and self._is_due(now):
            self._put_down()
            own = self._own = self._build(self._journal.advance(self._journal.size))
        if own is None or self._is_late(own) or not (self.closing or own.tree.done()):
            return None
        return StateStatement(own.size, own.tree.result().root.hex())

    def _is_late(self, own: _Building) -> bool:
        """Whether the next entry can no more state the state of that size."""
        return self._journal.size - own.size > DISTANCE_MAX

    def note(self, index: int, stated: Stated) -> None:
        """Take note of the statement that was recorded at ``index``: this process's, or another's.

        Raises:
            Malformed: if it is of a state that is not known any more.
        """
        if self._resumed is not None and stated == self._resumed[0]:
            self._known.append(self._resumed[1]._replace(position=index))
            self._resumed = None
            return
        own = self._own
        if own is not None and stated.size == own.size:
            # Another process may have been quicker: then its root is compared once this one's is known.
            self._own = None
            self._others.append(own._replace(recorded=(index, stated)))
            self._follow()
        elif stated.size >= self._journal.least:
            changes = self._journal.advance(stated.size)
            if self._unbuilt is not None:
                changes = self._unbuilt[0].then(changes)
            self._own, self._unbuilt = None, (changes, (index, stated))

    def give_up(self) -> None:
        """The statement that was to be recorded cannot be: the next change is stated again."""
        self._own = None

    def _is_due(self, now: int) -> bool:
        # Where nothing but statements follows the newest statement, there is nothing new to state.
        since = self._journal.waiting_since if self.enabled else None
        if since is None:
            return False
        return self.closing or not 0 <= now - since < WAIT_MS or self._journal.size - self._journal.stated >= EVERY

    def _follow(self) -> None:
        """Make the tree of what another process stated, or this one before it was opened."""
        if self._unbuilt is not None and not self._others:
            changes, recorded = self._unbuilt
            self._others.append(self._build(changes)._replace(recorded=recorded))
            self._unbuilt = None
        while self._others and (self.closing or self._others[0].tree.done()):
            other = self._others.popleft()
            assert other.recorded is not None
            index, stated = other.recorded
            if other.tree.result().root.hex() != stated.root:
                raise Malformed(
                    "", f"entry {index}: the state of {stated.size} entries has another root than it states"
                )
            self._known.append(StatedTree(index, stated.size, other.tree.result(), other.names))

    def _build(self, changes: StateChanges) -> _Building:
        def build() -> SparseTree:
            # The one thread makes one tree after the other.
            # Between records the thread lets those go first that decide and answer.
            self._tree = changes.applied(self._tree, partial(sleep, 0))
            return self._tree

        return _Building(changes.size, changes.names, self._hashing.submit(build))

    def stop(self) -> None:
        """State nothing any more."""
        self.enabled = False
        self._own = self._unbuilt = None
        self._others.clear()

    def close(self) -> None:
        """End the thread."""
        self._hashing.shutdown(cancel_futures=True)
