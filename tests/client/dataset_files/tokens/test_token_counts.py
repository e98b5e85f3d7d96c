"""Tokens in a bounded memory: the record that is one too many is that of a plain count, in memory and in files."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client.dataset_files.tokens import token_counts
from client.dataset_files.tokens.token_counts import TOKEN_BYTES, TokenCounts

# Ends of zeros, which numpy's texts drop, and first bytes that choose the file.
TOKENS = st.sampled_from(
    [
        bytes(TOKEN_BYTES),
        b"\x01" + bytes(TOKEN_BYTES - 1),
        b"\x01\x01" + bytes(TOKEN_BYTES - 2),
        b"\xff" * TOKEN_BYTES,
        bytes(TOKEN_BYTES - 1) + b"\x01",
    ]
)


def first_beyond(tokens: list[bytes], count_max: int) -> int | None:
    """By counting."""
    seen = Counter[bytes]()
    for place, token in enumerate(tokens):
        seen[token] += 1
        if seen[token] > count_max:
            return place
    return None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.lists(TOKENS, max_size=5), max_size=6), st.integers(1, 3), st.sampled_from([2, 1_000]))
def test_the_first_record_that_is_one_too_many_is_found(
    monkeypatch: pytest.MonkeyPatch, batches: list[list[bytes]], count_max: int, kept_max: int
) -> None:
    """Whether two tokens are kept in memory, and the others in files, or all."""
    monkeypatch.setattr(token_counts, "KEPT_MAX", kept_max)
    counts = TokenCounts()
    for batch in batches:
        counts.add(np.frombuffer(b"".join(batch), np.uint8).reshape(len(batch), TOKEN_BYTES))
    assert counts.excess(count_max) == first_beyond([token for batch in batches for token in batch], count_max)
