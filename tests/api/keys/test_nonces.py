"""Challenges: one use, one charge, two minutes, and a bounded number."""

from __future__ import annotations

import pytest

from api.keys.nonces import LIFE_MS, OPEN_MAX, OPEN_MAX_PER_CHARGE, Challenges, NoRoom
from ledger.wire.canonical_json import key_bytes


class Clock:
    """Time that a test moves by hand."""

    now = 1_000

    def __call__(self) -> int:
        """Unix milliseconds."""
        return self.now


def test_a_nonce_is_used_once() -> None:
    """The second use of a nonce is refused."""
    challenges = Challenges(Clock())
    nonce = challenges.issue("run-1")
    assert [challenges.burn(nonce, "run-1"), challenges.burn(nonce, "run-1")] == [True, False]


def test_a_nonce_holds_32_bytes_and_is_never_given_twice() -> None:
    """Nonces are 32 bytes of base64url, all different."""
    challenges = Challenges(Clock())
    nonces = {challenges.issue(f"run-{place}") for place in range(100)}
    assert len(nonces) == 100
    assert all(key_bytes(nonce, "nonce") == nonce for nonce in nonces)


def test_a_nonce_of_another_charge_is_burnt_and_worth_nothing() -> None:
    """Shown for another charge, a nonce fails there and is gone for its own."""
    challenges = Challenges(Clock())
    nonce = challenges.issue("run-1")
    assert not challenges.burn(nonce, "run-2")
    assert not challenges.burn(nonce, "run-1")


@pytest.mark.parametrize(("age_ms", "valid"), [(LIFE_MS - 1, True), (LIFE_MS, False)])
def test_a_nonce_lives_120_seconds(age_ms: int, valid: bool) -> None:  # noqa: FBT001 - a table's column
    """A nonce is good until the last millisecond before 120 seconds."""
    clock = Clock()
    challenges = Challenges(clock)
    nonce = challenges.issue("run-1")
    clock.now += age_ms
    assert challenges.burn(nonce, "run-1") is valid


def test_open_nonces_are_bounded_per_charge_and_in_all() -> None:
    """A charge's oldest nonce gives way to its newest; beyond all of them none is issued until time makes room."""
    clock = Clock()
    challenges = Challenges(clock)
    first, *others = (challenges.issue("run-0") for _ in range(OPEN_MAX_PER_CHARGE))
    newest = challenges.issue("run-0")
    assert not challenges.burn(first, "run-0")
    assert challenges.burn(newest, "run-0")
    assert challenges.burn(others[0], "run-0")
    challenges.issue("run-0")
    challenges.issue("run-0")
    for place in range(OPEN_MAX - OPEN_MAX_PER_CHARGE):
        challenges.issue(f"other-{place}")
    with pytest.raises(NoRoom):
        challenges.issue("one-more")
    clock.now += LIFE_MS
    assert challenges.issue("run-0")
