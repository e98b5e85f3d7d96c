"""The index of names: against a dictionary of lists, and how much memory a name takes."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from ledger.book.state.position_index import PositionIndex, digest_of

NAMES: Final = st.text("abcé-", max_size=3)


@given(st.lists(NAMES, max_size=60), NAMES)
def test_every_position_of_a_name_is_found_in_order(names: list[str], other: str) -> None:
    """And none of another name's, as long as no two digests are equal."""
    index, model = PositionIndex(), defaultdict[str, list[int]](list)
    for position, name in enumerate(names):
        index.add(name, position)
        model[name].append(position)
    assert {name: index.positions(name) for name in {*names, other}} == {
        name: model.get(name, []) for name in {*names, other}
    }
    assert len(index) == len(names)
    assert list(index) == sorted((digest_of(name), at) for at, name in enumerate(names))


def test_a_name_takes_little_memory_however_long_it_is() -> None:
    """16 bytes and the arrays' own reserve, beside a fixed part for the shards."""
    index = PositionIndex()
    for position in range(20_000):
        index.add(f"{position:0128}", position)
    arrays = [one for shard in index._shards.values() for one in shard]  # noqa: SLF001 - what is held
    assert sum(len(one) * one.itemsize for one in arrays) == 20_000 * 16
    assert sum(map(sys.getsizeof, arrays)) <= 20_000 * 16 * 9 // 8 + len(arrays) * 128


def test_an_index_made_at_once_is_the_one_made_step_by_step() -> None:
    """Also where names are used twice, or share a shard."""
    names = [f"name-{n % 700}" for n in range(1_000)]
    one = PositionIndex()
    for position, name in enumerate(names):
        one.add(name, position)
    other = PositionIndex.of(digest_of(name).to_bytes(8) + position.to_bytes(8) for position, name in enumerate(names))
    assert ([*one], len(one)) == ([*other], len(other))
    for index in (one, other):
        index.add("name-3", 1_000)
    assert one.positions("name-3") == other.positions("name-3") == [3, 703, 1_000]
    assert len(PositionIndex.of([])) == 0
