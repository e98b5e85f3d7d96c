"""The keystream is ChaCha20's, and no piece of it is used twice."""

from __future__ import annotations

import copy
import math
import os
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from trainer_adapter.dpsgd.csprng import STREAM_BYTES_MAX, CsprngRandomness, NonceReused, Stream

KEY = bytes(range(32))


def test_keystream_is_rfc_8439_section_2_4_2() -> None:
    """The RFC's key, nonce and counter give the RFC's first 114 bytes of cipher text from its plain text."""
    plain = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    cipher = bytes.fromhex(
        "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b"
        "f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8"
        "07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
        "5af90bbf74a35be6b40b8eedf2785e42874d"
    )
    stream = Stream(KEY, bytes.fromhex("000000000000004a00000000"), counter=1)
    assert bytes(a ^ b for a, b in zip(plain, stream.take(len(plain)), strict=True)) == cipher


def test_words_are_the_keystream_read_as_little_endian() -> None:
    """Words taken in two goes are the 64-bit little-endian words of the one keystream."""
    raw = Stream(KEY, bytes(12)).take(80)
    stream = Stream(KEY, bytes(12))
    words = [*stream.words(3), *stream.words(7)]
    assert [int(word) for word in words] == [int.from_bytes(raw[8 * i : 8 * i + 8], "little") for i in range(10)]


def test_a_stream_opens_once_and_forwards(randomness: CsprngRandomness) -> None:
    """The same step, an earlier step and step 0 are refused; the other purpose is not touched by it."""
    randomness.stream("noise", 2)
    for step in (2, 1, 0, -1):
        with pytest.raises(NonceReused):
            randomness.stream("noise", step)
    randomness.stream("sampler", 1)


def test_no_keystream_is_shared_between_steps_purposes_and_runs() -> None:
    """Every 8-byte word of 2 runs, 3 purposes and 50 steps is different from every other."""
    words: list[int] = []
    for run in (CsprngRandomness(KEY), CsprngRandomness(bytes(32))):
        for step in range(1, 51):
            for purpose in ("sampler", "noise", "dropout"):
                words.extend(run.stream(purpose, step).words(100).tolist())
    assert len(set(words)) == len(words) == 2 * 3 * 50 * 100


def test_fresh_randomness_differs_each_time() -> None:
    """Two runs never start from one secret."""
    assert CsprngRandomness.fresh().stream("noise", 1).take(32) != CsprngRandomness.fresh().stream("noise", 1).take(32)


def test_a_stream_ends_before_its_counter_wraps() -> None:
    """Asking for more than a stream may give is refused before anything is made."""
    with pytest.raises(OverflowError):
        Stream(KEY, bytes(12)).take(STREAM_BYTES_MAX + 1)


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33)])
def test_a_secret_of_another_size_is_refused(secret: bytes) -> None:
    """Only 32 bytes make a run's keys."""
    with pytest.raises(ValueError, match="not 32"):
        CsprngRandomness(secret)


def test_normals_follow_box_and_muller_word_by_word() -> None:
    """Each pair of words gives the two normals that the textbook formula gives, computed with math alone."""
    words = [int(word) >> 11 for word in Stream(KEY, bytes(12)).words(6)]
    expected = [
        math.sqrt(-2 * math.log((words[i] + 1) / 2**53)) * turn(2 * math.pi * (words[3 + i] / 2**53))
        for turn in (math.cos, math.sin)
        for i in range(3)
    ]
    assert Stream(KEY, bytes(12)).normals((5,)) == pytest.approx(expected[:5], rel=1e-12)


def test_normals_have_the_moments_and_tails_of_a_gaussian() -> None:
    """Of 400,000: snapshots, correlation of neighbours and tails are within 6 standard errors."""
    count = 400_000
    normals = Stream(KEY, bytes(12)).normals((2, count // 2))
    assert normals.shape == (2, count // 2)
    flat = normals.reshape(-1)
    error = 6 / math.sqrt(count)
    assert abs(flat.mean()) < error
    assert abs((flat**2).mean() - 1) < error * math.sqrt(2)
    assert abs((flat**4).mean() - 3) < error * math.sqrt(96)
    assert abs((normals[0] * normals[1]).mean()) < 2 * error
    for bound in (0.5, 1.0, 2.0, 3.0):
        tail = math.erfc(bound / math.sqrt(2))
        assert abs((np.abs(flat) > bound).mean() - tail) < error * math.sqrt(tail * (1 - tail))


# Python 3.12 warns of forks of a process with threads; the copy does nothing with them.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_was_forked_off_draws_nothing() -> None:
    """It has the same keys, and would draw the same noise."""
    randomness = CsprngRandomness.fresh()
    child = os.fork()
    if child == 0:
        try:
            randomness.stream("noise", 1)
        except NonceReused:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    randomness.stream("noise", 1)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_randomness_is_neither_copied_nor_pickled(again: Callable[[CsprngRandomness], object]) -> None:
    """Both would draw the same noise."""
    with pytest.raises(NonceReused, match="cannot be copied or pickled"):
        again(CsprngRandomness.fresh())
