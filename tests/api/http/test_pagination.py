"""Pages: every item once, in order, whatever the limit; and cursors that nobody else can make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.pagination import READ_MAX, Cursors, PageRequest, fetch_from
from ledger.wire.canonical_json import base64url, unbase64url
from ledger.wire.malformed import Malformed

CURSORS = Cursors(b"k" * 32)


def _show(value: int) -> int | None:
    return value if value % 3 else None


@given(st.dictionaries(st.text("abc", min_size=1, max_size=6), st.integers(0, 99)), st.integers(1, 5))
def test_the_pages_together_are_the_list(values: dict[str, int], limit: int) -> None:
    """What may be seen, sorted by key, cut in pieces of the limit and no item twice."""
    cursor: str | None = None
    pages: list[tuple[int, ...]] = []
    while True:
        page = CURSORS.page("list", PageRequest(limit, cursor), fetch_from(values), _show)
        pages.append(page.items)
        if (following := page.next_cursor) is None:
            break
        cursor = following
    told = [item for page in pages for item in page]
    assert told == [values[key] for key in sorted(values) if values[key] % 3]
    assert all(len(page) == limit for page in pages[:-1])


def test_a_page_looks_at_so_many_and_no_more() -> None:
    """Where nothing may be seen, the page is empty and says where to go on."""
    asked: list[int] = []

    def fetch(after: int | None, most: int) -> list[tuple[int, int]]:
        asked.append(most)
        start = 0 if after is None else after + 1
        return [(place, 0) for place in range(start, start + most)]

    page = CURSORS.page("list", PageRequest(1), fetch, _show)
    assert (page.items, sum(asked)) == ((), READ_MAX)
    assert CURSORS.read("list", str(page.next_cursor)) == READ_MAX - 1


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_cursor_is_refused(place: int, change: int) -> None:
    """Whichever byte is changed."""
    data = bytearray(unbase64url(CURSORS.write("list", "a"), "cursor"))
    data[place % len(data)] ^= change
    with pytest.raises(Malformed, match="was not made by this service"):
        CURSORS.read("list", base64url(bytes(data)))


def test_a_cursor_is_for_one_list_of_one_service() -> None:
    """Another list refuses it, and so does a service with another key."""
    cursor = CURSORS.write("list", "a")
    with pytest.raises(Malformed, match="another list"):
        CURSORS.read("other", cursor)
    with pytest.raises(Malformed, match="was not made"):
        Cursors(b"l" * 32).read("list", cursor)


def test_a_cursor_shows_nothing_of_the_key_that_it_is_after() -> None:
    """A key may be of what the caller may not see; the same place has the same cursor."""
    cursor = CURSORS.write("list", ("did:web:hospital.example", "secret"))
    assert b"secret" not in unbase64url(cursor, "cursor")
    assert CURSORS.write("list", ("did:web:hospital.example", "secret")) == cursor
    assert CURSORS.read("list", cursor) == ("did:web:hospital.example", "secret")
