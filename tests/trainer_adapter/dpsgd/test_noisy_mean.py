"""The dense tail: the same numbers as arithmetic on whole arrays, whatever the pieces and the threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from trainer_adapter.dpsgd.csprng import PAIRS_AT_ONCE, Stream
from trainer_adapter.dpsgd.noisy_mean import noisy_mean

KEY = bytes(range(32))


@pytest.fixture
def two_threads() -> Iterator[None]:
    """PyTorch's threads are how many share the pieces."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("size", [0, 1, 2, 7, 2 * PAIRS_AT_ONCE, 2 * PAIRS_AT_ONCE + 1, 7 * PAIRS_AT_ONCE + 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pieces_give_what_whole_arrays_give(size: int, dtype: torch.dtype) -> None:
    """Bit by bit, of a sum in either type, and the same again by one thread."""
    total = torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=dtype)
    normals = torch.from_numpy(Stream(KEY, bytes(12)).normals((size,)))
    expected = ((total.to(torch.float64) + 0.7 * normals) / 9).to(torch.float32)
    assert torch.equal(noisy_mean(total.clone(), Stream(KEY, bytes(12)), 0.7, 9), expected)
    torch.set_num_threads(1)
    assert torch.equal(noisy_mean(total.clone(), Stream(KEY, bytes(12)), 0.7, 9), expected)


def test_no_piece_of_keystream_is_used_twice() -> None:
    """Pieces end where the next begins, none can be drawn again, and the stream gives nothing after them."""
    stream = Stream(KEY, bytes(12))
    pieces = stream.pieces(5 * PAIRS_AT_ONCE)
    whole = Stream(KEY, bytes(12)).take(16 * sum(piece.pairs for piece in pieces))
    assert b"".join(piece.stream.take(16 * piece.pairs) for piece in pieces) == whole
    for piece in pieces:
        with pytest.raises(OverflowError):
            piece.stream.take(1)
    with pytest.raises(OverflowError):
        stream.take(1)


def test_normals_are_drawn_from_a_streams_beginning() -> None:
    """What was read before would be used a second time."""
    stream = Stream(KEY, bytes(12))
    stream.take(8)
    with pytest.raises(ValueError, match="beginning"):
        stream.pieces(4)
