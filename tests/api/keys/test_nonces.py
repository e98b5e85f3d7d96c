"""Challenges: one charge, two minutes, any process of a book; the log uses them up."""

from __future__ import annotations

from typing import Final

import pytest

from api.keys.nonces import LIFE_MS, SKEW_MS, Challenges, Issued
from ledger.wire import canonical_json as c
from ledger.wire.canonical_json import key_bytes

SECRET: Final = bytes(range(32))


class Clock:
    """Time that a test moves by hand."""

    now = 1_000

    def __call__(self) -> int:
        """Unix milliseconds."""
        return self.now


def test_any_process_knows_a_nonce_that_another_issued() -> None:
    """Both have one secret; what the nonce says of itself is when it was issued."""
    one, other = Challenges(SECRET, Clock()), Challenges(SECRET, Clock())
    nonce = one.issue("run-1", 31)
    assert other.read(nonce, "run-1") == Issued(31, 1_000 + LIFE_MS)


def test_a_nonce_holds_32_bytes_and_is_never_given_twice() -> None:
    """Nonces are 32 bytes of base64url, all different."""
    challenges = Challenges(SECRET, Clock())
    nonces = {challenges.issue("run-1", 0) for _ in range(100)}
    assert len(nonces) == 100
    assert all(key_bytes(nonce, "nonce") == nonce for nonce in nonces)


def test_a_nonce_of_another_charge_or_secret_is_none() -> None:
    """Neither of another charge, nor of a name that another continues, nor of another book."""
    challenges = Challenges(SECRET, Clock())
    nonce = challenges.issue("run-1", 0)
    assert [challenges.read(nonce, charge) for charge in ("run-2", "run-", "run-11", "")] == [None] * 4
    assert Challenges(bytes(32), Clock()).read(nonce, "run-1") is None


def test_a_nonce_with_any_bit_changed_is_none() -> None:
    """Size, expiry, randomness and code: every bit counts; so does the length."""
    challenges = Challenges(SECRET, Clock())
    data = c.unbase64url(challenges.issue("run-1", 5), "nonce")
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        assert challenges.read(c.base64url(bytes(changed)), "run-1") is None
    for other in (data[1:], data + b"\0", b"", data[:16]):
        assert challenges.read(c.base64url(other), "run-1") is None
    assert challenges.read("no base64url", "run-1") is None


@pytest.mark.parametrize(
    ("moved_ms", "is_open"), [(LIFE_MS - 1, True), (LIFE_MS, False), (-SKEW_MS, True), (-SKEW_MS - 1, False)]
)
def test_a_nonce_lives_120_seconds(moved_ms: int, is_open: bool) -> None:  # noqa: FBT001 - a table's column
    """To the last millisecond before, and no longer on a clock that was set back than another process's may differ."""
    clock = Clock()
    clock.now = 1_000_000
    challenges = Challenges(SECRET, clock)
    issued = challenges.read(challenges.issue("run-1", 0), "run-1")
    clock.now += moved_ms
    assert issued is not None
    assert challenges.is_open(issued) is is_open
