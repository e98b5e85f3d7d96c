"""Pages of a list: a limited number of items, and a cursor to the next ones that the service encrypted.

    {"items":[...],"next_cursor":"eyJhZnRlciI6...Ei4"}

What a caller may not see is left out, and one page reads a bounded number of values: a page may hold fewer items than
requested, or none, and still have a next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Generic, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from fastapi import Depends, Query

from api.http.field_types import Cursor
from api.http.query_parameters import LIMIT_MAX, Limit
from ledger.store.projection_table import ProjectionTable
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

K = TypeVar("K", str, int, tuple[str, str])
V = TypeVar("V")
T = TypeVar("T")

LIMIT: Final = 50
READ_MAX: Final = 1_000
"""Values that are read for one page."""
CURSOR_BYTES_MAX: Final = 2_048


class Page(Record, Generic[T], frozen=True):
    """A page of a list, and the cursor of the next one."""

    items: tuple[T, ...]
    next_cursor: Cursor | None


Fetch = Callable[[K | None, int], list[tuple[K, V]]]
"""At most so many values whose keys come after a given one, in order."""


class PageRequest:
    """The page that a client requests, by the two parameters that every list has."""

    def __init__(
        self,
        limit: Annotated[Limit, Query(description="items of one page, 1 to 200")] = LIMIT,
        cursor: Annotated[
            str | None, Query(max_length=CURSOR_BYTES_MAX, description="next_cursor of the page before, as it is")
        ] = None,
    ) -> None:
        """The first page by default."""
        self.limit, self.cursor = limit, cursor


Paging = Annotated[PageRequest, Depends()]


class Cursors:
    """Makes cursors and reads them: AES-SIV (RFC 5297), as a key may name what its holder is not to know of.

    The same key has the same cursor, so that a page which did not change has the same bytes.
    """

    def __init__(self, key: bytes) -> None:
        """Processes that serve one book share ``key``, of 32 bytes."""
        self._cipher = AESSIV(key)

    def write(self, scope: str, after: str | int | tuple[str, str] | None) -> str:
        """A cursor after one key of the list ``scope``."""
        payload = c.dump({"after": [*after] if isinstance(after, tuple) else after, "of": scope})
        return c.base64url(self._cipher.encrypt(payload, None))

    def read(self, scope: str, cursor: str) -> Any:  # noqa: ANN401 - the key, of the type that the list knows
        """The key that a cursor points after. Raises: Malformed, unless the service made it for this list."""
        data = c.unbase64url(cursor, "cursor")
        try:
            payload = self._cipher.decrypt(data, None)
        except (InvalidTag, ValueError):
            raise Malformed("cursor", "was not made by this service") from None
        members = c.fields(c.parse(payload, CURSOR_BYTES_MAX, "cursor"), "cursor", ("after", "of"))
        if members["of"] != scope:
            raise Malformed("cursor", "belongs to another list, or to other parameters")
        after = members["after"]
        return tuple(after) if isinstance(after, list) else after

    def page(self, scope: str, paging: PageRequest, fetch: Fetch[K, V], show: Callable[[V], T | None]) -> Page[T]:
        """One page of a list.

        Args:
            scope: which list, with every parameter that makes it another one.
            show: an item as the answer shows it; None where the caller may not see it.

        Raises:
            Malformed: if the cursor is not one of this list.
        """
        after: K | None = None if paging.cursor is None else self.read(scope, paging.cursor)
        items: list[T] = []
        read = 0
        while len(items) < paging.limit and read < READ_MAX:
            most = min(LIMIT_MAX, READ_MAX - read)
            fetched = fetch(after, most)
            for key, value in fetched:
                after = key
                read += 1
                shown = show(value)
                items += [] if shown is None else [shown]
                if len(items) == paging.limit:
                    break
            else:
                if len(fetched) < most:
                    return Page(items=tuple(items), next_cursor=None)
        return Page(items=tuple(items), next_cursor=self.write(scope, after))


def scope_of(name: str, **parameters: str | int | None) -> str:
    """The name of a list with these parameters."""
    given: c.Object = {name: value for name, value in parameters.items() if value is not None}
    return f"{name} {c.dump(given).decode()}"


def fetch_from(values: Mapping[K, V], **same: str) -> Fetch[K, V]:
    """Pages of a projection: by its key in a database, sorted in memory where it is one of the past."""
    if isinstance(values, ProjectionTable):
        stored: ProjectionTable[K, V] = values
        return lambda after, most: stored.page(after, most, **same)
    ordered = sorted(
        key for key, value in values.items() if all(getattr(value, name) == wants for name, wants in same.items())
    )

    def of_the_past(after: K | None, most: int) -> list[tuple[K, V]]:
        start = 0 if after is None else bisect_right(ordered, after)
        return [(key, values[key]) for key in ordered[start : start + most]]

    return of_the_past
