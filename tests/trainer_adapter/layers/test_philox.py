"""The words of a mask are Philox 4x32-10's, wherever they are worked out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from tests.trainer_adapter.reference_dropout import philox_of
from trainer_adapter.layers.dropout import WORD, philox

words = st.integers(0, WORD)


def _ours(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    a, b, c, d = (torch.tensor(word) for word in counter)
    low, high = (torch.tensor(word) for word in key)
    return tuple(int(word) for word in philox((a, b, c, d), (low, high)))


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """The three vectors for ``philox4x32 10`` that Random123, its authors' library, publishes: ours, and the model."""
    assert _ours(counter, key) == expected
    assert philox_of(counter, key) == expected


@given(counter=st.tuples(words, words, words, words), key=st.tuples(words, words))
def test_any_block_is_that_of_plain_integers(counter: tuple[int, ...], key: tuple[int, ...]) -> None:
    """Products of two words wrap around in int64 and are whole in Python: the same block."""
    assert _ours(counter, key) == philox_of(counter, key)


def test_blocks_in_a_batch_are_those_one_by_one() -> None:
    """Many counters under many keys at once, by ``vmap``: each as if alone."""
    keys = torch.tensor([[0, 1], [WORD, 2], [5, WORD]])

    def one(key: Tensor) -> Tensor:
        return torch.stack(philox((torch.arange(4), 9, 0, 0), (key[:1], key[1:])))

    found = vmap(one)(keys)
    for place, (low, high) in enumerate(keys.tolist()):
        for block in range(4):
            assert tuple(found[place, :, block].tolist()) == philox_of((block, 9, 0, 0), (low, high))
