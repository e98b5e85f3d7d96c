"""Commitments to records: read in one order alone, and counted like the sets they are."""

import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.wire.malformed import Malformed
from policy.documents.partition_commitments import MAGIC, SIZE, Commitments, Stored, overlap, read_commitments, repeated

KEY = bytes([7]) * SIZE
RECORDS = st.sets(st.integers(0, 40), min_size=1, max_size=20)


def stored(data: bytes) -> Stored:
    """Bytes under a name of their own."""
    return Stored(data.hex(), lambda: data)


def committed(records: set[int]) -> Stored:
    """A document about these records."""
    return stored(MAGIC + KEY + b"".join(number.to_bytes(SIZE, "big") for number in sorted(records)))


@settings(max_examples=100, deadline=None)
@given(RECORDS, RECORDS)
def test_an_overlap_is_that_of_the_sets(one: set[int], other: set[int]) -> None:
    """Either way round."""
    assert (
        overlap((committed(one),), committed(other)) == overlap((committed(other),), committed(one)) == len(one & other)
    )
    assert repeated((committed(one), committed(other))) == len(one & other)
    assert read_commitments(committed(one)) == Commitments(KEY, len(one))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        MAGIC,
        MAGIC + KEY,
        MAGIC + KEY + bytes(SIZE - 1),
        MAGIC + KEY + bytes(SIZE + 1),
        MAGIC + KEY + bytes(2 * SIZE),
        MAGIC + KEY + bytes([2]) * SIZE + bytes([1]) * SIZE,
        MAGIC.upper() + KEY + bytes(SIZE),
    ],
)
def test_what_is_not_in_rising_order_is_malformed(data: bytes) -> None:
    """Nothing, half a record, one twice, or out of order."""
    with pytest.raises(Malformed, match=r"^commitments"):
        read_commitments(stored(data))


def test_documents_are_compared_once() -> None:
    """Opening a partition inside the book finds what was counted before it: the bytes are not fetched again."""
    fetched: list[str] = []

    def counting(name: str, data: bytes) -> Stored:
        def fetch() -> bytes:
            fetched.append(name)
            return data

        return Stored(name, fetch)

    first = MAGIC + KEY + bytes(SIZE)
    for _ in range(3):
        assert overlap((counting("counted once, one", first),), counting("counted once, other", first)) == 1
    assert sorted(fetched) == ["counted once, one", "counted once, other"]


class State:
    """A state that a document is fetched from."""

    def __init__(self, data: bytes) -> None:
        """With one document."""
        self.data, self.fetched = data, 0

    def fetch(self) -> bytes:
        """Its bytes."""
        self.fetched += 1
        return self.data


def test_the_documents_of_a_long_stream_are_read_once_and_hold_no_state() -> None:
    """Two of each of a thousand slices, in order, again and again; the state that one was read from can go."""
    states = [State(MAGIC + bytes(SIZE) + number.to_bytes(SIZE, "big")) for number in range(2_048)]
    for _ in range(2):
        for state in states:
            read_commitments(Stored(f"long {state.data.hex()}", state.fetch))
    assert {one.fetched for one in states} == {1}
    gone = weakref.ref(states.pop())
    del state
    assert gone() is None
