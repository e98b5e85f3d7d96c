"""Shards: every unit in one of them, whole; what ranks say of theirs is held to the others'."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ledger.wire.malformed import Malformed
from trainer_adapter.devices.packed_trees import pack, unpack
from trainer_adapter.devices.rank_terms import check_terms
from trainer_adapter.devices.shards import Shard, check_shards, shards_of, split
from trainer_adapter.layers.tensor_trees import TensorTree, tensors


@given(st.integers(0, 60), st.integers(1, 9))
def test_every_record_is_in_one_shard(records: int, ranks: int) -> None:
    """In order, with its target and whether it is there; sizes differ by one at most."""
    data = (torch.arange(records), torch.arange(records) * 2)
    parts = list(split(data, None, torch.arange(records) % 3 == 0, ranks))
    check_shards([part.shard for part in parts])
    assert torch.equal(torch.cat([tensors(part.inputs)[0] for part in parts]), data[0])
    assert torch.equal(torch.cat([tensors(part.targets)[0] for part in parts]), data[1])
    for part in parts:
        assert part.present is not None
        assert torch.equal(part.present, tensors(part.inputs)[0] % 3 == 0)
    sizes = [len(tensors(part.inputs)[0]) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(-2, 5), max_size=30), st.integers(1, 4))
def test_all_records_of_a_user_are_in_one_shard(users: list[int], ranks: int) -> None:
    """However they are spread over the partition."""
    count = len(users)
    parts = list(split((torch.arange(count), torch.arange(count)), torch.tensor(users), None, ranks))
    check_shards([part.shard for part in parts])
    places = sorted(int(place) for part in parts for place in tensors(part.inputs)[0])
    assert places == list(range(count))
    known = [{*part.users.tolist()} for part in parts if part.users is not None]
    assert sum(map(len, known)) == len(set(users)) == parts[0].shard.units


@pytest.mark.parametrize(
    ("shards", "rule"),
    [
        ([Shard(0, 5, 10), Shard(0, 5, 10)], "rank 1 holds units that rank 0 holds too"),
        ([Shard(0, 6, 10), Shard(5, 10, 10)], "rank 1 holds units that rank 0 holds too"),
        ([Shard(5, 10, 10), Shard(0, 6, 10)], "rank 0 holds units that rank 1 holds too"),
        ([Shard(0, 10, 10), Shard(2, 3, 10)], "rank 1 holds units that rank 0 holds too"),
        ([Shard(0, 4, 10), Shard(5, 10, 10)], "no rank holds the units from 4 on"),
        ([Shard(0, 4, 10), Shard(4, 9, 10)], "no rank holds the last 1 of 10 units"),
        ([Shard(0, 5, 10), Shard(5, 10, 11)], "rank 1 counts 11 units in all, and rank 0 10"),
        ([Shard(0, 5, 10), Shard(5, 3, 10)], "no rank holds the units from 5 on"),
    ],
)
def test_shards_that_are_not_each_others_complement_are_named(shards: list[Shard], rule: str) -> None:
    """A unit in two places, in none, or counted otherwise."""
    with pytest.raises(Malformed, match=rf"^devices: {rule}"):
        check_shards([Shard.of_bytes(one.to_bytes()) for one in shards])


def test_shards_of_nothing_are_shards() -> None:
    """Fewer units than ranks: some hold none."""
    for units, ranks in ((2, 5), (0, 3)):
        shards = shards_of(units, ranks)
        check_shards(shards)
        assert [shard.units for shard in shards] == [units] * ranks


def test_ranks_that_disagree_are_named() -> None:
    """The first rank, and of what it has another."""
    same, other = bytes(32), bytes(31) + b"\1"
    check_terms(("plan", "model"), [same + same, same + same])
    for said, rule in (
        ([same + same, same + same, other + same], "rank 2 has another plan than rank 0"),
        ([same + same, same + other, other + same], "rank 1 has another model than rank 0"),
    ):
        with pytest.raises(Malformed, match=rf"^devices: {rule}"):
            check_terms(("plan", "model"), said)


def test_trees_come_back_as_they_were_packed() -> None:
    """Of any form and type, empty ones too."""
    trees: dict[str, TensorTree] = {
        "inputs": {"tokens": torch.arange(6).reshape(2, 3), "mask": torch.tensor([True, False])},
        "targets": (torch.zeros(0, 4), torch.tensor(0.5, dtype=torch.float64)),
    }
    back, about = unpack(pack(trees, {"kinds": ["normalise"]}))
    assert about == {"kinds": ["normalise"]}
    assert [*back] == [*trees]
    for name, tree in trees.items():
        assert [*map(str, tensors(back[name]))] == [*map(str, tensors(tree))]
    assert isinstance(back["targets"], tuple)
    assert unpack(pack({}, {"over": True})) == ({}, {"over": True})
