"""A kind of command: its body, who may send it and where, how it is decided, and what its entry changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from ledger.accounts.account_sums import AccountSums
from ledger.commands.context import Context, PendingCommand
from ledger.commands.verdict_cache import VerdictCache
from ledger.domain.command import Command
from ledger.domain.decision import Decision
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import Code
from ledger.domain.roles import CCR, FIRST
from ledger.organisation_lineage.graph_edits import LineageEdit
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert, read_certain

B = TypeVar("B", bound=Record)
R = TypeVar("R", bound=Record)
B_co = TypeVar("B_co", bound=Record, covariant=True)


class Recorded(Struct, Generic[B_co], frozen=True):
    """A command as its entry records it; ``derived`` is the entry's whole body."""

    id: str
    actor: str
    time: int
    code: Code
    body: B_co
    derived: c.Object

    def fixed(self, kind: type[R]) -> R:
        """The values that the decision fixed, recorded beside the request and the outcome. Raises: Malformed."""
        fixed = {name: value for name, value in self.derived.items() if name not in {"outcome", "request"}}
        return convert(kind, fixed, "body")


@dataclass(frozen=True, slots=True)
class Change(Generic[B_co]):
    """The entry at ``index`` and the state that it changes."""

    state: MemoryState
    index: int
    entry: Recorded[B_co]

    @property
    def body(self) -> B_co:
        """The body of the command."""
        return self.entry.body

    def recorded(self, kind: type[R]) -> R:
        """See :meth:`Recorded.fixed`."""
        return self.entry.fixed(kind)

    def lineage_edit(self) -> LineageEdit:
        """An edit of the lineage graph by this entry."""
        return LineageEdit(self.state, self.index, self.entry.time)


class RunEffect(Protocol):
    """The effect of a run's entry: plain values, so that another process may read the entry."""

    def apply(self, state: MemoryState, index: int, sums: AccountSums) -> None:
        """Apply the entry at ``index``; changes of accounts go to ``sums``. Raises: KeyError, AssertionError."""


@dataclass(frozen=True, slots=True)
class CommandKind(Generic[B]):
    """One kind of command.

    Attributes:
        decide: the guards on the current state, in order; changes nothing. Raises: Malformed, Rejected.
        roles: the roles that may send it; a clean room's is ``CCR``. Without roles only the book itself makes it.
        path: where it is sent over HTTP.
        apply: how its entry changes the state.
        edit: for a lineage event, the edit that its entry makes to the graph; a preview makes it too.
        effect: for a run, reads the effect of its entry. Raises: Malformed.
        recorded: what its entry records beside the request and the outcome.
        binds_all: its entries bind, or may bind, every registered organisation, so all of them may see the entries.
        changes_prices: prices of later commands are prepared only once it is recorded.
        ends_suspension: its entry may follow that of a suspension of the log's key, signed by the suspended key.
        read_bytes: reads its body from canonical bytes faster than the record does; returns None where the strict
            reader must decide.
    """

    name: str
    body: type[B]
    decide: Callable[[Context[B]], Decision]
    roles: tuple[str, ...] = ()
    path: str = ""
    apply: Callable[[Change[B]], None] | None = None
    edit: Callable[[LineageEdit, Recorded[B]], None] | None = None
    effect: Callable[[Recorded[B]], RunEffect] | None = None
    recorded: type[Record] | None = None
    binds_all: bool = False
    changes_prices: bool = False
    ends_suspension: bool = False
    read_bytes: Callable[[bytes], B | None] | None = None

    @property
    def changes_state(self) -> bool:
        """Whether its entry changes more than the log and is not a run's."""
        return self.apply is not None or self.edit is not None

    def change(self, change: Change[B]) -> None:
        """Apply its entry to the state."""
        if self.apply is not None:
            self.apply(change)
        if self.edit is not None:
            edit = change.lineage_edit()
            self.edit(edit, change.entry)
            edit.apply_to(change.state)

    @property
    def requires_role(self) -> bool:
        """Whether every sender needs a registered role, which is checked first."""
        return _are_registered(self.roles)

    def context(  # noqa: PLR0913, PLR0917 - the state, the command, when and where, and who decides
        self,
        facts: Facts,
        pending: PendingCommand,
        now: int,
        index: int,
        gate: Gate,
        kept: VerdictCache[Any] | None = None,
    ) -> Context[B]:
        """The context in which a command of this kind is decided. Raises: TypeError, for the body of another kind."""
        if not isinstance(pending.body, self.body):
            message = f"a {self.name} command cannot hold a {type(pending.body).__name__}"
            raise TypeError(message)
        return Context(facts, pending.command, pending.body, pending.prices, self.roles, now, index, gate, kept)

    def read_certain(self, data: bytes) -> B | None:
        """The typed body from its canonical bytes; None where the strict reader must read it and report the error."""
        return read_certain(self.body, data) if self.read_bytes is None else self.read_bytes(data)

    def read_body(self, command: Command) -> B:
        """The typed body of a command of this kind. Raises: Malformed, with a field of the body under ``body``."""
        if command.kind != self.name:
            raise Malformed("kind", f"must be '{self.name}', not '{command.kind}'")
        return convert(self.body, command.body, "body")


@lru_cache(maxsize=256)
def _are_registered(roles: tuple[str, ...]) -> bool:
    """Whether only registered organisations have these roles."""
    return bool(roles) and not {FIRST, CCR} & set(roles)
