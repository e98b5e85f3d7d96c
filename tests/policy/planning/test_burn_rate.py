"""When an account runs out at the present rate, against charging on at that rate."""

from __future__ import annotations

from fractions import Fraction

from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.outcomes import Code
from policy.checks.field_readers import HOUR_MS
from policy.planning.account_caps import account_status
from policy.planning.burn_rate import projection, recent_loss
from policy.planning.plan_search import runs_that_fit
from tests.factories.documented import PLAN, DocumentedWorld, opened
from tests.factories.memory import ref_of
from tests.factories.people import BANKS, DAY_MS

REF = ref_of("one")


def daily(runs: int) -> DocumentedWorld:
    """One run a day by the first bank, each posted; the clock stands at the end of the last day."""
    market = opened()
    for place in range(runs):
        assert market.charged(f"run-{place}", PLAN) is Code.PENDING
        assert market.post(f"run-{place}", 40).code is Code.POSTED
        market.clock.now += DAY_MS
    return market


def test_runs_at_the_same_rate_fit_until_then_and_no_longer() -> None:
    """One a day: as many more as days are told; the next is refused for want of room."""
    market = daily(3)
    holder = holder_of(market.state.organisations[BANKS[0]].node)
    first = market.state.charges["run-0"].index
    reported = projection(
        market.state, REF, holder, Fraction(5), first, market.clock.now - 3 * DAY_MS, market.clock.now
    )
    assert reported.projected_until is not None
    assert not reported.full
    days = (reported.projected_until - market.clock.now) // DAY_MS
    got = [market.charged(f"more-{place}", PLAN) for place in range(days + 1)]
    assert got == [Code.PENDING] * days + [Code.BUDGET_EXHAUSTED]
    assert reported.to_json()["full"] is False


def test_a_rate_twice_as_high_lasts_half_as_long() -> None:
    """The same charges, taken to be of half the time; to the hour."""
    market = daily(2)
    first = market.state.charges["run-0"].index
    ends = [
        projection(
            market.state, REF, GLOBAL, Fraction(6), first, market.clock.now - stretch, market.clock.now
        ).projected_until
        for stretch in (2 * DAY_MS, DAY_MS)
    ]
    slow, fast = ((end or 0) - market.clock.now for end in ends)
    assert 0 <= slow - 2 * fast <= HOUR_MS
    assert fast % HOUR_MS == 0


def test_what_was_voided_makes_no_rate_and_what_came_before_neither() -> None:
    """Only charges of the stretch that still count."""
    market = daily(2)
    first = market.index
    assert market.charged("void", PLAN) is Code.PENDING
    assert market.decide_void("void").code is Code.VOIDED
    assert recent_loss(market.state, REF, GLOBAL, first).empty
    reported = projection(market.state, REF, GLOBAL, Fraction(6), first, market.clock.now - DAY_MS, market.clock.now)
    assert (reported.projected_until, reported.full) == (None, False), "nothing lately: it lasts"
    one = recent_loss(market.state, REF, GLOBAL, market.state.charges["run-1"].index)
    both = recent_loss(market.state, REF, GLOBAL, 0)
    assert one + one == both == market.state.accounts[REF, GLOBAL].loss


def test_a_lineage_has_its_own_rate() -> None:
    """What others charge is not in it; what it was handed is."""
    market = daily(1)
    other = holder_of(market.state.organisations[BANKS[1]].node)
    assert recent_loss(market.state, REF, other, 0).empty
    market.merge(BANKS[1], (BANKS[0],))
    merged = holder_of(market.state.organisations[BANKS[1]].node)
    assert recent_loss(market.state, REF, merged, 0) == recent_loss(market.state, REF, GLOBAL, 0)


def test_an_account_without_room_is_full_now() -> None:
    """Over its cap, or under one that leaves no room at any order."""
    market = daily(3)
    for cap in (Fraction(5, 2), Fraction(1, 2)):
        reported = projection(market.state, REF, GLOBAL, cap, 0, market.clock.now - DAY_MS, market.clock.now)
        assert (reported.full, reported.projected_until) == (True, None)


def test_what_a_decree_lets_begin_anew_stands_so_everywhere() -> None:
    """After a decree the account is told, planned and projected as the rule admits; its lifetime is untouched."""
    market = daily(3)
    holder = holder_of(market.state.organisations[BANKS[0]].node)
    account = market.state.accounts[REF, holder]
    before = runs_that_fit(market.ask(PLAN)).more
    market.state.forgiven[REF, holder] = market.state.forgiven[REF, GLOBAL] = account.posted
    assert account_status(market.state, account, None).used.share == 0
    assert runs_that_fit(market.ask(PLAN)).more == before + 3
    full = projection(market.state, REF, holder, Fraction(5, 2), 0, market.clock.now - DAY_MS, market.clock.now)
    assert not full.full
    assert market.state.accounts[REF, holder] == account


def test_a_young_partition_is_not_told_to_last_by_the_time_before_it() -> None:
    """Asked for the rate of thirty days, it has that of its own three."""
    market = daily(3)
    state, now = market.state, market.clock.now
    assert state.partitions[REF].opened == now - 3 * DAY_MS
    own, month = (projection(state, REF, GLOBAL, Fraction(6), 0, now - days * DAY_MS, now) for days in (3, 30))
    assert own == month
    assert own.projected_until is not None
