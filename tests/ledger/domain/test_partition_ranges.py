"""The edges of what one charge may cover by ranges: so many partitions, so many different terms, one unit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final

import pytest

from ledger.accounts.partition_groups import GROUPS_MAX, group_by_terms, require_same_unit
from ledger.domain.decision import Rejected
from ledger.domain.facts import Partition
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import Code
from ledger.domain.partition_ranges import PARTITIONS_MAX, PartitionRange, partitions_within
from tests.factories.people import HOSPITAL

CLAIMS: Final = f"{HOSPITAL}/claims"
FIRST: Final = Partition(
    ref=f"{CLAIMS}/s0000",
    provider=HOSPITAL,
    dataset="claims",
    epsilon=Fraction(6),
    delta=Fraction(1, 100_000),
    relation="REPLACE_SPECIAL",
    unit="record",
    unit_records_max=1,
    records=500,
    data_key="claims-s0000",
    terms='{"kind":"renyi"}',
    opened=0,
    retired=False,
    index=0,
)
EVERY: Final = [replace(FIRST, ref=f"{CLAIMS}/s{place:04}", index=place) for place in range(PARTITIONS_MAX + 1)]
FACTS: Final = MemoryState(partitions={one.ref: one for one in EVERY})


def between(first: int, last: int) -> PartitionRange:
    """From one place of opening to another, both included."""
    return PartitionRange(CLAIMS, f"s{first:04}", f"s{last:04}")


def test_so_many_partitions_and_no_more() -> None:
    """1,024 in one range, in two, or beside listed ones; one more is refused by its range."""
    most, half = PARTITIONS_MAX, PARTITIONS_MAX // 2
    refs = tuple(one.ref for one in EVERY)
    assert most == 1_024
    assert partitions_within(FACTS, (), (between(0, most - 1),)) == refs[:most]
    assert partitions_within(FACTS, refs[most:], (between(1, most - 1),)) == (refs[most], *refs[1:most])
    for listed, ranges, place in (
        ((), (between(0, most),), 0),
        ((), (between(0, half), between(half + 1, most)), 1),
        (refs[most:], (between(0, most - 1),), 0),
    ):
        with pytest.raises(Rejected, match="names more than 1024 partitions") as refused:
            partitions_within(FACTS, listed, ranges)
        decided = refused.value.decided
        assert (decided.code, decided.field) == (Code.MALFORMED, f"body.ranges[{place}]")


def test_different_terms_units_and_relations() -> None:
    """32 terms can be priced in one charge; two units or two relations never stand in one run."""
    terms = [replace(one, epsilon=Fraction(place + 1)) for place, one in enumerate(EVERY[: GROUPS_MAX + 1])]
    assert len(group_by_terms(terms[:GROUPS_MAX])) == GROUPS_MAX == 32
    with pytest.raises(Rejected, match="partitions of 33 different terms are more than the 32 of one charge"):
        group_by_terms(terms)
    require_same_unit(EVERY)
    for other, named in (
        (replace(EVERY[2], unit="user", unit_records_max=5), "user and REPLACE_SPECIAL"),
        (replace(EVERY[2], relation="ADD_OR_REMOVE_ONE"), "record and ADD_OR_REMOVE_ONE"),
    ):
        with pytest.raises(Rejected, match=f"s0002 has {named}: one run cannot span both") as refused:
            require_same_unit([*EVERY[:2], other])
        assert refused.value.decided.code == Code.MALFORMED
