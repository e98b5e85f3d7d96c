"""Pages: what a view answers, which operations of the API it needs, and where it is reached.

    PAGES = Pages()

    @PAGES.page("/contracts", "Contracts", registry.list_contracts)
    def contracts(reader: Reader, inputs: Inputs) -> Page: ...

The access table of the API decides who may open a page: a caller who may call every operation that the page needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from api.auth.authorisation import Caller
from api.console.frame.reader import Reader, permits
from api.console.frame.tables import Table

ROWS_MAX: Final = 50
"""Rows of one table on a page."""
INPUT_LENGTH_MAX: Final = 2_048


@dataclass(frozen=True, slots=True)
class Page:
    """What a view answers.

    Attributes:
        template: the file of the view's own template.
        tables: those that a reader may take as CSV; the template shows them by name.
        values: everything else that the template shows.
        body: sent instead of the template, with its media type: what programs read.
    """

    template: str
    title: str
    tables: tuple[Table, ...] = ()
    values: Mapping[str, object] = field(default_factory=dict)
    body: tuple[bytes, str] | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the address of a page says, and of a form what was filled in."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """A value of the query, without the spaces around it; empty if it is absent."""
        return self.query.get(name, "").strip()[:INPUT_LENGTH_MAX]


Show = Callable[[Reader, Inputs], Page]
F = TypeVar("F", bound=Show)


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """One page of the console.

    Attributes:
        path: below the console, with its parameters.
        title: in the navigation; empty for a page that only others lead to.
        needs: the operations of the API that a caller must have.
        slow: its processor time counts in the caller's quota, as that of slow operations does.
        public: everyone may open it, without a login.
        form: it takes a POST.
    """

    path: str
    title: str
    needs: tuple[str, ...]
    show: Show
    slow: bool = False
    public: bool = False
    form: bool = False

    @property
    def operation_id(self) -> str:
        """Its name in metrics and logs."""
        return f"console_{self.show.__name__}"

    def is_for(self, caller: Caller) -> bool:
        """Whether a caller may open it."""
        return self.public or all(permits(caller, need) for need in self.needs)


class Pages:
    """The pages of one module."""

    def __init__(self) -> None:
        """None yet."""
        self.all: list[ConsolePage] = []

    def page(self, path: str, title: str, *needs: Callable[..., Any] | str, **terms: bool) -> Callable[[F], F]:
        """A page at ``path`` that needs these operations, read functions or names; ``terms`` as the page has them."""

        def add(show: F) -> F:
            names = tuple(need if isinstance(need, str) else need.__name__ for need in needs)
            self.all.append(ConsolePage(path, title, names, show, **terms))
            return show

        return add
