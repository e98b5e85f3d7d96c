"""Sums at an order that decides nothing: any number of runs adds to them, and closes no partition to others."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.accounts import headroom
from ledger.accounts.headroom import WIDE_SUMS_SINCE_MS, runs_within_count
from ledger.audit.replay import verify_book
from ledger.commands import verdict_cache
from ledger.domain.facts import GLOBAL, Account, holder_of
from ledger.mechanisms.loss import Loss
from ledger.store import tables
from ledger.store.tables import ACCOUNTS
from ledger.verifier import Balance
from ledger.wire.exact_numbers import NAT
from tests.factories.documents import PARTITION, plan
from tests.factories.people import BANK_A, BANK_B, HOUR_MS, LOG
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import words
from tests.ledger.book.state.test_account_proof import proof_of, state_anew, verified

FAR: Final = plan(100, "0.3", "0.000000001")
"""A run that costs 187.4 nat at order 5, and next to nothing where its account is decided."""
SUMS: Final = st.integers(0, (1 << 93) - 1) | st.sampled_from([0, (1 << 63) - 1, 1 << 63, 1 << 64])
COUNTS: Final = st.integers(0, (1 << 32) - 1)


@given(st.lists(st.tuples(SUMS, COUNTS, SUMS, COUNTS), min_size=1, max_size=4))
def test_a_row_holds_any_sum(sums: list[tuple[int, int, int, int]]) -> None:
    """In integers of 63 bits; a sum that one of them holds stands there as it is, as in books of before."""
    account = Account("p", "h", *(Loss(*zip(*(one[at : at + 2] for one in sums), strict=True)) for at in (0, 2)))
    dumped = ACCOUNTS.dump(("p", "h"), account)
    plain = [("p", "h", place, *one) for place, one in enumerate(sums)]
    assert all(0 <= number < 1 << 63 for row in dumped for number in row[3:])
    for row, own in zip(dumped, plain, strict=True):
        assert row == own or max(own[3], own[5]) >= 1 << 63
    columns = ACCOUNTS.table.columns.keys()
    rows = [type("Row", (), dict(zip(columns, row, strict=True))) for row in dumped]
    assert ACCOUNTS.load(rows) == account  # type: ignore[arg-type]  # with the attributes of rows


@given(
    st.lists(st.tuples(*[st.integers(0, 200)] * 4), min_size=1, max_size=4),
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
    st.data(),
)
def test_runs_that_are_counted_stay_within_the_greatest_sum(
    sums: list[tuple[int, int, int, int]], costs: list[int], data: st.DataObject
) -> None:
    """Whatever is settled between them: what was pending is posted, or goes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headroom, "SUM_MAX", 400)
        parts = [[*part] for part in zip(*sums, strict=True)]
        posted, pending, nothing = parts[0], parts[1], (0,) * len(sums)
        run = costs[: len(sums)]

        def accounts() -> dict[tuple[str, str], Account]:
            both = (Loss(tuple(part), nothing) for part in (posted, pending))
            return {("p", GLOBAL): Account("p", GLOBAL, *both)}

        left = runs_within_count(accounts(), {"p": Loss(tuple(run), nothing)}, 0)
        for _ in range(min(left, 60)):
            assert headroom.beyond_count(accounts(), ["p"], 0) is None
            pending[:] = map(operator.add, pending, run)
            for place in range(len(sums)):
                settled = data.draw(st.integers(0, pending[place]))
                pending[place] -= settled
                posted[place] += data.draw(st.integers(0, settled))


def test_a_cached_verdict_admits_no_run_beyond_the_greatest_sum(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the date too, with every decision compared: the writer goes on."""
    monkeypatch.setattr(headroom, "SUM_MAX", 25 * 188 * NAT)
    monkeypatch.setattr(verdict_cache, "SAMPLE", 1)
    found = words(world.submit(*(world.charge(f"far-{number}", run=FAR) for number in range(40))))
    assert found == ["pending"] * 26 + ["budget_exhausted"] * 14
    assert words(world.submit(world.void("far-0"), world.void("far-1"))) == ["voided"] * 2
    verify_book(world.url, LOG, no_step)


def test_no_run_of_one_lineage_closes_a_partition_to_another(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the date on: sums go on, in rows that hold them, and what was refused before the date replays."""
    monkeypatch.setattr(headroom, "SUM_MAX", 5 * 188 * NAT)
    monkeypatch.setattr(tables, "SUM_BITS", 42)
    with open_world(tmp_path, engine) as world:
        world.is_checked = True
        assert max(_outgrown(world).pending.finite) > 20 * 187 * NAT


def _outgrown(world: StoredWorld) -> Account:
    """The account of a lineage that charged beyond the greatest sum of before, after another one was admitted."""
    world.clock.now = WIDE_SUMS_SINCE_MS - HOUR_MS
    world.submit(*(world.charge(f"far-{number}", run=FAR) for number in range(8)))
    assert words(world.submit(world.charge("early", BANK_B))) == ["budget_exhausted"]
    world.clock.now = WIDE_SUMS_SINCE_MS
    assert {*words(world.submit(*(world.charge(f"more-{number}", run=FAR) for number in range(20))))} == {"pending"}
    assert words(world.submit(world.charge("other", BANK_B))) == ["pending"]
    assert words(world.submit(world.settle("more-0", 100), world.void("more-1"))) == ["posted", "voided"]
    world.reopen()
    with world.read() as facts:
        own = facts.accounts[PARTITION, holder_of(facts.organisations[BANK_A].node)]
        assert 187 * NAT < max(own.posted.finite) < 188 * NAT
        assert set(own.pending.infinite) == {0}
    verify_book(world.url, LOG, no_step)
    return own


def test_a_sum_beyond_64_bits_is_stated_proven_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the state's leaves, in its snapshot, in an account proof and in rows."""
    monkeypatch.setattr("ledger.mechanisms.loss.LOSS_MAX", 1 << 90)
    monkeypatch.setattr("ledger.verifier.LOSS_MAX", 1 << 90)
    # A loss is computed once a process: that of these steps for this test alone.
    far = plan(9_999_999, "0.3", "0.000000001")
    with open_world(tmp_path) as world:
        world.clock.now = WIDE_SUMS_SINCE_MS
        world.book.close()
        world.book = world.open(statements=True, snapshot=tmp_path / "snapshot")
        assert words(world.submit(*(world.charge(f"far-{number}", run=far) for number in range(3)))) == ["pending"] * 3
        state_anew(world)
        world.submit(world.settle("far-0", 9_999_999), world.void("far-1"))
        for name in ("far-3", "far-4"):
            with world.read() as facts:
                account = facts.accounts[PARTITION, GLOBAL]
            assert min(max(account.posted.finite), max(account.pending.finite)) > 1 << 63
            assert verified(proof_of(world, GLOBAL)).balance == Balance(*account.posted, *account.pending)
            world.book.close()
            world.book = world.open(statements=True, snapshot=tmp_path / "snapshot")
            world.submit(world.charge(name, run=far))
            state_anew(world)
        verify_book(world.url, LOG, no_step)
