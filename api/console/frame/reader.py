"""The book as one person looks at it: through the read functions of the API, with their rights, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from api.auth.authorisation import OPERATIONS, PUBLIC, Caller
from api.http.pagination import PageRequest
from api.routes.read_routes import View
from ledger.book.past_snapshot import PastSnapshot
from ledger.store.snapshot import Snapshot

P = ParamSpec("P")
R = TypeVar("R")


def permits(caller: Caller, operation: str) -> bool:
    """Whether a role of the caller may call an operation of the API."""
    return operation in PUBLIC or bool(set(caller.roles) & set(OPERATIONS.get(operation, ())))


@dataclass(frozen=True, slots=True)
class Reader:
    """One snapshot, read as one caller may."""

    view: View

    @property
    def facts(self) -> Snapshot | PastSnapshot:
        """The snapshot, for what the caller may see of it."""
        return self.view.facts

    @property
    def caller(self) -> Caller:
        """The caller."""
        return self.view.caller

    def may(self, *reads: Callable[..., object]) -> bool:
        """Whether the caller may call each of these operations."""
        return all(permits(self.caller, read.__name__) for read in reads)

    def read(self, operation: Callable[Concatenate[View, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What the API would answer. Raises: Problem, Malformed, as the API does."""
        if operation.__name__ not in PUBLIC:
            self.caller.check(operation.__name__)
        return operation(self.view, *args, **kwargs)

    def page(
        self,
        operation: Callable[Concatenate[View, P], R],
        limit: int,
        cursor: str | None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """One page of what the API would list. Raises: Problem, Malformed."""
        self.caller.check(operation.__name__)
        return operation(self.view._replace(paging=PageRequest(limit, cursor or None)), *args, **kwargs)
